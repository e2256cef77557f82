//! Parses watched objects.

use client::watch::Object;
use serde::de::DeserializeOwned;

/// Parses an object; an invalid one is logged and ignored.
pub(crate) fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    api::view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "ignoring invalid object"))
        .ok()
}
