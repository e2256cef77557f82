//! Ingress: rules that lead HTTP requests to Services.
//!
//! An update is as lenient as the stored object demands: names of secrets and rules of wildcard hosts that an older
//! server let in stay writable.

use serde_json::{Value, json};

use super::common::{host_or_wildcard, report, validate_ingress_points};
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, SHOWN, Table, age, column, no_conditions};
use crate::value::ValueExt as _;
use crate::view::annotations::INGRESS_CLASS;

/// The kind.
pub static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    schema: "networking.Ingress",
    table: "ingress",
    subresources: &[status_of("Ingress")],
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&IngressRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Class", "Which kind of gateway serves the rules."),
        column("Hosts", "The first hosts of the rules."),
        column("Address", "Where the gateway listens."),
        column("Ports", "The ports it listens on."),
        AGE,
    ],
    row: |object, now| {
        let ports = if object.items("spec.tls").is_empty() { "80" } else { "80, 443" };
        vec![
            object.text("metadata.name").into(),
            object.at("spec.ingressClassName").as_str().unwrap_or("<none>").into(),
            hosts_cell(object.items("spec.rules")).into(),
            address_cell(object.items("status.loadBalancer.ingress")).into(),
            ports.into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

struct IngressRules;

/// What a stored object excuses.
#[derive(Clone, Copy, Default)]
struct Excuses {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Rules for IngressRules {
    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({"loadBalancer": {}}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_spec(object.at("spec"), Excuses::default(), errors);
        if let (Some(annotation), Some(class)) = (class_annotation(object), object.at("spec.ingressClassName").as_str())
            && annotation != class
        {
            let path = Path::Root("annotations");
            let detail = "must match `ingressClassName` when both are specified";
            errors.invalid(&path.child(INGRESS_CLASS), annotation, detail);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        meta::validate(new, true, names::name_is_subdomain, errors);
        validate_spec(new.at("spec"), Excuses::of(old.at("spec")), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let points = |object| Value::items(object, "status.loadBalancer.ingress");
        validate_ingress_points(&Path::Root("status.loadBalancer.ingress"), points(new), points(old), errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() && class_annotation(new).is_some() && !new.has("spec.ingressClassName") {
            out.push(format!(
                "annotation \"{INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
            ));
        }
    }

    fn status_warnings(&self, new: &Value, _old: &Value, out: &mut Vec<String>) {
        let path = Path::Root("status.loadBalancer.ingress");
        for (index, point) in new.items("status.loadBalancer.ingress").iter().enumerate() {
            if !point.text("ip").is_empty() {
                ip::warn_address(&path.index(index), point.text("ip"), out);
            }
        }
    }
}

impl Excuses {
    fn of(old: &Value) -> Self {
        let bad_secret = |tls: &Value| !secret_name(tls.text("secretName")).is_empty();
        let bad_wildcard = |rule: &Value| {
            let mut errors = Errors::default();
            if rule.text("host").contains('*') {
                validate_paths(&Path::Root(""), rule, &mut errors);
            }
            !errors.is_empty()
        };
        Self {
            secret_names: old.items("tls").iter().any(bad_secret),
            wildcard_rules: old.items("rules").iter().any(bad_wildcard),
        }
    }
}

fn class_annotation(object: &Value) -> Option<&str> {
    object.at("metadata.annotations").get(INGRESS_CLASS)?.as_str()
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { names::name_is_subdomain(name, false) }
}

fn validate_spec(spec: &Value, excuses: Excuses, errors: &mut Errors) {
    let path = Path::Root("spec");
    let rules = spec.items("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        errors.invalid(&path, spec.at("rules"), "either `defaultBackend` or `rules` must be specified");
    }
    if spec.has("defaultBackend") {
        validate_backend(&path.child("defaultBackend"), spec.at("defaultBackend"), errors);
    }
    let rules_path = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(&rules_path.index(index), rule, excuses, errors);
    }
    let tls_path = path.child("tls");
    for (index, tls) in spec.items("tls").iter().enumerate() {
        validate_tls(&tls_path.index(index), tls, excuses, errors);
    }
    if let Some(class) = spec.at("ingressClassName").as_str() {
        report(&path.child("ingressClassName"), class, names::name_is_subdomain(class, false), errors);
    }
}

fn validate_rule(path: &Path<'_>, rule: &Value, excuses: Excuses, errors: &mut Errors) {
    let host = rule.text("host");
    if !host.is_empty() {
        let path = path.child("host");
        if ip::parse_lenient(host).is_some() {
            errors.invalid(&path, host, "must be a DNS name, not an IP address");
        }
        report(&path, host, host_or_wildcard(host), errors);
    }
    if !host.contains('*') || !excuses.wildcard_rules {
        validate_paths(path, rule, errors);
    }
}

fn validate_paths(path: &Path<'_>, rule: &Value, errors: &mut Errors) {
    if !rule.has("http") {
        return;
    }
    let http = path.child("http");
    let paths = http.child("paths");
    if rule.items("http.paths").is_empty() {
        errors.required(&paths, "");
    }
    for (index, item) in rule.items("http.paths").iter().enumerate() {
        validate_path(&paths.index(index), item, errors);
    }
}

fn validate_path(path: &Path<'_>, item: &Value, errors: &mut Errors) {
    let Some(kind) = item.at("pathType").as_str() else {
        errors.required(&path.child("pathType"), "pathType must be specified");
        return;
    };
    let (text, here) = (item.text("path"), path.child("path"));
    match kind {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.invalid(&here, text, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
                errors.invalid(&here, text, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
                errors.invalid(&here, text, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(&here, text, "must be an absolute path");
            }
        }
        _ => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), kind, &known);
        }
    }
    validate_backend(&path.child("backend"), item.at("backend"), errors);
}

fn validate_backend(path: &Path<'_>, backend: &Value, errors: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => validate_reference(&path.child("resource"), backend.at("resource"), errors),
        (false, true) => validate_service(path, backend.at("service"), errors),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_service(path: &Path<'_>, service: &Value, errors: &mut Errors) {
    let service_path = path.child("service");
    let name = service.text("name");
    if name.is_empty() {
        errors.required(&service_path.child("name"), "");
    } else {
        report(&service_path.child("name"), name, names::name_is_label(name, false), errors);
    }
    let port_path = service_path.child("port");
    let (port_name, number) = (service.text("port.name"), service.int("port.number"));
    match (port_name, number) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", _) => {
            for detail in names::port_number(number) {
                errors.invalid(&port_path.child("number"), number, &detail);
            }
        }
        (_, 0) => report(&port_path.child("name"), port_name, names::port_name(port_name), errors),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

/// A reference to an object of any kind: group, kind and name.
pub(super) fn validate_reference(path: &Path<'_>, reference: &Value, errors: &mut Errors) {
    if let Some(group) = reference.at("apiGroup").as_str() {
        report(&path.child("apiGroup"), group, names::dns_subdomain(group), errors);
    }
    for field in ["kind", "name"] {
        let text = reference.text(field);
        if text.is_empty() {
            errors.required(&path.child(field), "");
        }
        report(&path.child(field), text, names::name_is_path_segment(text, false), errors);
    }
}

fn validate_tls(path: &Path<'_>, tls: &Value, excuses: Excuses, errors: &mut Errors) {
    let hosts = path.child("hosts");
    for (index, host) in tls.texts("hosts").into_iter().enumerate() {
        report(&hosts.index(index), host, host_or_wildcard(host), errors);
    }
    if !excuses.secret_names {
        let name = tls.text("secretName");
        report(&path.child("secretName"), name, secret_name(name), errors);
    }
}

/// The first hosts. kube-apiserver counts rules, not hosts, once there are too many.
fn hosts_cell(rules: &[Value]) -> String {
    let named = || rules.iter().enumerate().filter(|(_, rule)| !rule.text("host").is_empty());
    let shown: Vec<&str> = named().take(SHOWN).map(|(_, rule)| rule.text("host")).collect();
    match (shown.is_empty(), named().nth(SHOWN - 1)) {
        (true, _) => "*".to_owned(),
        (false, Some((last, _))) if last + 1 < rules.len() => {
            format!("{} + {} more...", shown.join(","), rules.len() - SHOWN)
        }
        _ => shown.join(","),
    }
}

fn address_cell(points: &[Value]) -> String {
    let mut addresses: Vec<&str> = points
        .iter()
        .map(|point| crate::table::or(point.text("ip"), point.text("hostname")))
        .filter(|text| !text.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

#[cfg(test)]
mod tests;
