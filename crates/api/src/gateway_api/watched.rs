//! The kinds as far as clients need them to watch objects: names and tables, without rules. The server has the kinds of
//! the installed definitions instead.

use serde_json::Value;

use super::GROUP;
use crate::field::Errors;
use crate::kind::{Kind, Rules};
use crate::table::PLAIN;

/// Objects are only read.
struct NoRules;

impl Rules for NoRules {
    fn validate_create(&self, _: &Value, _: &mut Errors) {}

    fn validate_update(&self, _: &Value, _: &Value, _: &mut Errors) {}
}

const fn kind(kind: &'static str, plural: &'static str, singular: &'static str, table: &'static str) -> Kind {
    Kind {
        group: GROUP,
        version: "v1",
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: true,
        table,
        generation: true,
        table_view: &PLAIN,
        ..Kind::common(&NoRules)
    }
}

macro_rules! kinds {
    ($($name:ident: $kind:literal, $plural:literal, $singular:literal;)*) => {
        $(
            #[doc = concat!("`", $kind, "`.")]
            pub static $name: Kind =
                kind($kind, $plural, $singular, concat!("gateway.networking.k8s.io/", $plural));
        )*
    };
}

kinds! {
    GATEWAY: "Gateway", "gateways", "gateway";
    LISTENER_SET: "ListenerSet", "listenersets", "listenerset";
    HTTP_ROUTE: "HTTPRoute", "httproutes", "httproute";
    GRPC_ROUTE: "GRPCRoute", "grpcroutes", "grpcroute";
    TLS_ROUTE: "TLSRoute", "tlsroutes", "tlsroute";
    TCP_ROUTE: "TCPRoute", "tcproutes", "tcproute";
    UDP_ROUTE: "UDPRoute", "udproutes", "udproute";
    BACKEND_TLS_POLICY: "BackendTLSPolicy", "backendtlspolicies", "backendtlspolicy";
}

/// `GatewayClass`.
pub static GATEWAY_CLASS: Kind = Kind {
    namespaced: false,
    ..kind("GatewayClass", "gatewayclasses", "gatewayclass", "gateway.networking.k8s.io/gatewayclasses")
};

/// `ReferenceGrant`, in the version that every release serves.
pub static REFERENCE_GRANT: Kind = Kind {
    version: "v1beta1",
    ..kind("ReferenceGrant", "referencegrants", "referencegrant", "gateway.networking.k8s.io/referencegrants")
};
