//! Checks of the fields that decide who may send requests, and how many.

use serde_json::Value;

use super::super::common::{one_of, report};
use super::super::ippool::refuse_repeated;
use super::spec::{validate_number, validate_ranges, validate_token};
use crate::field::{Errors, Path};
use crate::names;
use crate::value::ValueExt as _;

/// Headers that frame a message or belong to one connection: no other server may set them.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const METHODS: &[&str] = &["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
const PERIODS: &[&str] = &["Hour", "Minute", "Second"];
const KEYS: &[&str] = &["Client", "Header"];
/// Bytes of a URL.
const LONGEST_URL: usize = 2048;
/// Bytes of a realm.
const LONGEST_REALM: usize = 128;
/// The most headers that are copied.
const MOST_HEADERS: usize = 64;
/// The most rate limits.
const MOST_LIMITS: usize = 8;
/// The largest number of requests.
const MOST_REQUESTS: i64 = 1_000_000;

pub(super) fn validate(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    if spec.has("sourceRanges") {
        let (path, allow, deny) =
            (path.child("sourceRanges"), spec.texts("sourceRanges.allow"), spec.texts("sourceRanges.deny"));
        if allow.is_empty() && deny.is_empty() {
            errors.required(&path, "at least one of allow, deny");
        }
        validate_ranges(&path.child("allow"), &allow, errors);
        validate_ranges(&path.child("deny"), &deny, errors);
    }
    if spec.has("authentication") {
        validate_authentication(&path.child("authentication"), spec.at("authentication"), errors);
    }
    let (limits, list) = (path.child("rateLimits"), spec.items("rateLimits"));
    if list.len() > MOST_LIMITS {
        errors.too_many(&limits, list.len(), MOST_LIMITS);
    }
    for (index, limit) in list.iter().enumerate() {
        validate_rate(&limits.index(index), limit, errors);
    }
    if spec.has("maxConcurrentRequests") {
        let (path, limit) = (path.child("maxConcurrentRequests"), spec.at("maxConcurrentRequests"));
        validate_number(&path.child("limit"), limit.int("limit"), (1, MOST_REQUESTS), errors);
        validate_ranges(&path.child("exempt"), &limit.texts("exempt"), errors);
    }
}

fn validate_authentication(path: &Path<'_>, authentication: &Value, errors: &mut Errors) {
    if !authentication.has("basic") && !authentication.has("external") {
        errors.required(path, "at least one of basic, external");
    }
    if authentication.has("basic") {
        let (path, basic) = (path.child("basic"), authentication.at("basic"));
        let (secret, realm) = (basic.text("secretName"), basic.text("realm"));
        if secret.is_empty() {
            errors.required(&path.child("secretName"), "the Secret with the passwords");
        } else {
            report(&path.child("secretName"), secret, names::name_is_subdomain(secret, false), errors);
        }
        // It is a quoted string of a header.
        if realm.len() > LONGEST_REALM {
            errors.too_long(&path.child("realm"), LONGEST_REALM);
        } else if !realm.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
            errors.invalid(&path.child("realm"), realm, "must be printable ASCII without \" and \\");
        }
    }
    if authentication.has("external") {
        validate_external(&path.child("external"), authentication.at("external"), errors);
    }
}

fn validate_external(path: &Path<'_>, external: &Value, errors: &mut Errors) {
    let (url, page) = (external.text("url"), external.text("signInURL"));
    if url.is_empty() {
        errors.required(&path.child("url"), "the server that authorises requests");
    } else if let Some(host) = validate_url(&path.child("url"), url, errors)
        && (host.contains('$') || host.contains('@'))
    {
        // The gateway connects to it: clients must not choose where to.
        errors.invalid(&path.child("url"), url, "must have a host without variables and without user");
    }
    if !page.is_empty() {
        validate_url(&path.child("signInURL"), page, errors);
    }
    one_of(&path.child("method"), external.text("method"), METHODS, errors);
    let parameter = external.text("signInRedirectParameter");
    validate_token(&path.child("signInRedirectParameter"), parameter, "a parameter", errors);
    let redirect = external.text("requestRedirect");
    if redirect.len() > LONGEST_URL {
        errors.too_long(&path.child("requestRedirect"), LONGEST_URL);
    } else if redirect.chars().any(char::is_control) {
        errors.invalid(&path.child("requestRedirect"), redirect, "must not have control characters");
    }
    let (headers, names) = (path.child("responseHeaders"), external.texts("responseHeaders"));
    if names.len() > MOST_HEADERS {
        errors.too_many(&headers, names.len(), MOST_HEADERS);
    }
    for (index, name) in names.iter().enumerate() {
        validate_token(&headers.index(index), name, "a header", errors);
        if FRAMING.contains(&&*name.to_ascii_lowercase()) {
            errors.invalid(&headers.index(index), *name, "must not be a header that frames a message");
        }
    }
    refuse_repeated(&headers, &names, errors);
}

/// Checks a URL, possibly with variables; its host, with the port.
fn validate_url<'a>(path: &Path<'_>, url: &'a str, errors: &mut Errors) -> Option<&'a str> {
    if url.len() > LONGEST_URL {
        errors.too_long(path, LONGEST_URL);
        return None;
    }
    let rest = ["http://", "https://", "$scheme://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).filter(|host| !host.is_empty());
    if host.is_none() || url.chars().any(|c| c.is_control() || c == ' ' || c == '\\') {
        errors.invalid(path, url, "must be a URL of the scheme http or https");
        return None;
    }
    host
}

fn validate_rate(path: &Path<'_>, limit: &Value, errors: &mut Errors) {
    validate_number(&path.child("requests"), limit.int("requests"), (1, MOST_REQUESTS), errors);
    validate_number(&path.child("burst"), limit.int("burst"), (0, MOST_REQUESTS), errors);
    one_of(&path.child("per"), limit.text("per"), PERIODS, errors);
    let (key, kind, header) = (path.child("key"), limit.text("key.type"), limit.text("key.header"));
    one_of(&key.child("type"), kind, KEYS, errors);
    if kind == "Header" {
        validate_token(&key.child("header"), header, "a header", errors);
    } else if !header.is_empty() {
        errors.forbidden(&key.child("header"), "may be set only when type is Header");
    }
    validate_ranges(&path.child("exempt"), &limit.texts("exempt"), errors);
}
