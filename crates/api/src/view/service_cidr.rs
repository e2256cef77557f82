//! `ServiceCIDR`s.

use serde::Deserialize;

use super::ObjectMeta;
use super::lenient::or_default;

/// A `ServiceCIDR`: a range of cluster IPs.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ServiceCidr {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceCidrSpec,
}

/// The spec of a `ServiceCIDR`.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ServiceCidrSpec {
    /// Its prefixes, one of each family at most.
    #[serde(deserialize_with = "or_default")]
    pub cidrs: Vec<Box<str>>,
}
