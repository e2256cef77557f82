//! Leases.

use serde::Deserialize;

use super::ObjectMeta;
use super::lenient::or_default;

/// A Lease.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Lease {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: LeaseSpec,
}

/// The spec of a Lease.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Its holder; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub holder_identity: Box<str>,
    /// How long it is held after a renewal, in seconds.
    pub lease_duration_seconds: Option<i64>,
    /// When its holder renewed it last, by the clock of the holder.
    pub renew_time: Option<Box<str>>,
}
