//! Gateway: addresses and listeners that routes attach to.

use serde_json::{Value, json};

use super::Channel;
use super::conditions::{conditions, pending};
use super::definition::{Names, Version, age, column, condition_column, definition as define, root};
use super::gateway_tls::gateway_tls;
use super::listener::{listener, listener_statuses, listeners, namespaces};
use super::references::local;
use super::schema::{Schema, choice, int32, list, map_of, object, optional, required, string};
use super::shapes::{HOSTNAME, METADATA_KEY, address_type, label_value, long_value, object_name};

/// What a new Gateway, or ListenerSet, waits for.
pub(super) const PENDING: [&str; 2] = ["Accepted", "Programmed"];

pub(super) fn definition(channel: Channel) -> Value {
    let columns = json!([
        column("Class", ".spec.gatewayClassName"),
        column("Address", ".status.addresses[*].value"),
        condition_column("Programmed"),
        age(),
    ]);
    let schema = root("Gateway is a set of addresses and listeners for routes.", spec(channel), Some(status(channel)));
    let v1 = Version::stored("v1", columns, schema);
    let v1beta1 = v1.also("v1beta1");
    let names = Names { short: Some("gtw"), ..Names::namespaced("Gateway", "gateways") };
    define(channel, &names, [v1, v1beta1])
}

fn spec(channel: Channel) -> Schema {
    let allowed = object([optional(
        "namespaces",
        "The namespaces of the ListenerSets.",
        namespaces(&["All", "Selector", "Same", "None"], "None"),
    )]);
    object([
        optional("addresses", "The requested addresses; by default the implementation chooses.", addresses(channel)),
        optional("allowedListeners", "The ListenerSets that may attach.", allowed),
        required("gatewayClassName", "The class of the Gateway.", object_name()),
        optional("infrastructure", "Settings for the objects that implement the Gateway.", infrastructure()),
        required("listeners", "Ports, protocols and hostnames.", listeners(own_listener(channel))),
        optional("tls", "TLS of clients and backends.", gateway_tls(channel)),
    ])
    .experimental(channel, |spec| {
        let scopes = choice(&["All", "None"]);
        spec.fields([optional("defaultScope", "Whether routes without parents attach to the Gateway.", scopes)])
    })
}

/// A listener of a Gateway. Upstream, those of ListenerSets lack the rule.
fn own_listener(channel: Channel) -> Schema {
    listener(channel).experimental(channel, |listener| {
        listener.rule(
            "filters may only be set when protocol is HTTP or HTTPS",
            "!has(self.filters) || self.protocol in ['HTTP', 'HTTPS']",
        )
    })
}

/// An address, with the rules of its type; `value` describes the values of hostnames.
fn address(channel: Channel, value: Schema) -> Schema {
    let ip = json!({"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]});
    let is_ip = json!({"enum": ["IPAddress"]});
    object([optional("type", "IPAddress, Hostname, NamedAddress or a type of the implementation.", address_type())])
        .fields([optional("value", "The address.", value)])
        .with("oneOf", json!([{"properties": {"type": is_ip, "value": ip}}, {"properties": {"type": {"not": is_ip}}}]))
        .experimental(channel, |schema| {
            schema.fields([optional("routability", "From where the address can be reached.", routability())])
        })
}

fn addresses(channel: Channel) -> Schema {
    let address = address(channel, string().max_length(253)).rule(
        &format!("Hostname value must be empty or contain only valid characters (matching {HOSTNAME})"),
        &format!("self.type != 'Hostname' || !has(self.value) || self.value.matches(r\"{HOSTNAME}\")"),
    );
    let unique = |kind: &str| {
        (
            format!("{kind} values must be unique"),
            format!(
                "self.all(one, one.type != '{kind}' || !has(one.value) || \
                 self.exists_one(other, other.type == one.type && has(other.value) && other.value == one.value))"
            ),
        )
    };
    list(address).max_items(16).rules([unique("IPAddress"), unique("Hostname")])
}

fn routability() -> Schema {
    string().max_length(253).rule(
        "Routability must be empty, Cluster, or an implementation-specific prefixed path; k8s.io and its subdomains are reserved",
        "self in ['', 'Cluster'] || (self.matches('^.*/.+$') && [self.split('/')[0]].all(domain, \
         domain != 'k8s.io' && !domain.endsWith('.k8s.io') && !format.dns1123Subdomain().validate(domain).hasValue()))",
    )
}

fn infrastructure() -> Schema {
    let keys = |schema: Schema, title: &str, name: &str| {
        schema
            .rule(
                &format!(
                    "{title} keys must be in the form of an optional DNS subdomain prefix followed by a required name \
                     segment of up to 63 characters."
                ),
                &format!("!self.exists(key, !key.matches(r\"{METADATA_KEY}\"))"),
            )
            .rule(
                &format!(
                    "If specified, the {name} key's prefix must be a DNS subdomain not longer than 253 characters in total."
                ),
                "!self.exists(key, key.split('/')[0].size() >= 253)",
            )
    };
    let annotations = keys(map_of(long_value()).max_keys(16), "Annotation", "annotation");
    let labels = keys(map_of(label_value()).max_keys(8), "Label", "label");
    object([
        optional("annotations", "Annotations of these objects.", annotations),
        optional("labels", "Labels of these objects.", labels),
        optional("parametersRef", "An object with settings of the implementation.", local()),
    ])
}

fn status(channel: Channel) -> Schema {
    let assigned = address(channel, string().length(1..=253)).with("required", json!(["value"])).rule(
        &format!("Hostname value must only contain valid characters (matching {HOSTNAME})"),
        &format!("self.type != 'Hostname' || self.value.matches(r\"{HOSTNAME}\")"),
    );
    object([
        optional("addresses", "The addresses that the listeners are bound to.", list(assigned).max_items(16)),
        optional("attachedListenerSets", "The number of ListenerSets that the Gateway accepted.", int32()),
        optional("conditions", "The state of the Gateway.", conditions().default(pending(&PENDING))),
        optional("listeners", "The state of each listener.", listener_statuses()),
    ])
    .default(json!({"conditions": pending(&PENDING)}))
}
