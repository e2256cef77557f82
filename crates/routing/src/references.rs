//! References to backends: which Service port one leads to, how to talk to it, or why it leads nowhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::view::gateway_api::{BackendRef, Filter, FilterKind, GROUP, ObjectRef};
use api::view::service::ServicePort;
use api::view::{Protocol, Service};

use crate::cluster::{Reader, Verdict};
use crate::model::{Backend, BackendProtocol, InvalidTarget, RouteKind, ServiceTarget, Target};
use crate::policies;

/// Why objects of a kind in a namespace may not refer to an object in another one, in a sentence: that of conditions and of
/// the diagnosis.
#[must_use]
pub fn not_permitted((from, namespace): (&str, &str), (to, key): (&str, &str)) -> String {
    format!(
        "{to} {key} is in another namespace, and no ReferenceGrant there permits {from}s of namespace {namespace} to refer \
         to it"
    )
}

/// What holds for the references of a route at parents of one sort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Whether BackendTLSPolicies apply.
    pub(crate) tls_policies: bool,
    /// Whether references to other namespaces need a ReferenceGrant.
    pub(crate) grants: bool,
}

/// Resolves the references of one route, and keeps what was wrong with them.
pub(crate) struct Resolver<'r, 'a> {
    reader: &'r Reader<'a>,
    kind: RouteKind,
    namespace: &'r str,
    terms: Terms,
    /// The Services that permitted references name.
    pub(crate) services: BTreeSet<Arc<str>>,
    problems: Vec<(InvalidTarget, String)>,
}

impl<'r, 'a> Resolver<'r, 'a> {
    pub(crate) fn new(reader: &'r Reader<'a>, kind: RouteKind, namespace: &'r str, terms: Terms) -> Self {
        Self { reader, kind, namespace, terms, services: BTreeSet::new(), problems: Vec::new() }
    }

    /// The backends of a rule.
    pub(crate) fn backends(&mut self, references: &[BackendRef]) -> Vec<Backend> {
        let backend = |reference: &BackendRef| Backend {
            weight: reference.weight,
            target: self.target(&reference.object),
            filters: reference.filters.clone(),
            mirrors: self.mirrors(&reference.filters),
            policy: None,
        };
        references.iter().map(backend).collect()
    }

    /// The backends of the mirrors among filters, in their order.
    pub(crate) fn mirrors(&mut self, filters: &[Filter]) -> Vec<Target> {
        let mirrors = filters.iter().filter(|filter| filter.kind == FilterKind::RequestMirror);
        mirrors
            .map(|filter| match &filter.request_mirror {
                Some(mirror) => self.target(&mirror.backend_ref.object),
                None => Target::Invalid(InvalidTarget::BackendNotFound),
            })
            .collect()
    }

    /// Keeps a reference to an object of a kind that cannot be resolved, such as a filter of another API.
    pub(crate) fn unknown_kind(&mut self, reference: &ObjectRef) {
        let kind = reference.kind_or("");
        let message = format!("Kind {}/{kind} of \"{}\" is not supported", reference.group(), reference.name);
        self.problems.push((InvalidTarget::InvalidKind, message));
    }

    /// Condition `ResolvedRefs`: of several problems the gravest.
    pub(crate) fn verdict(&self) -> Verdict {
        let Some((problem, message)) = self.problems.iter().min_by_key(|(problem, _)| *problem) else {
            return Verdict::good("ResolvedRefs", "All references are resolved");
        };
        let others = self.problems.len() - 1;
        let message = if others == 0 { message.clone() } else { format!("{message} (and {others} more)") };
        Verdict::bad(reason(*problem), message)
    }

    fn target(&mut self, reference: &ObjectRef) -> Target {
        match self.resolve(reference) {
            Ok(target) => Target::Service(Arc::new(target)),
            Err((problem, message)) => {
                if problem != InvalidTarget::InvalidTlsPolicy {
                    self.problems.push((problem, message));
                }
                Target::Invalid(problem)
            }
        }
    }

    fn resolve(&mut self, reference: &ObjectRef) -> Result<ServiceTarget, (InvalidTarget, String)> {
        let (group, kind) = (reference.group(), reference.kind_or("Service"));
        if !group.is_empty() || kind != "Service" {
            let message = format!("Kind {group}/{kind} of backend \"{}\" is not supported", reference.name);
            return Err((InvalidTarget::InvalidKind, message));
        }
        let key: Arc<str> = reference.key(self.namespace).into();
        let is_permitted = || self.reader.permits((GROUP, self.kind.name(), self.namespace), ("", "Service", &key));
        if self.terms.grants && !is_permitted() {
            let message = not_permitted((self.kind.name(), self.namespace), ("Service", &key));
            return Err((InvalidTarget::RefNotPermitted, message));
        }
        self.services.insert(Arc::clone(&key));
        let missing = |what: String| (InvalidTarget::BackendNotFound, what);
        let service = self.reader.service(&key).ok_or_else(|| missing(format!("Service \"{key}\" does not exist")))?;
        if service.is_external_name() {
            let message = format!("Service \"{key}\" is of type ExternalName, which cannot be a backend");
            return Err((InvalidTarget::InvalidKind, message));
        }
        let port = self.port(service, reference.port).ok_or_else(|| {
            let port = reference.port.map_or_else(|| "without number".to_owned(), |port| port.to_string());
            missing(format!("Service \"{key}\" has no {} port {port}", self.protocol()))
        })?;
        self.service_target(key, port)
    }

    fn service_target(&self, key: Arc<str>, port: &ServicePort) -> Result<ServiceTarget, (InvalidTarget, String)> {
        let tls = if self.terms.tls_policies { policies::tls_for(self.reader, &key, &port.name) } else { Ok(None) };
        let tls = tls.map_err(|()| {
            (InvalidTarget::InvalidTlsPolicy, format!("The BackendTLSPolicy of Service \"{key}\" is not valid"))
        })?;
        let app = port.app_protocol.as_deref().unwrap_or_default();
        let protocol = backend_protocol(self.kind, app, tls.is_some()).ok_or_else(|| {
            let message = format!("Port {} of Service \"{key}\" has appProtocol \"{app}\"", port.port);
            (InvalidTarget::UnsupportedProtocol, message)
        })?;
        Ok(ServiceTarget { service: key, port: port.port, port_name: (&*port.name).into(), protocol, tls })
    }

    fn port<'s>(&self, service: &'s Service, number: Option<u16>) -> Option<&'s ServicePort> {
        let number = number?;
        service.spec.ports.iter().find(|port| port.port == number && port.protocol == Some(self.protocol()))
    }

    const fn protocol(&self) -> Protocol {
        match self.kind {
            RouteKind::Udp => Protocol::Udp,
            _ => Protocol::Tcp,
        }
    }
}

const fn reason(problem: InvalidTarget) -> &'static str {
    match problem {
        InvalidTarget::InvalidKind => "InvalidKind",
        InvalidTarget::RefNotPermitted => "RefNotPermitted",
        InvalidTarget::BackendNotFound => "BackendNotFound",
        InvalidTarget::UnsupportedProtocol | InvalidTarget::InvalidTlsPolicy => "UnsupportedProtocol",
    }
}

/// The protocol towards a port with this `appProtocol`; none when routes of the kind cannot use it. `https` and `wss` need
/// a BackendTLSPolicy, because without one there is no name to verify.
pub(crate) fn backend_protocol(kind: RouteKind, app: &str, has_tls: bool) -> Option<BackendProtocol> {
    let app = app.to_ascii_lowercase();
    let is_h2 = matches!(&*app, "kubernetes.io/h2c" | "h2c" | "http2" | "h2" | "grpc");
    match kind {
        RouteKind::Udp => Some(BackendProtocol::Datagram),
        RouteKind::Tls | RouteKind::Tcp => Some(BackendProtocol::Stream),
        _ if matches!(&*app, "tcp" | "udp" | "tls") => None,
        RouteKind::Grpc => match &*app {
            "kubernetes.io/ws" | "kubernetes.io/wss" => None,
            "https" | "grpcs" if !has_tls => None,
            other if other.starts_with("kubernetes.io/") && !is_h2 => None,
            _ => Some(BackendProtocol::Http2),
        },
        RouteKind::Http | RouteKind::Ingress => match &*app {
            "kubernetes.io/ws" => Some(BackendProtocol::Http1),
            "kubernetes.io/wss" | "https" if !has_tls => None,
            "kubernetes.io/wss" => Some(BackendProtocol::Http1),
            _ if is_h2 => Some(BackendProtocol::Http2),
            other if other.starts_with("kubernetes.io/") => None,
            _ => Some(BackendProtocol::Http1),
        },
    }
}
