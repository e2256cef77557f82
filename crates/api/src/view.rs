//! Typed models of the kinds that components read, one for each kind, shared by all of them.
//!
//! In: JSON of any API server, or a [`serde_json::Value`]. Out: the members that some component uses; everything else is
//! ignored. A component that needs more of an interpretation than the methods here give keeps a type of its own, made
//! from these.
//!
//! Reading is lenient, because one odd member must never hide the rest of an object: a null is an absent member, an
//! absent member has its default, a number outside the range of its field is 0, and a protocol that is not known is
//! none. Only JSON of another shape (a string where a list belongs) fails; no API server sends that. Enumerated fields
//! (`type`, `sessionAffinity`, `phase`) are kept as text, so a value of a later version is kept too.
//!
//! [`labels`], [`annotations`] and [`taints`] are the keys that several crates use.

pub mod annotations;
pub mod condition;
pub mod endpoint_slice;
pub mod endpoints;
mod gateway;
pub mod gateway_api;
pub mod ingress;
pub mod labels;
pub mod lease;
pub mod lenient;
pub mod metadata;
pub mod node;
pub mod pod;
pub mod protocol;
pub mod secret;
pub mod service;
pub mod service_cidr;
pub mod string_map;
pub mod taints;
pub mod traffic_policy;

use serde::de::DeserializeOwned;

pub use condition::Condition;
pub use endpoint_slice::EndpointSlice;
pub use endpoints::Endpoints;
pub use ingress::{Ingress, IngressClass};
pub use lease::Lease;
pub use metadata::{ObjectMeta, OwnerReference, Ownership};
pub use node::Node;
pub use pod::Pod;
pub use protocol::Protocol;
pub use secret::Secret;
pub use service::Service;
pub use service_cidr::ServiceCidr;
pub use string_map::StringMap;
pub use traffic_policy::TrafficPolicy;

/// Parses an object from JSON.
///
/// # Errors
/// When the bytes are not JSON, or not of the shape of the kind.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

#[cfg(test)]
mod tests;
