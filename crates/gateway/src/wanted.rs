//! What a Service asks of the gateway, by the annotations that AWS made known. Pure.
//!
//! In: a Service. Out: for each of its TCP ports that needs more than packets, how clients speak to it, how much of that is
//! understood, and how its pods are spoken to; and a sentence when it cannot be had.
//!
//! | certificate | backend protocol | clients speak | understood | pods are spoken to |
//! |---|---|---|---|---|
//! | yes | `http`  | TLS   | requests | plainly |
//! | yes | `https` | TLS   | requests | by TLS |
//! | yes | `ssl`   | TLS   | bytes    | by TLS |
//! | yes | `tcp`, none | TLS | bytes  | plainly |
//! | yes | other   | nothing: an error |||
//! | no  | `http`  | plainly | requests | plainly |
//! | no  | other, none | the port stays with the proxy, which knows only packets |||
//!
//! A port that `ssl-ports` does not name is as one without a certificate.

use std::sync::Arc;
use std::time::Duration;

use api::view::Service;
/// [`SSL_CERT`] is an ARN, which a Secret must claim, or `secret://namespace/name`; [`BACKEND_PROTOCOL`] what pods speak.
pub use api::view::annotations::{BACKEND_PROTOCOL, SSL_CERT};
use api::view::service::{CLASSES, ServicePort};

/// Which ports have it, by number or name; `*`, and nothing, is all.
pub const SSL_PORTS: &str = "service.beta.kubernetes.io/aws-load-balancer-ssl-ports";
/// `*`: pods are told by a line before everything else who the client is.
pub const PROXY_PROTOCOL: &str = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol";
/// After how many silent seconds a connection ends.
pub const IDLE_TIMEOUT: &str = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout";
/// What all of them begin with: a Service whose JSON does not hold this needs no closer look.
pub const HINT: &[u8] = b"aws-load-balancer-";

/// Values of `appProtocol` by which pods speak HTTP/2 without being asked.
const SPEAKS_H2: [&str; 3] = ["kubernetes.io/h2c", "grpc", "kubernetes.io/grpc"];
/// The longest silence that can be asked for, in seconds.
const LONGEST_IDLE: u64 = 4000;

/// How clients speak to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Front {
    /// By TLS, with the certificate of the Service.
    Tls,
    /// Plainly.
    Plain,
}

/// What is understood of that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Requests.
    Http,
    /// Nothing: bytes.
    Bytes,
}

/// How pods are spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Back {
    /// Plainly.
    Plain,
    /// By TLS, whatever certificate they have.
    Tls,
}

/// A port that the gateway serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// Its name in the Service.
    pub name: Arc<str>,
    /// Its number in the Service.
    pub number: u16,
    /// How clients speak to it.
    pub front: Front,
    /// What is understood of that.
    pub mode: Mode,
    /// How pods are spoken to.
    pub back: Back,
    /// Whether pods speak HTTP/2 without being asked.
    pub h2: bool,
    /// Whether pods are told first who the client is.
    pub proxy_protocol: bool,
    /// After how much silence connections end, when that was said.
    pub idle: Option<Duration>,
}

/// What a Service asks of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Its ports that the proxy must not lead to pods by itself.
    pub ports: Vec<Port>,
    /// The name of its certificate.
    pub certificate: Option<Arc<str>>,
    /// Why none of them can be served.
    pub refused: Option<String>,
    /// What was left out of account.
    pub warnings: Vec<String>,
}

/// Reads the annotations of a Service. One whose load balancer is not ours asks for nothing.
#[must_use]
pub fn wanted(service: &Service) -> Wanted {
    let mut wanted = Wanted::default();
    if !is_ours(service) {
        return wanted;
    }
    let protocol = service.metadata.annotation(BACKEND_PROTOCOL).map(str::to_ascii_lowercase);
    let certificate = service.metadata.annotation(SSL_CERT);
    let proxy_protocol = match service.metadata.annotation(PROXY_PROTOCOL) {
        Some("*") => true,
        Some(other) => {
            wanted.warnings.push(format!("annotation {PROXY_PROTOCOL} is `{other}`; only `*` has an effect"));
            false
        }
        None => false,
    };
    let idle = idle(service, &mut wanted.warnings);
    for port in service.spec.ports.iter().filter(|port| port.is_tcp() && port.port > 0) {
        let has_tls = certificate.is_some() && names(service.metadata.annotation(SSL_PORTS), port);
        let (front, mode, back) = match (has_tls, protocol.as_deref()) {
            (true, Some("http")) => (Front::Tls, Mode::Http, Back::Plain),
            (true, Some("https")) => (Front::Tls, Mode::Http, Back::Tls),
            (true, Some("ssl")) => (Front::Tls, Mode::Bytes, Back::Tls),
            (true, Some("tcp") | None) => (Front::Tls, Mode::Bytes, Back::Plain),
            (true, Some(other)) => {
                let why = format!(
                    "annotation {BACKEND_PROTOCOL} is `{other}`, which must be http, https, ssl or tcp; its load \
                     balancer is closed until it is"
                );
                wanted.refused = Some(why);
                (Front::Tls, Mode::Bytes, Back::Plain)
            }
            (false, Some("http")) => (Front::Plain, Mode::Http, Back::Plain),
            (false, _) if proxy_protocol => (Front::Plain, Mode::Bytes, Back::Plain),
            (false, _) => continue,
        };
        wanted.ports.push(Port {
            name: (&*port.name).into(),
            number: port.port,
            front,
            mode,
            back,
            h2: port.app_protocol.as_deref().is_some_and(|spoken| SPEAKS_H2.contains(&spoken)),
            proxy_protocol: proxy_protocol && mode == Mode::Bytes,
            idle,
        });
    }
    wanted.certificate =
        certificate.filter(|_| wanted.ports.iter().any(|port| port.front == Front::Tls)).map(Into::into);
    wanted
}

/// Whether its load balancer is ours to be.
fn is_ours(service: &Service) -> bool {
    service.is_load_balancer()
        && service.spec.load_balancer_class.as_deref().is_none_or(|class| CLASSES.contains(&class))
        && service.proxy_name().is_none()
}

/// Whether a list of ports names this one.
fn names(list: Option<&str>, port: &ServicePort) -> bool {
    let Some(list) = list.filter(|list| *list != "*") else { return true };
    list.split(',').map(str::trim).any(|word| match word.parse::<u16>() {
        Ok(number) => number == port.port,
        Err(_) => !word.is_empty() && word.eq_ignore_ascii_case(&port.name),
    })
}

fn idle(service: &Service, warnings: &mut Vec<String>) -> Option<Duration> {
    let text = service.metadata.annotation(IDLE_TIMEOUT)?;
    match text.parse::<u64>() {
        Ok(seconds @ 1..=LONGEST_IDLE) => Some(Duration::from_secs(seconds)),
        _ => {
            warnings.push(format!("annotation {IDLE_TIMEOUT} is `{text}`, which must be 1 to {LONGEST_IDLE} seconds"));
            None
        }
    }
}

#[cfg(test)]
mod tests;
