//! The matches of HTTP routes: path, headers, query parameters, method.

use serde_json::{Value, json};

use super::Channel;
use super::schema::{Schema, choice, list, map_list, object, optional, required, string};
use super::shapes::{PATH, header_name, header_value};

/// The methods that a match may name.
pub(super) const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// All requests.
pub(super) fn any_path() -> Value {
    json!({"type": "PathPrefix", "value": "/"})
}

/// The matches of a rule.
pub(super) fn matches(channel: Channel) -> Schema {
    let item = object([
        optional("headers", "Headers that the request has.", values(header_value(channel))),
        optional("method", "The method of the request.", choice(&METHODS)),
        optional("path", "The path of the request.", path().default(any_path())),
        optional("queryParams", "Query parameters that the request has.", values(string().length(1..=1024))),
    ]);
    list(item).max_items(64).default(json!([{"path": any_path()}]))
}

/// Headers or query parameters that a request has.
pub(super) fn values(value: Schema) -> Schema {
    let item = object([
        required("name", "The name.", header_name()),
        optional("type", "How the value is compared.", choice(&["Exact", "RegularExpression"]).default("Exact")),
        required("value", "The value.", value),
    ]);
    map_list(&["name"], item).max_items(16)
}

fn path() -> Schema {
    let types = "['Exact', 'PathPrefix']";
    let plain = |schema: Schema, message: &str, condition: &str| {
        let message = format!("{message} when type one of {types}");
        schema.rule(&message, &format!("!(self.type in {types}) || {condition}"))
    };
    let kinds = choice(&["Exact", "PathPrefix", "RegularExpression"]).default("PathPrefix");
    let mut path = object([
        optional("type", "How the path is compared.", kinds),
        optional("value", "The path, its prefix or a regular expression.", string().max_length(1024).default("/")),
    ]);
    path = plain(path, "value must be an absolute path and start with '/'", "self.value.startsWith('/')");
    for part in ["//", "/./", "/../", "%2f", "%2F", "#"] {
        path = plain(path, &format!("must not contain '{part}'"), &format!("!self.value.contains('{part}')"));
    }
    for end in ["/..", "/."] {
        path = plain(path, &format!("must not end with '{end}'"), &format!("!self.value.endsWith('{end}')"));
    }
    path.rule(
        "type must be one of ['Exact', 'PathPrefix', 'RegularExpression']",
        "self.type in ['Exact', 'PathPrefix', 'RegularExpression']",
    )
    .rule(
        &format!("must only contain valid characters (matching {PATH}) for types {types}"),
        &format!("!(self.type in {types}) || self.value.matches(r\"{PATH}\")"),
    )
}
