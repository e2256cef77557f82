//! Listeners, of Gateways and of ListenerSets: what they are, and their status.

use serde_json::json;

use super::conditions::conditions;
use super::external_auth::listener_filters;
use super::gateway_tls::listener_tls;
use super::schema::{Schema, choice, int32, list, map_list, map_of, object, optional, required, string};
use super::shapes::{group, hostname, kind, port, protocol, section_name};
use super::{Channel, GROUP};

/// The listeners of an object.
pub(super) fn listeners(listener: Schema) -> Schema {
    map_list(&["name"], listener)
        .items(1..=64)
        .rule(
            "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
            "self.all(one, one.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(one.tls) : true)",
        )
        .rule(
            "tls mode must be Terminate for protocol HTTPS",
            "self.all(one, has(one.tls) && one.protocol == 'HTTPS' ? one.tls.mode in ['', 'Terminate'] : true)",
        )
        .rule(
            "tls mode must be set for protocol TLS",
            "self.all(one, one.protocol == 'TLS' ? has(one.tls) && one.tls.?mode.orValue('') != '' : true)",
        )
        .rule(
            "hostname must not be specified for protocols ['TCP', 'UDP']",
            "self.all(one, one.protocol in ['TCP', 'UDP'] ? one.?hostname.orValue('') == '' : true)",
        )
        .rule(
            "Listener name must be unique within the Gateway",
            "self.all(one, self.exists_one(other, other.name == one.name))",
        )
        .rule(
            "Combination of port, protocol and hostname must be unique for each listener",
            "self.all(one, self.exists_one(other, other.port == one.port && other.protocol == one.protocol && \
             (has(one.hostname) ? has(other.hostname) && other.hostname == one.hostname : !has(other.hostname))))",
        )
}

/// One listener.
pub(super) fn listener(channel: Channel) -> Schema {
    object([
        optional("allowedRoutes", "The routes that may attach.", allowed_routes()),
        optional("hostname", "The hosts of the requests that the listener serves; by default all.", hostname()),
        required("name", "The name of the listener.", section_name()),
        required("port", "The port.", port()),
        required("protocol", "HTTP, HTTPS, TLS, TCP, UDP or a protocol of the implementation.", protocol()),
        optional("tls", "How TLS is handled.", listener_tls()),
    ])
    .experimental(channel, |listener| {
        listener.fields([optional("filters", "Applied to the requests of all routes.", listener_filters(channel))])
    })
}

fn allowed_routes() -> Schema {
    object([
        optional("kinds", "The kinds of routes; by default those that fit the protocol.", kinds()),
        optional("namespaces", "The namespaces of the routes.", namespaces(&["All", "Selector", "Same"], "Same")),
    ])
    .default(json!({"namespaces": {"from": "Same"}}))
}

fn kinds() -> Schema {
    let item = object([
        optional("group", "The API group of the kind.", group().default(GROUP)),
        required("kind", "The kind.", kind()),
    ]);
    list(item).max_items(8)
}

/// Which namespaces are meant.
pub(super) fn namespaces(from: &[&str], default: &str) -> Schema {
    object([
        optional("from", "How namespaces are chosen.", choice(from).default(default)),
        optional("selector", "The labels of the namespaces, for Selector.", selector()),
    ])
    .default(json!({"from": default}))
}

fn selector() -> Schema {
    let requirement = object([
        required("key", "The key of the label.", string()),
        required("operator", "In, NotIn, Exists or DoesNotExist.", string()),
        optional("values", "The values, for In and NotIn.", list(string())),
    ]);
    object([
        optional("matchExpressions", "Requirements that all hold.", list(requirement)),
        optional("matchLabels", "Labels with their values.", map_of(string())),
    ])
    .with("x-kubernetes-map-type", "atomic")
}

/// The status of listeners.
pub(super) fn listener_statuses() -> Schema {
    let item = object([
        required("attachedRoutes", "The number of routes that the listener accepted.", int32()),
        required("conditions", "The state of the listener.", conditions()),
        required("name", "The name of the listener.", section_name()),
        optional("supportedKinds", "The kinds of routes that may attach.", kinds()),
    ]);
    map_list(&["name"], item).max_items(64)
}
