//! APIService: another server that would serve a version of a group. Requests are not passed on to it.

use serde_json::Value;

use super::super::common::report;
use super::{SPEC, Stored, set};
use crate::field::{Errors, Path};
use crate::kind::{Kind, status_of};
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    namespaced: false,
    schema: "apiregistration.APIService",
    table: "apiservices",
    unconditional_update: false,
    subresources: &[status_of("APIService")],
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored {
    namespaced: false,
    name: names::name_is_path_segment,
    default: |object| {
        if object.has("spec.service") {
            set(object, "spec.service.port", 443);
        }
    },
    validate,
    ..Stored::new("apiregistration.k8s.io/v1", "APIService")
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Service", "The Service of the server; Local: this server."),
        column("Available", "Whether the server can be reached."),
        AGE,
    ],
    row: |object, now| {
        let service = match object.at("spec.service") {
            Value::Null => "Local".to_owned(),
            service => format!("{}/{}", service.text("namespace"), service.text("name")),
        };
        let available = object.items("status.conditions").iter().find(|one| one.text("type") == "Available");
        let available = match available {
            None => "Unknown".to_owned(),
            Some(one) if one.text("status") == "True" => "True".to_owned(),
            Some(one) => format!("{} ({})", one.text("status"), one.text("reason")),
        };
        vec![object.text("metadata.name").into(), service.into(), available.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

fn validate(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let (group, version) = (spec.text("group"), spec.text("version"));
    let (wanted, name) = (format!("{version}.{group}"), object.text("metadata.name"));
    if name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", crate::field::quote(&wanted));
        errors.invalid(&Path::Root("metadata").child("name"), name, &detail);
    }
    if !group.is_empty() {
        report(&SPEC.child("group"), group, names::dns_subdomain(group), errors);
    } else if version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.required(&SPEC.child("group"), detail);
    }
    report(&SPEC.child("version"), version, names::dns_1035_label(version), errors);
    for (field, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let priority = spec.int(field);
        if !(1..=max).contains(&priority) {
            errors.invalid(&SPEC.child(field), priority, &format!("must be positive and less than {max}"));
        }
    }
    validate_server(spec, errors);
}

fn validate_server(spec: &Value, errors: &mut Errors) {
    let (insecure, bundle) = (SPEC.child("insecureSkipTLSVerify"), spec.text("caBundle"));
    let service = spec.at("service");
    if service.is_null() {
        if !bundle.is_empty() {
            // The length of the bytes, of which three are four characters.
            let bytes = bundle.trim_end_matches('=').len() * 3 / 4;
            let detail = "local APIServices may not have a caBundle";
            errors.invalid(&SPEC.child("caBundle"), format!("{bytes} bytes"), detail);
        }
        if spec.flag("insecureSkipTLSVerify") {
            let flag = spec.at("insecureSkipTLSVerify");
            errors.invalid(&insecure, flag, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    let path = SPEC.child("service");
    for field in ["namespace", "name"] {
        if service.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    let wrong = names::port_number(service.int("port"));
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.invalid(&path.child("port"), service.int("port"), &detail);
    }
    if spec.flag("insecureSkipTLSVerify") && !bundle.is_empty() {
        let flag = spec.at("insecureSkipTLSVerify");
        errors.invalid(&insecure, flag, "may not be true if caBundle is present");
    }
}
