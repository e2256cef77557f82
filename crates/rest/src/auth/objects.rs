//! Objects that credentials depend on, read from the store at each request.
//!
//! In: a kind, a namespace and a name. Out: the current object. A ServiceAccount token is valid while its account and the Pod, Secret or
//! Node that it is bound to exist; a bootstrap token while its Secret exists. Nothing is cached, so a deletion takes effect at once.

use std::sync::Arc;

use api::kind::Kind;
use api::kinds::{node, pod, secret, serviceaccount};
use api::object;
use serde_json::Value;
use store::Store;

/// A kind of object that a credential may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Referent {
    /// The account that a token is for.
    ServiceAccount,
    /// The Pod that a token is bound to.
    Pod,
    /// The Secret that a token is bound to, or that holds a bootstrap token.
    Secret,
    /// The Node that a token is bound to; its namespace is empty.
    Node,
}

impl Referent {
    /// The kind in the API.
    #[must_use]
    pub fn kind(self) -> &'static Kind {
        match self {
            Self::ServiceAccount => &serviceaccount::KIND,
            Self::Pod => &pod::KIND,
            Self::Secret => &secret::KIND,
            Self::Node => &node::KIND,
        }
    }
}

/// Looks up an object by kind, namespace and name.
pub type ObjectLookup = Box<dyn Fn(Referent, &str, &str) -> Option<Value> + Send + Sync>;

/// Looks up objects in a store.
#[must_use]
pub fn stored(store: Arc<dyn Store>) -> ObjectLookup {
    Box::new(move |what, namespace, name| {
        let entry = store.get(&crate::registry::key(what.kind(), namespace, name))?;
        Some(object::decode_light(&entry.value))
    })
}
