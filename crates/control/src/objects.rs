//! Objects as controllers keep them: of each kind only what decides something.
//!
//! In: stored bytes, parsed as [`api::view`]. Out: small typed forms. A cluster of a hundred thousand Pods is looked at
//! all the time; decoded completely it would fill gigabytes. Whatever a controller changes it decodes whole again, so that
//! nothing is lost.

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

/// Reads stored bytes. What does not fit reads as empty: the schema was checked when the object was written, so this is
/// unreachable unless a store was damaged, and then it is said.
pub(crate) fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    api::view::parse(bytes).unwrap_or_else(|error| {
        tracing::error!(%error, "a stored object cannot be read; it is taken as empty");
        T::default()
    })
}

/// Reads who owns a stored object of any kind, and whether it is being deleted.
pub(crate) fn ownership(stored: &[u8]) -> Ownership {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Object {
        #[serde(deserialize_with = "or_default")]
        metadata: Ownership,
    }
    read::<Object>(stored).metadata
}

/// The namespace and the name of a key.
#[must_use]
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
