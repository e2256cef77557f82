//! A decision: which Pods are created and which are deleted.

use std::sync::Arc;
use std::time::Duration;

use crate::objects::pod::Pod;

/// A Pod and its node.
type Placed<'a> = (&'a str, &'a Arc<Pod>);

/// The next step.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// Nodes that get a Pod.
    pub(super) create: Vec<&'a str>,
    /// Pods to delete.
    pub(super) delete: Vec<Placed<'a>>,
    /// Pods to delete because they have ended.
    pub(super) ended: Vec<Placed<'a>>,
    /// When the next failed Pod is deleted.
    pub(super) backoff: Option<Duration>,
}

impl Plan<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty() && self.ended.is_empty()
    }
}
