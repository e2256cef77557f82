//! TLS of listeners, of a Gateway's clients and of its backends.

use super::Channel;
use super::references::{global, secret};
use super::schema::{Schema, choice, list, map_list, map_of, object, optional, required};
use super::shapes::{long_value, port};

/// TLS of a listener.
pub(super) fn listener_tls() -> Schema {
    let modes = choice(&["Terminate", "Passthrough"]).default("Terminate");
    object([
        optional("certificateRefs", "The Secrets with the certificates.", list(secret()).max_items(64)),
        optional("mode", "Whether TLS ends at the Gateway or at the backend.", modes),
        optional("options", "Settings of the implementation.", map_of(long_value()).max_keys(16)),
    ])
    .rule(
        "certificateRefs or options must be specified when mode is Terminate",
        "self.mode != 'Terminate' || size(self.certificateRefs) > 0 || size(self.options) > 0",
    )
}

/// TLS of a Gateway.
pub(super) fn gateway_tls(channel: Channel) -> Schema {
    let backend = object([optional("clientCertificateRef", "The certificate shown to backends.", secret())]);
    let of_port = object([
        required("port", "The port.", port()),
        required("tls", "Settings for the listeners of this port.", frontend(channel)),
    ]);
    let ports = map_list(&["port"], of_port).max_items(64).rule(
        "Port for TLS configuration must be unique within the Gateway",
        "self.all(one, self.exists_one(other, other.port == one.port))",
    );
    let frontend = object([
        required("default", "Settings for all listeners.", frontend(channel)),
        optional("perPort", "Settings for single ports instead.", ports),
    ]);
    object([optional("backend", "TLS to backends.", backend), optional("frontend", "TLS of clients.", frontend)])
}

fn frontend(channel: Channel) -> Schema {
    let authorities = list(global()).items(1..=16).experimental(channel, |list| {
        list.rule(
            "ClusterTrustBundle references must not specify namespace",
            "!self.exists(one, one.group == 'certificates.k8s.io' && one.kind == 'ClusterTrustBundle' && \
             has(one.namespace))",
        )
    });
    let modes = choice(&["AllowValidOnly", "AllowInsecureFallback"]).default("AllowValidOnly");
    let validation = object([
        required("caCertificateRefs", "The certificate authorities of clients.", authorities),
        optional("mode", "What happens to clients without a valid certificate.", modes),
    ]);
    object([optional("validation", "How certificates of clients are verified.", validation)])
}
