//! The kinds of the Gateway API, as the CustomResourceDefinitions that the server installs (ADR 0025).
//!
//! In: a release channel. Out: its definitions. Shapes, bounds, defaults and the messages of the rules are those of the upstream
//! definitions of the same bundle version, because clients depend on them; the expressions of the rules and the descriptions are
//! ours. Whether a stored definition is the installed one is decided in [`install`].

mod backend_tls_policy;
mod conditions;
mod definition;
mod external_auth;
mod filter_rules;
mod filters;
mod gateway;
mod gateway_class;
mod gateway_tls;
mod grpc_route;
mod hostnames;
mod http_match;
mod http_route;
pub mod install;
mod listener;
mod listener_set;
mod mesh;
mod persistence;
mod reference_grant;
mod references;
mod route;
mod schema;
mod shapes;
mod stream_routes;
pub mod watched;
mod x_backend;
mod x_backend_traffic_policy;
mod x_telemetry_policy;

#[cfg(test)]
mod tests;

use serde_json::Value;

/// The API group.
pub const GROUP: &str = "gateway.networking.k8s.io";
/// The API group of the experimental kinds.
pub const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";
/// The version of the upstream bundle that the definitions correspond to.
pub const BUNDLE_VERSION: &str = "v1.7.0";

/// A release channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Stable kinds and fields.
    Standard,
    /// Also kinds, versions and fields that may change in any release.
    Experimental,
}

impl Channel {
    /// The name in the annotation `gateway.networking.k8s.io/channel`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }

    fn is_experimental(self) -> bool {
        self == Self::Experimental
    }
}

/// A definition by name, built when it is needed.
pub struct Builder {
    /// The name of the definition.
    pub name: &'static str,
    build: fn(Channel) -> Value,
}

/// The kinds of both channels.
const STANDARD: &[Builder] = &[
    Builder { name: "backendtlspolicies.gateway.networking.k8s.io", build: backend_tls_policy::definition },
    Builder { name: "gatewayclasses.gateway.networking.k8s.io", build: gateway_class::definition },
    Builder { name: "gateways.gateway.networking.k8s.io", build: gateway::definition },
    Builder { name: "grpcroutes.gateway.networking.k8s.io", build: grpc_route::definition },
    Builder { name: "httproutes.gateway.networking.k8s.io", build: http_route::definition },
    Builder { name: "listenersets.gateway.networking.k8s.io", build: listener_set::definition },
    Builder { name: "referencegrants.gateway.networking.k8s.io", build: reference_grant::definition },
    Builder { name: "tcproutes.gateway.networking.k8s.io", build: stream_routes::tcp },
    Builder { name: "tlsroutes.gateway.networking.k8s.io", build: stream_routes::tls },
    Builder { name: "udproutes.gateway.networking.k8s.io", build: stream_routes::udp },
];

/// The kinds of the experimental channel only.
const EXPERIMENTAL: &[Builder] = &[
    Builder { name: "xbackends.gateway.networking.x-k8s.io", build: x_backend::definition },
    Builder {
        name: "xbackendtrafficpolicies.gateway.networking.x-k8s.io",
        build: x_backend_traffic_policy::definition,
    },
    Builder { name: "xmeshes.gateway.networking.x-k8s.io", build: mesh::definition },
    Builder { name: "xtelemetrypolicies.gateway.networking.x-k8s.io", build: x_telemetry_policy::definition },
];

/// The definitions of a channel.
pub fn builders(channel: Channel) -> impl Iterator<Item = &'static Builder> {
    STANDARD.iter().chain(EXPERIMENTAL.iter().filter(move |_| channel.is_experimental()))
}

impl Builder {
    /// The definition, without status.
    #[must_use]
    pub fn definition(&self, channel: Channel) -> Value {
        (self.build)(channel)
    }
}
