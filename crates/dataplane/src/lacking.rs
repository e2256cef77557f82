//! Which Service ports want their traffic to stay on this node while nobody is here to take it: a figure that operators watch.
//!
//! Kept in step port by port, so that it costs nothing to know it when there are many Services.

use std::collections::HashSet;

use plan::{Plan, PortKey};

/// The ports that lack endpoints here.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    internal: HashSet<PortKey>,
    external: HashSet<PortKey>,
}

impl Lacking {
    /// A port is new, changed or gone.
    pub(crate) fn follow(&mut self, plan: &Plan, key: &PortKey) {
        let port = plan.ports.get(key).filter(|port| port.has_any && port.local.is_empty());
        note(&mut self.internal, key, port.is_some_and(|port| port.internal_local));
        note(&mut self.external, key, port.is_some_and(|port| port.external_local && port.is_external()));
    }

    /// How many lack endpoints for traffic from inside, and for traffic from outside.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.internal.len(), self.external.len())
    }
}

fn note(set: &mut HashSet<PortKey>, key: &PortKey, lacks: bool) {
    if lacks {
        set.insert(key.clone());
    } else {
        set.remove(key);
    }
}
