//! Renders states as statuses: merges into the stored status, and says when there is nothing to write.
//!
//! In: the stored `status`, the state, the time. Out: the new `status`, or `None` when it would be equal. Conditions,
//! parents and ancestors of other controllers stay where they are.

use serde_json::Value;

use crate::cluster::{ClassState, GatewayState, ListenerSetState, PolicyState, RouteState};

/// The status of a GatewayClass.
#[must_use]
pub fn class(_stored: &Value, _state: &ClassState, _now: &str) -> Option<Value> {
    None
}

/// The status of a Gateway.
#[must_use]
pub fn gateway(_stored: &Value, _state: &GatewayState, _now: &str) -> Option<Value> {
    None
}

/// The status of a ListenerSet.
#[must_use]
pub fn listener_set(_stored: &Value, _state: &ListenerSetState, _now: &str) -> Option<Value> {
    None
}

/// The status of a route.
#[must_use]
pub fn route(_stored: &Value, _state: &RouteState, _now: &str) -> Option<Value> {
    None
}

/// The status of a BackendTLSPolicy.
#[must_use]
pub fn policy(_stored: &Value, _state: &PolicyState, _now: &str) -> Option<Value> {
    None
}
