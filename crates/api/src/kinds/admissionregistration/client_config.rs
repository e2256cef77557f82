//! Where a webhook is: a URL, or a Service.

use serde_json::Value;

use crate::dynamic_admission::url;
use crate::field::{Errors, Path};
use crate::names;
use crate::value::ValueExt as _;

const FORM: &str = "; desired format: https://host[/path]";

/// Checks a `clientConfig`.
pub(in crate::kinds) fn validate(path: &Path<'_>, config: &Value, errors: &mut Errors) {
    match (config.at("url"), config.at("service")) {
        (Value::String(url), Value::Null) => validate_url(&path.child("url"), url, errors),
        (Value::Null, service @ Value::Object(_)) => validate_service(&path.child("service"), service, errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn validate_url(path: &Path<'_>, text: &str, errors: &mut Errors) {
    let url = match url::parse(text) {
        Ok(url) => url,
        Err(why) => return errors.required(path, &format!("url must be a valid URL: {why}{FORM}")),
    };
    if url.scheme != "https" {
        errors.invalid(path, url.scheme.as_str(), &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        errors.invalid(path, "", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

fn validate_service(path: &Path<'_>, service: &Value, errors: &mut Errors) {
    // Kubernetes takes name and namespace in the other order than they are given, so each is missed under the
    // other's name.
    if service.text("namespace").is_empty() {
        errors.required(&path.child("name"), "");
    }
    if service.text("name").is_empty() {
        errors.required(&path.child("namespace"), "");
    }
    let wrong = names::port_number(service.int("port"));
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.invalid(&path.child("port"), service.int("port"), &detail);
    }
    validate_path(&path.child("path"), service.text("path"), errors);
}

fn validate_path(path: &Path<'_>, text: &str, errors: &mut Errors) {
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return errors.invalid(path, text, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        errors.invalid(path, text, "must start with a '/'");
    }
    // The first byte is taken for a slash.
    let inner = text.char_indices().nth(1).map_or("", |(at, _)| &text[at..]);
    for (index, segment) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(path, text, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in names::dns_subdomain(segment) {
            errors.invalid(path, text, &format!("segment[{index}]: {why}"));
        }
    }
}
