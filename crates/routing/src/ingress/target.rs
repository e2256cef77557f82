//! Where the requests of a path go: the backend of an Ingress as a target.

use std::sync::Arc;

use api::view::ingress::{IngressBackend, IngressPort};
use api::view::service::ServicePort;
use api::view::{Protocol as Transport, Service};

use super::settings::Protocol;
use crate::model::{BackendProtocol, BackendTls, InvalidTarget, ServiceTarget, Target};

/// The protocol of a port that speaks HTTP/2 without TLS.
const H2C: &str = "kubernetes.io/h2c";

/// `namespace/name` of the Service of a backend.
pub(super) fn service_key(namespace: &str, backend: &IngressBackend) -> Option<Arc<str>> {
    backend.service.as_ref().map(|service| format!("{namespace}/{}", service.name).into())
}

/// The target of a backend, and what is wrong with it.
pub(super) fn resolve(
    namespace: &str,
    backend: &IngressBackend,
    protocol: Option<Protocol>,
    service: Option<&Service>,
) -> (Target, Option<String>) {
    let invalid = |why, message: String| (Target::Invalid(why), Some(message));
    let (Some(wanted), Some(key)) = (&backend.service, service_key(namespace, backend)) else {
        let kind = backend.resource.as_ref().map_or("nothing", |resource| &*resource.kind);
        return invalid(InvalidTarget::InvalidKind, format!("the backend is {kind}; only a Service can be a backend"));
    };
    let Some(service) = service else {
        return invalid(InvalidTarget::BackendNotFound, format!("there is no Service {key}"));
    };
    if service.is_external_name() {
        return invalid(
            InvalidTarget::BackendNotFound,
            format!("Service {key} is of type ExternalName, which has no endpoints"),
        );
    }
    let Some(port) = find_port(service, &wanted.port) else {
        return invalid(InvalidTarget::BackendNotFound, format!("Service {key} has no port {}", text(&wanted.port)));
    };
    if port.protocol != Some(Transport::Tcp) {
        return invalid(
            InvalidTarget::UnsupportedProtocol,
            format!("port {} of Service {key} is not TCP", text(&wanted.port)),
        );
    }
    let is_http2 = protocol.map_or(port.app_protocol.as_deref() == Some(H2C), |protocol| protocol.is_http2);
    let is_tls = protocol.is_some_and(|protocol| protocol.is_tls);
    let target = ServiceTarget {
        service: key,
        port: port.port,
        port_name: port.name.as_ref().into(),
        protocol: if is_http2 { BackendProtocol::Http2 } else { BackendProtocol::Http1 },
        tls: is_tls.then(|| Arc::new(unverified())),
    };
    (Target::Service(Arc::new(target)), None)
}

/// TLS as nginx has it by default: no server name, no verification.
fn unverified() -> BackendTls {
    BackendTls { hostname: "".into(), authorities: Vec::new(), subject_alt_names: Vec::new(), verify: false }
}

fn find_port<'a>(service: &'a Service, wanted: &IngressPort) -> Option<&'a ServicePort> {
    let is = |port: &&ServicePort| match &*wanted.name {
        "" => port.port == wanted.number,
        name => *port.name == *name,
    };
    // A number may be used for TCP and UDP.
    let mut ports = service.spec.ports.iter().filter(is);
    let first = ports.next();
    first.filter(|port| port.is_tcp()).or_else(|| ports.find(|port| port.is_tcp())).or(first)
}

fn text(port: &IngressPort) -> String {
    if port.name.is_empty() { port.number.to_string() } else { format!("`{}`", port.name) }
}
