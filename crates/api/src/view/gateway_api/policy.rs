//! ReferenceGrants and BackendTLSPolicies.

use serde::Deserialize;

use super::super::lenient::or_default;
use super::super::{ObjectMeta, StringMap};
use super::ObjectRef;

/// A ReferenceGrant: objects of other namespaces may refer to objects of its namespace.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ReferenceGrant {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: ReferenceGrantSpec,
}

/// The spec of a ReferenceGrant.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ReferenceGrantSpec {
    /// Who may refer.
    #[serde(deserialize_with = "or_default")]
    pub from: Vec<ReferenceGrantFrom>,
    /// To what.
    #[serde(deserialize_with = "or_default")]
    pub to: Vec<ReferenceGrantTo>,
}

/// Objects of a kind in a namespace.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ReferenceGrantFrom {
    /// Their group.
    #[serde(deserialize_with = "or_default")]
    pub group: Box<str>,
    /// Their kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Their namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
}

/// Objects of a kind, or one of them.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ReferenceGrantTo {
    /// Their group.
    #[serde(deserialize_with = "or_default")]
    pub group: Box<str>,
    /// Their kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The name of one object; all when absent.
    pub name: Option<Box<str>>,
}

impl ReferenceGrant {
    /// Whether it permits objects of this group, kind and namespace to refer to an object of its own namespace.
    #[must_use]
    pub fn permits(&self, from: (&str, &str, &str), to: (&str, &str, &str)) -> bool {
        let is_from = |have: &ReferenceGrantFrom| (&*have.group, &*have.kind, &*have.namespace) == from;
        let is_to = |have: &ReferenceGrantTo| {
            (&*have.group, &*have.kind) == (to.0, to.1) && have.name.as_deref().is_none_or(|name| name == to.2)
        };
        self.spec.from.iter().any(is_from) && self.spec.to.iter().any(is_to)
    }
}

/// A BackendTLSPolicy: TLS towards the endpoints of Services.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct BackendTlsPolicy {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: BackendTlsPolicySpec,
}

/// The spec of a BackendTLSPolicy.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsPolicySpec {
    /// The Services, of its own namespace.
    #[serde(deserialize_with = "or_default")]
    pub target_refs: Vec<PolicyTarget>,
    /// How certificates of endpoints are verified.
    #[serde(deserialize_with = "or_default")]
    pub validation: BackendTlsValidation,
    /// Options of implementations.
    #[serde(deserialize_with = "or_default")]
    pub options: StringMap,
}

/// The object that a policy applies to, in the namespace of the policy.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyTarget {
    /// Its group.
    #[serde(deserialize_with = "or_default")]
    pub group: Box<str>,
    /// Its kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// A port of the Service, by name; all ports when absent.
    pub section_name: Option<Box<str>>,
}

/// How certificates of endpoints are verified.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsValidation {
    /// ConfigMaps with CA certificates.
    #[serde(rename = "caCertificateRefs", deserialize_with = "or_default")]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// `System`, for the CA certificates of the machine.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<Box<str>>,
    /// Server name (SNI), and the name to verify unless there are `subjectAltNames`.
    #[serde(deserialize_with = "or_default")]
    pub hostname: Box<str>,
    /// Names of which the certificate must have one.
    #[serde(deserialize_with = "or_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name in a certificate.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// A host, possibly with a wildcard.
    #[serde(deserialize_with = "or_default")]
    pub hostname: Box<str>,
    /// A URI.
    #[serde(deserialize_with = "or_default")]
    pub uri: Box<str>,
}
