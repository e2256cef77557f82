//! XBackend: a backend outside of the cluster, or chosen by labels (experimental).

use serde_json::{Value, json};

use super::Channel;
use super::backend_tls_policy::validation;
use super::conditions::unbounded_conditions;
use super::definition::{Names, Version, age, definition as define, root};
use super::persistence::session_persistence;
use super::references::{parent, secret};
use super::schema::{Schema, choice, list, map_of, object, optional, required};
use super::shapes::{controller_name, label_value, port, precise_hostname};

pub(super) fn definition(channel: Channel) -> Value {
    let names = Names { short: Some("xbackend"), is_experimental: true, ..Names::namespaced("XBackend", "xbackends") };
    let schema = root("XBackend describes a destination of requests.", spec(), Some(status()));
    define(channel, &names, [Version::stored("v1alpha1", json!([age()]), schema)])
}

fn spec() -> Schema {
    let host = precise_hostname()
        .rule("hostname must not be an IP address or end with .cluster.local", "!self.endsWith('.cluster.local')");
    let external = object([required("hostname", "The DNS name.", host)]);
    let port = object([optional("number", "The number of the port.", port())]).with("minProperties", 1);
    let protocols = choice(&["TCP", "HTTP", "HTTP2", "HTTP11", "H2C", "MCP", "GRPC", "WSS"]);
    object([
        optional("endpointSelector", "The Pods, for the type EndpointSelector.", endpoint_selector()),
        optional("externalHostname", "The host, for the type ExternalHostname.", external),
        required("port", "The port.", port),
        optional("protocol", "The protocol of the backend.", protocols),
        optional("sessionPersistence", "How clients stay at one endpoint.", session_persistence()),
        optional("tls", "TLS to the backend.", tls()),
        required("type", "What the backend is.", choice(&["ExternalHostname", "EndpointSelector"])),
    ])
    .rules([
        only_with_type("externalHostname", "ExternalHostname"),
        only_with_type("endpointSelector", "EndpointSelector"),
    ])
    .rule(
        "tls must be disabled when protocol is H2C, use protocol HTTP2 for HTTP/2 with tls",
        "self.?protocol.orValue('') != 'H2C' || !has(self.tls) || self.tls.mode == 'None'",
    )
    .rule(
        "tls must be enabled when protocol is HTTP2, use protocol H2C for HTTP/2 without tls",
        "self.?protocol.orValue('') != 'HTTP2' || (has(self.tls) && self.tls.mode != 'None')",
    )
    .rule(
        "tls must be enabled when protocol is WSS",
        "self.?protocol.orValue('') != 'WSS' || (has(self.tls) && self.tls.mode != 'None')",
    )
    .rule(
        "sessionPersistence can only be set when type is EndpointSelector",
        "!has(self.sessionPersistence) || self.type == 'EndpointSelector'",
    )
}

fn only_with_type(field: &str, kind: &str) -> (String, String) {
    (
        format!("{field} must be set when type is {kind} and must be unset otherwise"),
        format!("has(self.{field}) == (self.type == '{kind}')"),
    )
}

fn endpoint_selector() -> Schema {
    let labels = map_of(label_value()).max_keys(64).with("minProperties", 1).rule(
        "Label keys must be in the form of an optional DNS subdomain prefix not longer than 253 characters followed by a \
         required name segment of up to 63 characters.",
        "!self.exists(key, format.qualifiedName().validate(key).hasValue())",
    );
    object([required("matchLabels", "Labels of the Pods, with their values.", labels)])
}

fn tls() -> Schema {
    object([
        optional("clientCertificateRef", "The certificate of the Gateway.", secret()),
        required("mode", "Who shows a certificate.", choice(&["None", "ServerOnly", "ClientAndServer"])),
        optional("validation", "How the certificates of backends are verified.", validation(true)),
    ])
    .default(json!({"mode": "None"}))
    .rule(
        "clientCertificateRef must be set if and only if mode is ClientAndServer",
        "has(self.clientCertificateRef) == (self.mode == 'ClientAndServer')",
    )
    .rule(
        "validation must be set if and only if mode is either ClientAndServer or ServerOnly",
        "has(self.validation) == (self.mode != 'None')",
    )
}

fn status() -> Schema {
    let entry = object([
        required("ancestorRef", "The ancestor, in most cases a Gateway.", parent()),
        optional("conditions", "The result.", unbounded_conditions()),
        required("controllerName", "The controller that wrote the entry.", controller_name()),
    ]);
    object([optional("ancestors", "One entry for each ancestor and controller.", list(entry).max_items(32))])
}
