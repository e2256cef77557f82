//! HTTPRoute: rules that send HTTP requests to backends.

use serde_json::{Value, json};

use super::definition::{Names, Version, age, column, definition as define, root};
use super::filter_rules::prefix_is_known;
use super::http_match::{any_path, matches};
use super::persistence::session_persistence;
use super::references::weighted_backend;
use super::route::{TOO_MANY_MATCHES, common_fields, hostnames, rule_name, status, with_unique_names};
use super::schema::{Schema, integer, list, object, optional, set_of};
use super::shapes::duration;
use super::{Channel, filters};

pub(super) fn definition(channel: Channel) -> Value {
    let spec = object(common_fields(channel)).fields([
        hostnames(),
        optional("rules", "The rules; the most specific match of all routes wins.", rules(channel)),
    ]);
    let columns = json!([column("Hostnames", ".spec.hostnames"), age()]);
    let schema = root("HTTPRoute sends HTTP requests to backends.", spec, Some(status()));
    let v1 = Version::stored("v1", columns, schema);
    let v1beta1 = v1.also("v1beta1");
    define(channel, &Names::namespaced("HTTPRoute", "httproutes"), [v1, v1beta1])
}

fn rules(channel: Channel) -> Schema {
    let rules = list(rule(channel)).items(1..=16).default(json!([{"matches": [{"path": any_path()}]}]));
    with_unique_names(rules).rule(TOO_MANY_MATCHES, "self.map(rule, size(rule.matches)).sum() <= 128")
}

fn rule(channel: Channel) -> Schema {
    let of_backend = optional("filters", "Applied to requests to this backend.", filters::http(channel));
    let backends = list(weighted_backend(channel).fields([of_backend])).max_items(16);
    object([
        optional("backendRefs", "Where requests are sent.", backends),
        optional("filters", "Applied to all requests of the rule.", filters::http(channel)),
        optional("matches", "The requests that the rule applies to: those with any of the matches.", matches(channel)),
        rule_name(),
        optional("retry", "When failed requests are sent again.", retry()),
        optional("timeouts", "The time that requests may take.", timeouts()),
    ])
    .rule(
        "RequestRedirect filter must not be used together with backendRefs",
        "!has(self.backendRefs) || size(self.backendRefs) == 0 || !has(self.filters) || \
         !self.filters.exists(f, has(f.requestRedirect))",
    )
    .rules(prefix_is_known(false))
    .rules(prefix_is_known(true))
    .experimental(channel, |rule| {
        rule.fields([optional("sessionPersistence", "How clients stay at one backend.", session_persistence())])
    })
}

fn retry() -> Schema {
    object([
        optional("attempts", "How often a request is sent again.", integer().at_least(0).default(1)),
        optional("backoff", "The shortest time between two attempts.", duration()),
        optional(
            "codes",
            "The statuses of responses after which it is sent again.",
            set_of(integer().range(400..=599)),
        ),
    ])
}

fn timeouts() -> Schema {
    object([
        optional("backendRequest", "For one request to a backend.", duration()),
        optional("request", "For the whole request, retries included; 0 is no limit.", duration()),
    ])
    .rule(
        "backendRequest timeout cannot be longer than request timeout",
        "!has(self.request) || !has(self.backendRequest) || duration(self.request) == duration('0s') || \
         duration(self.backendRequest) <= duration(self.request)",
    )
}
