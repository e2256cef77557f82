//! The filters of HTTP and gRPC routes.

use serde_json::json;

use super::external_auth::external_auth;
use super::filter_rules::{not_repeated, only_with_type};
use super::references::{backend, local};
use super::schema::{
    Field, Schema, boolean, choice, int32, integer, list, map_list, object, optional, required, set_of, string,
};
use super::shapes::{header_name, header_value, port, precise_hostname};
use super::{Channel, http_match};

/// The filters of an HTTP route.
pub(super) fn http(channel: Channel) -> Schema {
    let mut kinds = vec![
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "ExtensionRef",
        "CORS",
    ];
    if channel.is_experimental() {
        kinds.push("ExternalAuth");
    }
    let filter = object(common_fields(channel, &kinds))
        .fields([
            optional("cors", "Answers to cross-origin requests.", cors()),
            optional("requestRedirect", "A redirect instead of a backend's response.", redirect()),
            optional("urlRewrite", "Changes of host and path before the request is sent.", rewrite()),
        ])
        .rules(only_with_type("cors", "CORS"))
        .rules(only_with_type("requestHeaderModifier", "RequestHeaderModifier"))
        .rules(only_with_type("responseHeaderModifier", "ResponseHeaderModifier"))
        .rules(only_with_type("requestMirror", "RequestMirror"))
        .rules(only_with_type("requestRedirect", "RequestRedirect"))
        .rules(only_with_type("urlRewrite", "URLRewrite"))
        .rules(only_with_type("extensionRef", "ExtensionRef"))
        .experimental(channel, |filter| {
            let auth = optional("externalAuth", "A server that authorizes requests.", external_auth(channel));
            filter.fields([auth]).rules(only_with_type("externalAuth", "ExternalAuth"))
        });
    let once = ["CORS", "RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite"];
    list(filter)
        .max_items(16)
        .rule(
            "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but not both",
            "!self.exists(one, one.type == 'RequestRedirect') || !self.exists(one, one.type == 'URLRewrite')",
        )
        .rules(not_repeated(&once))
}

/// The filters of a gRPC route.
pub(super) fn grpc(channel: Channel) -> Schema {
    let kinds = ["ResponseHeaderModifier", "RequestHeaderModifier", "RequestMirror", "ExtensionRef"];
    let filter = object(common_fields(channel, &kinds))
        .rules(only_with_type("requestHeaderModifier", "RequestHeaderModifier"))
        .rules(only_with_type("responseHeaderModifier", "ResponseHeaderModifier"))
        .rules(only_with_type("requestMirror", "RequestMirror"))
        .rules(only_with_type("extensionRef", "ExtensionRef"));
    list(filter).max_items(16).rules(not_repeated(&["RequestHeaderModifier", "ResponseHeaderModifier"]))
}

fn common_fields(channel: Channel, kinds: &[&str]) -> [Field; 5] {
    [
        optional("extensionRef", "A filter of the implementation.", local()),
        optional("requestHeaderModifier", "Changes of the request's headers.", header_changes(channel)),
        optional("requestMirror", "A backend that also gets the request; its response is ignored.", mirror(channel)),
        optional("responseHeaderModifier", "Changes of the response's headers.", header_changes(channel)),
        required("type", "The kind of filter.", choice(kinds)),
    ]
}

fn cors() -> Schema {
    let any_alone = |schema: Schema, field: &str, others: &str| {
        let message = format!("{field} cannot contain '*' alongside other {others}");
        schema.rule(&message, "!('*' in self) || self.size() < 2")
    };
    let origin = string().length(1..=253).pattern(concat!(
        r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)",
        r"(:([0-9]{1,5}))?)$)"
    ));
    let methods: Vec<&str> = http_match::METHODS.iter().copied().chain(["*"]).collect();
    let headers = || set_of(header_name()).max_items(64);
    object([
        optional("allowCredentials", "Whether requests may have credentials.", boolean()),
        optional(
            "allowHeaders",
            "The headers that requests may have.",
            any_alone(headers(), "AllowHeaders", "methods"),
        ),
        optional(
            "allowMethods",
            "The methods that requests may have.",
            any_alone(set_of(choice(&methods)).max_items(9), "AllowMethods", "methods"),
        ),
        optional(
            "allowOrigins",
            "The origins that may send requests.",
            any_alone(set_of(origin).max_items(64), "AllowOrigins", "origins"),
        ),
        optional("exposeHeaders", "The headers of responses that scripts may read.", headers()),
        optional("maxAge", "How many seconds clients may cache the answer.", int32().at_least(1).default(5)),
    ])
}

fn header_changes(channel: Channel) -> Schema {
    let headers = || {
        let header = object([
            required("name", "The name of the header.", header_name()),
            required("value", "The value of the header.", header_value(channel)),
        ]);
        map_list(&["name"], header).max_items(16)
    };
    object([
        optional("add", "Values that are added to those of the message.", headers()),
        optional("remove", "Headers that are removed.", set_of(string()).max_items(16)),
        optional("set", "Headers that replace those of the message.", headers()),
    ])
}

fn mirror(channel: Channel) -> Schema {
    object([
        required("backendRef", "The backend.", backend(channel)),
        optional("fraction", "The share of requests that is mirrored.", fraction()),
        optional("percent", "The percentage of requests that is mirrored.", int32().range(0..=100)),
    ])
    .rule(
        "Only one of percent or fraction may be specified in HTTPRequestMirrorFilter",
        "!has(self.percent) || !has(self.fraction)",
    )
}

/// A share.
pub(super) fn fraction() -> Schema {
    object([
        optional("denominator", "The whole.", int32().at_least(1).default(100)),
        required("numerator", "The part of it.", int32().at_least(0)),
    ])
    .rule("numerator must be less than or equal to denominator", "self.denominator >= self.numerator")
}

fn redirect() -> Schema {
    object([
        optional("hostname", "The host of the new location.", precise_hostname()),
        optional("path", "The path of the new location.", path_change()),
        optional("port", "The port of the new location.", port()),
        optional("scheme", "The scheme of the new location.", choice(&["http", "https"])),
        optional(
            "statusCode",
            "The status of the response.",
            integer().with("enum", json!([301, 302, 303, 307, 308])).default(302),
        ),
    ])
}

fn rewrite() -> Schema {
    object([
        optional("hostname", "The new host.", precise_hostname()),
        optional("path", "The new path.", path_change()),
    ])
}

fn path_change() -> Schema {
    let path = || string().max_length(1024);
    let rules =
        [("replaceFullPath", "ReplaceFullPath"), ("replacePrefixMatch", "ReplacePrefixMatch")].map(|(field, kind)| {
            [
                (
                    format!("{field} must be specified when type is set to '{kind}'"),
                    format!("self.type == '{kind}' ? has(self.{field}) : true"),
                ),
                (
                    format!("type must be '{kind}' when {field} is set"),
                    format!("!has(self.{field}) || self.type == '{kind}'"),
                ),
            ]
        });
    object([
        optional("replaceFullPath", "The new path.", path()),
        optional("replacePrefixMatch", "What replaces the matched prefix.", path()),
        required("type", "What is replaced.", choice(&["ReplaceFullPath", "ReplacePrefixMatch"])),
    ])
    .rules(rules.into_iter().flatten())
}
