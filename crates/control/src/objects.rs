//! Reduced objects: of each kind only the fields that controllers need.
//!
//! In: stored bytes, parsed as [`api::view`]. Out: small typed structs, because complete objects of a large cluster would need gigabytes. A controller
//! that changes an object decodes it completely, so that no field is lost.

pub mod gateway_api;
pub mod job_pod;
pub mod load_balancer;
pub mod node;
pub mod placement;
pub mod pod;
pub mod service;
pub mod slice;
pub mod workload;

use api::view::Ownership;
pub(crate) use api::view::lenient::or_default;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads stored bytes. Invalid bytes are logged and read as empty; this happens only when the store is damaged, because objects are validated when
/// they are written.
pub(crate) fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    api::view::parse(bytes).unwrap_or_else(|error| {
        tracing::error!(%error, "failed to decode stored object; treating it as empty");
        T::default()
    })
}

/// Reads owner references and deletion timestamp of a stored object of any kind.
pub(crate) fn ownership(stored: &[u8]) -> Ownership {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Object {
        #[serde(deserialize_with = "or_default")]
        metadata: Ownership,
    }
    read::<Object>(stored).metadata
}

/// Splits a key into namespace and name.
#[must_use]
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
