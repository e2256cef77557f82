//! Objects as controllers see them: of each kind only what decides something.
//!
//! In: stored bytes. Out: small typed forms. A cluster of a hundred thousand Pods is looked at all the time; decoded
//! completely it would fill gigabytes. Whatever a controller changes it decodes whole again, so that nothing is lost.

pub mod endpoints;
pub mod metadata;
pub mod node;
pub mod placement;
pub mod pod;
pub mod service;
pub mod slice;
pub mod workload;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// Reads stored bytes. What does not fit reads as empty: the schema was checked when the object was written, so this is
/// unreachable unless a store was damaged, and then it is said.
pub(crate) fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        tracing::error!(%error, "a stored object cannot be read; it is taken as empty");
        T::default()
    })
}

/// A member that may be null, which means the same as absent.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The namespace and the name of a key.
#[must_use]
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
