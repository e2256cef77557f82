//! IPAddress: that an address is taken, and by whom.

use serde_json::Value;

use super::common::{IMMUTABLE, report};
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{Column, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    namespaced: false,
    schema: "networking.IPAddress",
    table: "ipaddresses",
    table_view: &TABLE,
    ..Kind::common(&IpAddressRules)
};

const COLUMNS: &[Column] = &[NAME, column("ParentRef", "What the address belongs to.")];

// Kubernetes declares two columns and fills three cells; clients ignore the last one.
static TABLE: Table = Table {
    columns: COLUMNS,
    row: |object, now| vec![object.text("metadata.name").into(), parent_cell(object).into(), age(object, now).into()],
    conditions: no_conditions,
};

struct IpAddressRules;

impl Rules for IpAddressRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, name_rule, errors);
        validate_parent(object.at("spec.parentRef"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        meta::validate(new, false, name_rule, errors);
        let parent = new.at("spec.parentRef");
        if parent != old.at("spec.parentRef") {
            if parent.is_null() {
                errors.required(&Path::Root("spec.parentRef"), "");
            }
            validate_names(parent, errors);
            errors.invalid(&Path::Root("spec.parentRef"), Value::Null, IMMUTABLE);
        }
    }
}

/// The name is the address in canonical form; names are never generated.
fn name_rule(name: &str, _prefix: bool) -> Vec<String> {
    let mut errors = Errors::default();
    ip::check_canonical_address(&Path::Root(""), name, &mut errors);
    let prefix = format!("Invalid value: {}: ", crate::field::quote(name));
    errors.0.into_iter().map(|error| error.body.strip_prefix(&prefix).unwrap_or(&error.body).to_owned()).collect()
}

fn validate_parent(parent: &Value, errors: &mut Errors) {
    let path = Path::Root("spec.parentRef");
    if parent.is_null() {
        errors.required(&path, "");
        return;
    }
    validate_names(parent, errors);
    // Generated from the schema in kube-apiserver, so after the others.
    for field in ["resource", "name"] {
        if parent.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

fn validate_names(parent: &Value, errors: &mut Errors) {
    let path = Path::Root("spec.parentRef");
    let group = parent.text("group");
    if !group.is_empty() {
        report(&path.child("group"), group, names::dns_subdomain(group), errors);
    }
    for field in ["resource", "name", "namespace"] {
        let text = parent.text(field);
        report(&path.child(field), text, names::name_is_path_segment(text, false), errors);
    }
}

fn parent_cell(object: &Value) -> String {
    let parent = object.at("spec.parentRef");
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let mut text = parent.text("resource").to_lowercase();
    for (separator, part) in [(".", parent.text("group").to_lowercase()), ("/", parent.text("namespace").to_owned())] {
        if !part.is_empty() {
            text.push_str(separator);
            text.push_str(&part);
        }
    }
    format!("{text}/{}", parent.text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("servicecidr-ipaddress", &KIND);
    }

    #[test]
    fn the_parent_is_named() {
        let object = json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "web"}}});
        assert_eq!(parent_cell(&object), "services/n/web");
        let object = json!({"spec": {"parentRef": {"group": "a.b", "resource": "things", "name": "X"}}});
        assert_eq!(parent_cell(&object), "things.a.b/X");
    }

    #[test]
    fn names_are_canonical() {
        let object =
            json!({"metadata": {"name": "2001:DB8::1"}, "spec": {"parentRef": {"name": "a", "resource": "b"}}});
        assert_eq!(
            summary(|errors| IpAddressRules.validate_create(&object, errors)),
            "metadata.name: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")"
        );
    }
}
