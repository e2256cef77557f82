//! Parses watched objects.

use client::watch::Object;
use serde::de::DeserializeOwned;

/// Parses an object; one that cannot be read is logged and left out.
pub(crate) fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    api::view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "an object cannot be read; it is left out"))
        .ok()
}
