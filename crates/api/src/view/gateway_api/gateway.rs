//! GatewayClasses, Gateways and ListenerSets.

use serde::Deserialize;

use super::super::lenient::or_default;
use super::super::{ObjectMeta, StringMap};
use super::references::port;
use super::{CONTROLLER, ObjectRef, ParentRef};

/// A GatewayClass.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GatewayClass {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: GatewayClassSpec,
}

/// The spec of a GatewayClass.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// The controller of its Gateways.
    #[serde(deserialize_with = "or_default")]
    pub controller_name: Box<str>,
    /// An object with further settings.
    pub parameters_ref: Option<ParametersRef>,
}

impl GatewayClass {
    /// Whether its Gateways are implemented here.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        &*self.spec.controller_name == CONTROLLER
    }
}

/// An object with further settings.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ParametersRef {
    /// Its group.
    #[serde(deserialize_with = "or_default")]
    pub group: Box<str>,
    /// Its kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its namespace, for a reference of a GatewayClass.
    pub namespace: Option<Box<str>>,
}

/// A Gateway.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Gateway {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: GatewaySpec,
}

/// The spec of a Gateway.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// The name of its GatewayClass.
    #[serde(deserialize_with = "or_default")]
    pub gateway_class_name: Box<str>,
    /// Its listeners.
    #[serde(deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
    /// Requested addresses.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<GatewayAddress>,
    /// Labels, annotations and parameters of what is created for it.
    #[serde(deserialize_with = "or_default")]
    pub infrastructure: Infrastructure,
    /// Which ListenerSets may be attached.
    #[serde(deserialize_with = "or_default")]
    pub allowed_listeners: AllowedListeners,
    /// TLS towards clients and backends.
    #[serde(deserialize_with = "or_default")]
    pub tls: GatewayTls,
}

/// A requested address.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GatewayAddress {
    /// `IPAddress` (the default), `Hostname`, `NamedAddress` or a type with a domain.
    #[serde(rename = "type")]
    pub kind: Option<Box<str>>,
    /// The address; any of the type when absent or empty.
    pub value: Option<Box<str>>,
}

/// Labels, annotations and parameters of what is created for a Gateway.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    /// Labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: StringMap,
    /// Annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: StringMap,
    /// An object of the same namespace with further settings.
    pub parameters_ref: Option<ParametersRef>,
}

/// Which ListenerSets may be attached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct AllowedListeners {
    /// By namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: ListenerNamespaces,
}

/// Namespaces of ListenerSets.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ListenerNamespaces {
    /// `None` (the default), `All`, `Same` or `Selector`.
    pub from: Option<Box<str>>,
    /// Labels of namespaces.
    #[serde(deserialize_with = "or_default")]
    pub selector: LabelSelector,
}

/// A label selector of an object.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be present.
    #[serde(deserialize_with = "or_default")]
    pub match_labels: StringMap,
    /// Requirements that must hold.
    #[serde(deserialize_with = "or_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement of a label selector.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// The label.
    #[serde(deserialize_with = "or_default")]
    pub key: Box<str>,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(deserialize_with = "or_default")]
    pub operator: Box<str>,
    /// Values.
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<Box<str>>,
}

impl LabelSelector {
    /// Whether it selects an object with these labels. An empty selector selects all; a requirement with an unknown
    /// operator selects none.
    #[must_use]
    pub fn matches(&self, labels: &StringMap) -> bool {
        let holds = |requirement: &LabelSelectorRequirement| {
            let value = labels.get(&requirement.key);
            let is_listed = value.is_some_and(|value| requirement.values.iter().any(|one| **one == *value));
            match &*requirement.operator {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(holds)
    }
}

/// A listener of a Gateway or of a ListenerSet.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// The host that it serves; all when absent or empty.
    pub hostname: Option<Box<str>>,
    /// Its port.
    #[serde(deserialize_with = "port")]
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, or a protocol with a domain.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Box<str>,
    /// TLS towards clients.
    pub tls: Option<ListenerTls>,
    /// Which routes may be attached.
    #[serde(deserialize_with = "or_default")]
    pub allowed_routes: AllowedRoutes,
}

impl Listener {
    /// The host that it serves; none for all hosts.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.hostname.as_deref().filter(|host| !host.is_empty())
    }

    /// Whether TLS connections are passed on as they are.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        &*self.protocol == "TLS" && self.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Passthrough)
    }
}

/// TLS of a listener.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    /// Where TLS ends.
    #[serde(deserialize_with = "or_default")]
    pub mode: TlsMode,
    /// Secrets with certificates.
    #[serde(deserialize_with = "or_default")]
    pub certificate_refs: Vec<ObjectRef>,
    /// Options of implementations.
    #[serde(deserialize_with = "or_default")]
    pub options: StringMap,
}

/// Where TLS ends.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TlsMode {
    /// At the listener.
    #[default]
    Terminate,
    /// At the backend.
    Passthrough,
    /// A mode of a later version.
    #[serde(other)]
    Unknown,
}

/// Which routes may be attached to a listener.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct AllowedRoutes {
    /// By namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: RouteNamespaces,
    /// By kind; those of the protocol when empty.
    #[serde(deserialize_with = "or_default")]
    pub kinds: Vec<RouteGroupKind>,
}

/// Namespaces of routes.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct RouteNamespaces {
    /// `Same` (the default), `All` or `Selector`.
    pub from: Option<Box<str>>,
    /// Labels of namespaces.
    #[serde(deserialize_with = "or_default")]
    pub selector: LabelSelector,
}

/// A kind of routes.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub struct RouteGroupKind {
    /// Its group; absent is that of the Gateway API.
    pub group: Option<Box<str>>,
    /// Its kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
}

/// TLS of a Gateway, towards clients and backends.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GatewayTls {
    /// Towards backends.
    #[serde(deserialize_with = "or_default")]
    pub backend: BackendTls,
    /// Towards clients.
    pub frontend: Option<FrontendTls>,
}

/// TLS towards backends.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    /// A Secret with the client certificate.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// TLS towards clients.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    /// For ports without settings of their own.
    #[serde(deserialize_with = "or_default")]
    pub default: TlsConfig,
    /// By port.
    #[serde(deserialize_with = "or_default")]
    pub per_port: Vec<PortTls>,
}

/// TLS towards the clients of a port.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct PortTls {
    /// The port.
    #[serde(deserialize_with = "port")]
    pub port: u16,
    /// Its settings.
    #[serde(deserialize_with = "or_default")]
    pub tls: TlsConfig,
}

/// Settings of TLS towards clients.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct TlsConfig {
    /// How certificates of clients are verified; clients need none when absent.
    pub validation: Option<CertificateValidation>,
}

/// How certificates of clients are verified.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateValidation {
    /// ConfigMaps with CA certificates.
    #[serde(rename = "caCertificateRefs", deserialize_with = "or_default")]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// `AllowValidOnly` (the default) or `AllowInsecureFallback`.
    pub mode: Option<Box<str>>,
}

impl CertificateValidation {
    /// Whether clients without a valid certificate are accepted.
    #[must_use]
    pub fn allows_insecure_fallback(&self) -> bool {
        self.mode.as_deref() == Some("AllowInsecureFallback")
    }
}

/// A ListenerSet: further listeners of a Gateway.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ListenerSet {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: ListenerSetSpec,
}

/// The spec of a ListenerSet.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    /// Its Gateway.
    #[serde(deserialize_with = "or_default")]
    pub parent_ref: ParentRef,
    /// Its listeners.
    #[serde(deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
}
