//! What the application protocol of a Service port says about serving it at layer 7.

use crate::model::RouteKind;
use crate::references::backend_protocol;

/// Whether a port with this `appProtocol` is served at layer 7 once its Service opts in: HTTP or gRPC without TLS, which
/// does not end here.
#[must_use]
pub fn is_layer_7(app_protocol: &str) -> bool {
    let known = ["http", "http2", "kubernetes.io/h2c", "kubernetes.io/ws", "grpc"];
    known.iter().any(|one| app_protocol.eq_ignore_ascii_case(one))
}

/// Whether clients of a port with this `appProtocol` use TLS.
#[must_use]
pub fn is_tls(app_protocol: &str) -> bool {
    let known = ["https", "wss", "kubernetes.io/wss", "grpcs", "tls"];
    known.iter().any(|one| app_protocol.eq_ignore_ascii_case(one))
}

/// Whether a port with this `appProtocol` (empty for none) takes routes of a kind.
pub(super) fn takes(app_protocol: &str, kind: RouteKind) -> bool {
    match kind {
        RouteKind::Http | RouteKind::Grpc => {
            !is_tls(app_protocol) && backend_protocol(kind, app_protocol, false).is_some()
        }
        RouteKind::Tls => !is_layer_7(app_protocol),
        RouteKind::Tcp => true,
        RouteKind::Udp | RouteKind::Ingress => false,
    }
}

#[cfg(test)]
mod tests {
    use RouteKind::{Grpc, Http, Tcp, Tls, Udp};

    use super::*;

    #[test]
    fn the_application_protocol_says_which_kinds_a_port_takes() {
        let table: [(&str, &[RouteKind], bool); 11] = [
            ("", &[Http, Grpc, Tls, Tcp], false),
            ("http", &[Http, Grpc, Tcp], true),
            ("HTTP2", &[Http, Grpc, Tcp], true),
            ("kubernetes.io/h2c", &[Http, Grpc, Tcp], true),
            ("kubernetes.io/ws", &[Http, Tcp], true),
            ("grpc", &[Http, Grpc, Tcp], true),
            ("https", &[Tls, Tcp], false),
            ("grpcs", &[Tls, Tcp], false),
            ("kubernetes.io/wss", &[Tls, Tcp], false),
            ("tcp", &[Tls, Tcp], false),
            ("example.com/own", &[Http, Grpc, Tls, Tcp], false),
        ];
        for (app, kinds, opted) in table {
            let found: Vec<_> = [Http, Grpc, Tls, Tcp, Udp].into_iter().filter(|kind| takes(app, *kind)).collect();
            assert_eq!((&*found, is_layer_7(app)), (kinds, opted), "{app}");
        }
    }
}
