//! Validation of probes and lifecycle hooks.

use serde_json::Value;

use super::containers::check_port;
use crate::field::{Errors, Path};
use crate::kinds::common::report;
use crate::names;
use crate::value::ValueExt as _;

/// Checks the probes and hooks of a container; `grace` is how long the Pod may take to end.
pub(super) fn validate_all(path: &Path<'_>, container: &Value, grace: i64, errors: &mut Errors) {
    let lifecycle = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        let handler = container.at("lifecycle").at(hook);
        if !handler.is_null() {
            let means = ["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(&lifecycle.child(hook), handler, &means, grace, errors);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if probe.is_null() {
            continue;
        }
        let path = path.child(name);
        validate_probe(&path, probe, grace, errors);
        if name == "readinessProbe" {
            if let Some(seconds) = probe.at("terminationGracePeriodSeconds").as_i64() {
                let detail = "must not be set for readinessProbes";
                errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, detail);
            }
        } else if probe.int("successThreshold") != 1 {
            errors.invalid(&path.child("successThreshold"), probe.int("successThreshold"), "must be 1");
        }
    }
}

fn validate_probe(path: &Path<'_>, probe: &Value, grace: i64, errors: &mut Errors) {
    validate_handler(path, probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        let value = probe.int(field);
        if value < 0 {
            errors.invalid(&path.child(field), value, "must be greater than or equal to 0");
        }
    }
    if let Some(seconds) = probe.at("terminationGracePeriodSeconds").as_i64().filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

fn validate_handler(path: &Path<'_>, handler: &Value, means: &[&str], grace: i64, errors: &mut Errors) {
    let mut used = means.iter().filter(|name| handler.has(name));
    let Some(first) = used.next() else {
        errors.required(path, "must specify a handler type");
        return;
    };
    validate_action(&path.child(first), first, handler.at(first), grace, errors);
    for name in used {
        errors.forbidden(&path.child(name), "may not specify more than 1 handler type");
    }
}

fn validate_action(path: &Path<'_>, name: &str, action: &Value, grace: i64, errors: &mut Errors) {
    match name {
        "exec" if action.items("command").is_empty() => errors.required(&path.child("command"), ""),
        "httpGet" => validate_http(path, action, errors),
        "tcpSocket" => check_port_or_name(&path.child("port"), action.at("port"), errors),
        "grpc" => check_port(&path.child("port"), action.int("port"), errors),
        "sleep" => {
            let seconds = action.int("seconds");
            if !(0..=grace).contains(&seconds) {
                let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.invalid(path, seconds, &detail);
            }
        }
        _ => {}
    }
}

fn validate_http(path: &Path<'_>, action: &Value, errors: &mut Errors) {
    if action.text("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    check_port_or_name(&path.child("port"), action.at("port"), errors);
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                          regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&path.child("httpHeaders"), name, detail);
        }
    }
}

fn check_port_or_name(path: &Path<'_>, port: &Value, errors: &mut Errors) {
    match port.as_str() {
        Some(name) => report(path, name, names::port_name(name), errors),
        None => check_port(path, port.as_i64().unwrap_or_default(), errors),
    }
}
