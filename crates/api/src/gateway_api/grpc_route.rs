//! GRPCRoute: rules that send gRPC requests to backends.

use serde_json::{Value, json};

use super::definition::{Names, Version, age, column, definition as define, root};
use super::http_match::values;
use super::persistence::session_persistence;
use super::references::weighted_backend;
use super::route::{TOO_MANY_MATCHES, common_fields, hostnames, rule_name, status, with_unique_names};
use super::schema::{Schema, choice, list, object, optional, string};
use super::shapes::header_value;
use super::{Channel, filters};

pub(super) fn definition(channel: Channel) -> Value {
    let spec = object(common_fields(channel)).fields([
        hostnames(),
        optional("rules", "The rules; the most specific match of all routes wins.", rules(channel)),
    ]);
    let columns = json!([column("Hostnames", ".spec.hostnames"), age()]);
    let schema = root("GRPCRoute sends gRPC requests to backends.", spec, Some(status()));
    let names = Names::namespaced("GRPCRoute", "grpcroutes");
    define(channel, &names, [Version::stored("v1", columns, schema)])
}

fn rules(channel: Channel) -> Schema {
    let rules = list(rule(channel))
        .max_items(16)
        .rule(TOO_MANY_MATCHES, "self.map(rule, has(rule.matches) ? size(rule.matches) : 0).sum() <= 128");
    with_unique_names(rules)
}

fn rule(channel: Channel) -> Schema {
    let of_backend = optional("filters", "Applied to requests to this backend.", filters::grpc(channel));
    let backends = list(weighted_backend(channel).fields([of_backend])).max_items(16);
    // As upstream, values of headers have no pattern here in either channel.
    let item = object([
        optional("headers", "Headers that the request has.", values(header_value(Channel::Standard))),
        optional("method", "The method that is called.", method()),
    ]);
    object([
        optional("backendRefs", "Where requests are sent.", backends),
        optional("filters", "Applied to all requests of the rule.", filters::grpc(channel)),
        optional(
            "matches",
            "The requests that the rule applies to: those with any of the matches.",
            list(item).max_items(64),
        ),
        rule_name(),
    ])
    .experimental(channel, |rule| {
        rule.fields([optional("sessionPersistence", "How clients stay at one backend.", session_persistence())])
    })
}

fn method() -> Schema {
    let inexact = "has(self.type) && self.type != 'Exact'";
    let valid = |field: &str, pattern: &str| {
        (
            format!("{field} must only contain valid characters (matching {pattern})"),
            format!("({inexact}) || !has(self.{field}) || self.{field}.matches(r\"{pattern}\")"),
        )
    };
    object([
        optional("method", "The name of the method.", string().max_length(1024)),
        optional("service", "The name of the service.", string().max_length(1024)),
        optional("type", "How the names are compared.", choice(&["Exact", "RegularExpression"]).default("Exact")),
    ])
    .rule(
        "One or both of 'service' or 'method' must be specified",
        "!has(self.type) || has(self.service) || has(self.method)",
    )
    .rules([
        valid("service", r"^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$"),
        valid("method", "^[A-Za-z_][A-Za-z_0-9]*$"),
    ])
}
