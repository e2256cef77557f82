//! Parses the annotations (those of AWS load balancers) that configure the gateway. Pure.
//!
//! In: a Service. Out: for each of its TCP ports that needs the gateway, the protocols towards clients and pods; and a
//! message if the configuration is invalid.
//!
//! | certificate | backend protocol | clients | proxied as | pods |
//! |---|---|---|---|---|
//! | yes | `http`  | TLS   | HTTP | plain |
//! | yes | `https` | TLS   | HTTP | TLS |
//! | yes | `ssl`   | TLS   | TCP  | TLS |
//! | yes | `tcp`, none | TLS | TCP | plain |
//! | yes | other   | error |||
//! | no  | `http`  | plain | HTTP | plain |
//! | no  | other, none | not handled by the gateway |||
//!
//! A port that `ssl-ports` does not list is treated as one without a certificate.

use std::sync::Arc;
use std::time::Duration;

use api::view::Service;
/// [`SSL_CERT`] is an ARN, which a Secret must claim, or `secret://namespace/name`.
pub use api::view::annotations::{BACKEND_PROTOCOL, PROXY_PROTOCOL, SSL_CERT, SSL_PORTS};

/// Idle timeout in seconds.
pub const IDLE_TIMEOUT: &str = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout";
/// Common part of the annotation keys: a Service whose JSON does not contain it is not parsed.
pub const HINT: &[u8] = b"aws-load-balancer-";

/// Values of `appProtocol` for HTTP/2 with prior knowledge.
const H2_APP_PROTOCOLS: [&str; 3] = ["kubernetes.io/h2c", "grpc", "kubernetes.io/grpc"];
/// Maximum idle timeout in seconds.
const MAX_IDLE: u64 = 4000;

/// Protocol towards clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClientProtocol {
    /// TLS with the certificate of the Service.
    Tls,
    /// Plain TCP.
    Plain,
}

/// How a port is proxied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// HTTP requests.
    Http,
    /// TCP streams.
    Tcp,
}

/// Protocol towards pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BackendProtocol {
    /// Plain TCP.
    Plain,
    /// TLS without certificate verification.
    Tls,
}

/// Port that the gateway serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// Port name in the Service.
    pub name: Arc<str>,
    /// Port number in the Service.
    pub number: u16,
    /// Protocol towards clients.
    pub front: ClientProtocol,
    /// How it is proxied.
    pub mode: Mode,
    /// Protocol towards pods.
    pub back: BackendProtocol,
    /// Whether pods use HTTP/2 with prior knowledge.
    pub h2: bool,
    /// Whether a PROXY protocol header is sent to pods.
    pub proxy_protocol: bool,
    /// Idle timeout, if configured.
    pub idle: Option<Duration>,
}

/// Gateway configuration of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewaySpec {
    /// Ports that the proxy must not forward to pods directly.
    pub ports: Vec<Port>,
    /// Certificate reference.
    pub certificate: Option<Arc<str>>,
    /// Why none of the ports can be served.
    pub refused: Option<String>,
    /// Annotations that were ignored.
    pub warnings: Vec<String>,
}

/// Parses the annotations of a Service. Empty if its load balancer is not ours, and for the Service of a Gateway, whose
/// listeners the Gateway configures.
#[must_use]
pub fn gateway_spec(service: &Service) -> GatewaySpec {
    let mut gateway_spec = GatewaySpec::default();
    if !service.has_own_load_balancer() || service.gateway().is_some() {
        return gateway_spec;
    }
    let protocol = service.metadata.annotation(BACKEND_PROTOCOL).map(str::to_ascii_lowercase);
    let certificate = service.metadata.annotation(SSL_CERT);
    let proxy_protocol = match service.metadata.annotation(PROXY_PROTOCOL) {
        Some("*") => true,
        Some(other) => {
            gateway_spec.warnings.push(format!("annotation {PROXY_PROTOCOL} is `{other}`; only `*` has an effect"));
            false
        }
        None => false,
    };
    let idle = idle(service, &mut gateway_spec.warnings);
    for port in service.spec.ports.iter().filter(|port| service.uses_gateway(port)) {
        let (front, mode, back) = match (service.has_tls(port), protocol.as_deref()) {
            (true, Some("http")) => (ClientProtocol::Tls, Mode::Http, BackendProtocol::Plain),
            (true, Some("https")) => (ClientProtocol::Tls, Mode::Http, BackendProtocol::Tls),
            (true, Some("ssl")) => (ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Tls),
            (true, Some("tcp") | None) => (ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Plain),
            (true, Some(other)) => {
                let why = format!(
                    "annotation {BACKEND_PROTOCOL} is `{other}`, which must be http, https, ssl or tcp; its load \
                     balancer is disabled until it is"
                );
                gateway_spec.refused = Some(why);
                (ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Plain)
            }
            (false, Some("http")) => (ClientProtocol::Plain, Mode::Http, BackendProtocol::Plain),
            (false, _) => (ClientProtocol::Plain, Mode::Tcp, BackendProtocol::Plain),
        };
        gateway_spec.ports.push(Port {
            name: (&*port.name).into(),
            number: port.port,
            front,
            mode,
            back,
            h2: port.app_protocol.as_deref().is_some_and(|spoken| H2_APP_PROTOCOLS.contains(&spoken)),
            proxy_protocol: proxy_protocol && mode == Mode::Tcp,
            idle,
        });
    }
    gateway_spec.certificate =
        certificate.filter(|_| gateway_spec.ports.iter().any(|port| port.front == ClientProtocol::Tls)).map(Into::into);
    gateway_spec
}

fn idle(service: &Service, warnings: &mut Vec<String>) -> Option<Duration> {
    let text = service.metadata.annotation(IDLE_TIMEOUT)?;
    match text.parse::<u64>() {
        Ok(seconds @ 1..=MAX_IDLE) => Some(Duration::from_secs(seconds)),
        _ => {
            warnings.push(format!("annotation {IDLE_TIMEOUT} is `{text}`, which must be 1 to {MAX_IDLE} seconds"));
            None
        }
    }
}

#[cfg(test)]
mod tests;
