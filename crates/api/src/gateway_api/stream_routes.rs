//! TCPRoute, UDPRoute and TLSRoute: routes of connections and datagrams, which name backends only.

use serde_json::{Value, json};

use super::definition::{Names, Version, age, definition as define, root};
use super::references::weighted_backend;
use super::route::{common_fields, rule_name, status, with_unique_names};
use super::schema::{Field, Schema, list, object, optional, required};
use super::{Channel, hostnames};

pub(super) fn tcp(channel: Channel) -> Value {
    plain(channel, "TCPRoute", "tcproutes", "TCPRoute distributes TCP connections to backends.")
}

pub(super) fn udp(channel: Channel) -> Value {
    plain(channel, "UDPRoute", "udproutes", "UDPRoute distributes UDP datagrams to backends.")
}

pub(super) fn tls(channel: Channel) -> Value {
    let schema = |hostnames: Field, rules: Schema| {
        let spec = spec(channel, rules).fields([hostnames]);
        root("TLSRoute distributes TLS connections to backends by server name.", spec, Some(status()))
    };
    let text = "The server names (SNI) of the connections that the route applies to.";
    let checked = || schema(required("hostnames", text, hostnames::checked()), one_rule(channel));
    let v1alpha2 = schema(optional("hostnames", text, hostnames::unchecked()), rules(channel));
    let versions = [
        Version::stored("v1", json!([age()]), checked()),
        alpha(channel, "v1alpha2", v1alpha2),
        alpha(channel, "v1alpha3", checked()),
    ];
    define(channel, &Names::namespaced("TLSRoute", "tlsroutes"), versions)
}

/// A route without matches.
fn plain(channel: Channel, kind: &'static str, plural: &'static str, description: &str) -> Value {
    let schema = |rules: Schema| root(description, spec(channel, rules), Some(status()));
    let versions = [
        Version::stored("v1", json!([age()]), schema(one_rule(channel))),
        alpha(channel, "v1alpha2", schema(rules(channel))),
    ];
    define(channel, &Names::namespaced(kind, plural), versions)
}

/// An older version, served in the experimental channel only.
fn alpha(channel: Channel, name: &'static str, schema: Schema) -> Version {
    let is_served = channel.is_experimental();
    Version { is_served, is_stored: false, is_deprecated: true, ..Version::stored(name, json!([age()]), schema) }
}

fn spec(channel: Channel, rules: Schema) -> Schema {
    object(common_fields(channel)).fields([required("rules", "Where connections are sent.", rules)])
}

fn rule(channel: Channel) -> Schema {
    let backends = list(weighted_backend(channel)).items(1..=16);
    object([rule_name(), required("backendRefs", "The backends of the rule.", backends)])
}

fn one_rule(channel: Channel) -> Schema {
    list(rule(channel)).items(1..=1)
}

fn rules(channel: Channel) -> Schema {
    list(rule(channel)).items(1..=16).experimental(channel, with_unique_names)
}
