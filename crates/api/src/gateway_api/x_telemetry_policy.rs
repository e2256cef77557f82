//! XTelemetryPolicy: traces of requests (experimental).

use serde_json::{Value, json};

use super::Channel;
use super::definition::{Names, Version, age, definition as define, root};
use super::filters::fraction;
use super::references::{backend, policy_target};
use super::route::policy_status;
use super::schema::{Schema, choice, list, map_list, object, optional, required, string};
use super::shapes::{header_name, header_value};

pub(super) fn definition(channel: Channel) -> Value {
    let spec = object([
        required("targetRefs", "The Gateways that the policy applies to.", list(policy_target()).items(1..=16)),
        optional("tracing", "Traces of requests.", tracing(channel)),
    ])
    .rule("at least one of the fields in [tracing] must be set", "has(self.tracing)");
    let names = Names {
        short: Some("xtelemetrypolicy"),
        is_experimental: true,
        is_policy: true,
        ..Names::namespaced("XTelemetryPolicy", "xtelemetrypolicies")
    };
    let schema = root("XTelemetryPolicy configures telemetry of requests.", spec, Some(policy_status()));
    define(channel, &names, [Version::stored("v1alpha1", json!([age()]), schema)])
}

fn modes() -> Schema {
    choice(&["Enabled", "Disabled", "ImplementationDefault"]).default("ImplementationDefault")
}

/// A rule that a field is set only when tracing is enabled.
fn when_enabled(field: &str) -> (String, String) {
    (format!("{field} can only be set when mode is Enabled"), format!("self.mode == 'Enabled' || !has(self.{field})"))
}

fn tracing(channel: Channel) -> Schema {
    let span = string().length(1..=256).pattern("^[a-zA-Z0-9_.:/-]+( [a-zA-Z0-9_.:/-]+)*$");
    let service = string().length(1..=253).pattern("^[a-zA-Z0-9_.:/-]+$");
    let sampling = object([
        optional("mode", "Whether the decision of the client counts.", modes()),
        optional("samplingRate", "The share of sampled requests.", fraction()),
    ])
    .rules([when_enabled("samplingRate")]);
    object([
        optional("attributes", "Attributes of the spans.", map_list(&["name"], attribute())),
        optional("mode", "Whether requests are traced.", modes()),
        optional("parentBasedSampling", "Sampling of requests that the client sampled.", sampling),
        optional("provider", "The collector of the spans.", provider(channel)),
        optional("samplingRate", "The share of sampled requests.", fraction()),
        optional("serviceName", "The name of the service in the spans.", service),
        optional("spanName", "The name of the spans.", span),
    ])
    .rule(
        "provider is required when mode is Enabled, and must be empty otherwise",
        "has(self.provider) == (self.mode == 'Enabled')",
    )
    .rules(["samplingRate", "parentBasedSampling", "serviceName", "spanName", "attributes"].map(when_enabled))
}

fn attribute() -> Schema {
    let only_with = |field: &str, source: &str| {
        (
            format!("{field} is required when sourceType is {source}, and must be empty otherwise"),
            format!("has(self.{field}) == (self.sourceType == '{source}')"),
        )
    };
    let key = string().length(1..=256).pattern("^[a-z0-9_.-]+$");
    object([
        optional("attributeKey", "The attribute of the request, for Attribute.", key),
        optional("headerName", "The header of the request, for Header.", header_name()),
        optional("literalValue", "The value, for Literal.", string().length(1..=1024)),
        required("name", "The name of the attribute.", string().length(1..=256).pattern("^[a-zA-Z0-9_.:/-]+$")),
        required("sourceType", "Where the value is from.", choice(&["Header", "Literal", "Attribute"])),
    ])
    .rules([
        only_with("headerName", "Header"),
        only_with("literalValue", "Literal"),
        only_with("attributeKey", "Attribute"),
    ])
}

fn provider(channel: Channel) -> Schema {
    let header = object([
        required("name", "The name of the header.", header_name()),
        required("value", "The value of the header.", header_value(channel)),
    ]);
    object([
        required("backendRef", "The backend.", backend(channel)),
        optional("headers", "Headers of the requests to the backend.", map_list(&["name"], header).max_items(16)),
    ])
}
