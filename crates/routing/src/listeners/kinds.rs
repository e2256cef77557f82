//! The protocols of listeners and the kinds of routes that they take.

use api::view::gateway_api::{GROUP, Listener, TlsMode};

use crate::model::{ListenerProtocol, RouteKind};

/// What a listener does with a connection; none for a protocol or a mode that is not supported.
pub(crate) fn protocol(listener: &Listener) -> Option<ListenerProtocol> {
    let mode = listener.tls.as_ref().map_or(TlsMode::Terminate, |tls| tls.mode);
    match (&*listener.protocol, mode) {
        ("HTTP", _) => Some(ListenerProtocol::Http),
        ("HTTPS", TlsMode::Terminate) => Some(ListenerProtocol::Https),
        ("TLS", TlsMode::Terminate) => Some(ListenerProtocol::TlsTerminate),
        ("TLS", TlsMode::Passthrough) => Some(ListenerProtocol::TlsPassthrough),
        ("TCP", _) => Some(ListenerProtocol::Tcp),
        ("UDP", _) => Some(ListenerProtocol::Udp),
        _ => None,
    }
}

/// The kinds of routes that a listener takes.
pub(crate) struct Supported {
    pub(crate) kinds: Vec<RouteKind>,
    /// The first of `allowedRoutes.kinds` that does not fit the protocol, or is unknown.
    pub(crate) misfit: Option<String>,
}

/// The kinds of routes that a listener takes: those of its protocol, or those of them that it lists.
pub(crate) fn supported(listener: &Listener) -> Supported {
    let fitting = of_protocol(&listener.protocol);
    let listed = &listener.allowed_routes.kinds;
    if listed.is_empty() {
        return Supported { kinds: fitting.to_vec(), misfit: None };
    }
    let mut supported = Supported { kinds: Vec::new(), misfit: None };
    for entry in listed {
        let group = entry.group.as_deref().unwrap_or(GROUP);
        let kind = RouteKind::named(&entry.kind).filter(|kind| group == GROUP && fitting.contains(kind));
        match kind {
            Some(kind) if supported.kinds.contains(&kind) => {}
            Some(kind) => supported.kinds.push(kind),
            None => {
                supported.misfit.get_or_insert_with(|| format!("{}/{}", group, entry.kind));
            }
        }
    }
    supported
}

fn of_protocol(protocol: &str) -> &'static [RouteKind] {
    match protocol {
        "HTTP" | "HTTPS" => &[RouteKind::Http, RouteKind::Grpc],
        "TLS" => &[RouteKind::Tls],
        "TCP" => &[RouteKind::Tcp],
        "UDP" => &[RouteKind::Udp],
        _ => &[],
    }
}
