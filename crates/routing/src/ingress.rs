//! Ingresses, with the annotations of ingress-nginx.
//!
//! In: Ingresses, IngressClasses, the Services they refer to, and which Secrets have certificates. Out: for each class that
//! is implemented here one virtual gateway with the ports 80 and 443, whose table selects a rule by host and path; and for
//! each Ingress the findings that its owner should see.
//!
//! ```text
//! Ingress ── settings (annotations, catalogue) ──┐
//! Service ── target ─────────────────────────────┼─▶ host: all Ingresses of a host, merged ──▶ table, certificates
//! IngressClass ── classes ───────────────────────┘         └──▶ findings ──▶ Events
//! ```
//! `engine` keeps this up to date at the cost of the hosts that a change affects. A host whose Ingresses use regular
//! expressions is matched as nginx does it, every other one as the Ingress API defines it; `docs/ingress.md` lists the
//! differences to ingress-nginx.

pub mod catalogue;
mod certificates;
mod classes;
pub mod convert;
mod engine;
mod host;
mod reader;
mod settings;
mod table;
mod target;

use std::sync::Arc;
use std::time::Duration;

use api::view::ingress::CONTROLLER;

use crate::model::GatewayConfig;

pub use certificates::ServerCertificates;
pub use engine::{Change, Host, Ingresses, Touched};
pub use table::{Condition, Considered, HeaderTest, IngressTable};

/// Settings of all Ingresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// `spec.controller` of the IngressClasses that are implemented; [`CONTROLLER`] unless Ingresses of another controller
    /// are taken over.
    pub controllers: Vec<Box<str>>,
    /// The namespace of the Services with the addresses of the classes.
    pub namespace: Box<str>,
    /// `namespace/name` of the Secret whose certificate is shown for hosts without one; without it, their handshakes fail.
    pub default_certificate: Option<Arc<str>>,
    /// What holds for Ingresses without the annotation.
    pub defaults: Defaults,
}

/// What holds for Ingresses without the annotation; the default is that of ingress-nginx.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// `ssl-redirect`: hosts with TLS are redirected to it.
    pub ssl_redirect: bool,
    /// `proxy-body-size`.
    pub body_limit: Option<u64>,
    /// `proxy-connect-timeout`.
    pub connect_timeout: Duration,
    /// `proxy-read-timeout`.
    pub read_timeout: Duration,
    /// `proxy-send-timeout`.
    pub send_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: vec![CONTROLLER.into()],
            namespace: "waypost-system".into(),
            default_certificate: None,
            defaults: Defaults::default(),
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            ssl_redirect: true,
            body_limit: Some(1 << 20),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// `namespace/name` of the Service with the addresses of a class.
    #[must_use]
    pub fn service_of(&self, class: &str) -> Arc<str> {
        format!("{}/{}", self.namespace, classes::service_name(class)).into()
    }
}

/// The gateway of all Ingresses of a class.
#[derive(Clone, PartialEq, Debug)]
pub struct VirtualGateway {
    /// The class.
    pub class: Arc<str>,
    /// Its listeners: `http` on port 80, `https` on port 443.
    pub config: Arc<GatewayConfig>,
    /// Which certificate is shown for which server name.
    pub certificates: Arc<ServerCertificates>,
    /// Which rule takes a request, on both ports.
    pub table: IngressTable,
}

/// The state of an Ingress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IngressState {
    /// Its class, if that is implemented here. Without, nothing is written to the Ingress.
    pub class: Option<Arc<str>>,
    /// What its owner should know, in a stable order.
    pub findings: Vec<Finding>,
}

/// What the owner of an Ingress should know; an Event of type `Warning`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The reason, of the Event too.
    pub reason: Reason,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Reason of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// An annotation of ingress-nginx is not honoured.
    AnnotationNotHonoured,
    /// The value of an annotation is not valid; the default holds.
    AnnotationInvalid,
    /// Access was to be restricted in a way that cannot be enforced: all requests fail with 503.
    AccessRefused,
    /// A path cannot be used.
    PathInvalid,
    /// An older Ingress has the same host and path.
    PathConflict,
    /// A backend cannot be used: its requests fail with 500.
    BackendInvalid,
    /// There is no certificate in a Secret: the default certificate is shown.
    CertificateInvalid,
    /// A canary has no Ingress with the same host and path, or there is another canary.
    CanaryIgnored,
    /// An alias, or the other form of a host with `www.`, has an Ingress of its own.
    AliasIgnored,
}

impl Reason {
    /// Its name in an Event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AnnotationNotHonoured => "AnnotationNotHonoured",
            Self::AnnotationInvalid => "AnnotationInvalid",
            Self::AccessRefused => "AccessRefused",
            Self::PathInvalid => "PathInvalid",
            Self::PathConflict => "PathConflict",
            Self::BackendInvalid => "BackendInvalid",
            Self::CertificateInvalid => "CertificateInvalid",
            Self::CanaryIgnored => "CanaryIgnored",
            Self::AliasIgnored => "AliasIgnored",
        }
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
