//! IPPool: addresses that Services of type LoadBalancer get, and who may have them.
//!
//! A kind of our own: Kubernetes leaves this to clouds. What a pool means is in [`crate::pool`]; here are its defaults and checks.

use serde_json::{Map, Value, json};

use super::common::{one_of, report};
use super::workload::validate_labels_selector;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::pool::{Pool, Range};
use crate::table::{AGE, NAME, Table, age, column, integer_column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

const SPEC: Path<'static> = Path::Root("spec");

/// The ways to announce an address.
pub const WAYS: &[&str] = &["bgp", "l2"];

/// The kind.
pub static KIND: Kind = Kind {
    group: "waypost.dev",
    kind: "IPPool",
    plural: "ippools",
    singular: "ippool",
    short_names: &["pool"],
    namespaced: false,
    schema: "waypost.IPPool",
    table: "ippools",
    generation: true,
    subresources: &[status_of("IPPool")],
    table_view: &TABLE,
    ..Kind::common(&IpPoolRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Addresses", "The prefixes and ranges of the pool."),
        column("Auto Assign", "Whether Services that name no pool get addresses from it."),
        column("Internal", "Whether it is for internal load balancers."),
        integer_column("Assigned", "How many of its addresses Services have."),
        column("Capacity", "How many addresses there are."),
        AGE,
        wide_column("Announce", "How its addresses are announced."),
        wide_column("Priority", "Lower numbers are used first."),
    ],
    row: |object, now| {
        let capacity = Pool::from_object(object).capacity().to_string();
        vec![
            object.text("metadata.name").into(),
            or(&object.texts("spec.addresses").join(","), "<none>").into(),
            object.at("spec.autoAssign").as_bool().unwrap_or(true).to_string().into(),
            object.flag("spec.internal").to_string().into(),
            object.int("status.assigned").into(),
            capacity.into(),
            age(object, now).into(),
            object.texts("spec.announce").join(",").into(),
            object.int("spec.priority").to_string().into(),
        ]
    },
    conditions: no_conditions,
};

struct IpPoolRules;

impl Rules for IpPoolRules {
    fn default(&self, object: &mut Value) {
        if !object.has("spec.autoAssign") {
            object.put("spec.autoAssign", true);
        }
        if object.items("spec.announce").is_empty() {
            object.put("spec.announce", json!(["l2", "bgp"]));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", Map::new());
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    validate_addresses(&SPEC.child("addresses"), &spec.texts("addresses"), errors);
    let path = SPEC.child("namespaces");
    for (index, name) in spec.texts("namespaces").into_iter().enumerate() {
        report(&path.index(index), name, names::name_is_label(name, false), errors);
    }
    refuse_repeated(&path, &spec.texts("namespaces"), errors);
    if spec.has("serviceSelector") {
        validate_labels_selector(&SPEC.child("serviceSelector"), spec.at("serviceSelector"), errors);
    }
    let path = SPEC.child("announce");
    for (index, way) in spec.texts("announce").into_iter().enumerate() {
        one_of(&path.index(index), way, WAYS, errors);
    }
    refuse_repeated(&path, &spec.texts("announce"), errors);
}

/// Each entry must be readable, free of addresses that mean something else, and apart from the entries before it.
fn validate_addresses(path: &Path<'_>, texts: &[&str], errors: &mut Errors) {
    if texts.is_empty() {
        errors.required(path, "at least one prefix (192.0.2.0/28) or range (192.0.2.40-192.0.2.60)");
    }
    let mut before: Vec<(&str, Range)> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let path = path.index(index);
        match Range::parse(text) {
            Err(wrong) => errors.invalid(&path, *text, &wrong),
            Ok(range) => {
                if let Some(wrong) = range.special() {
                    errors.invalid(&path, *text, &wrong);
                } else if let Some((other, _)) = before.iter().find(|(_, other)| other.overlaps(&range)) {
                    errors.invalid(&path, *text, &format!("must not overlap with {other}, which is in this pool too"));
                }
                before.push((text, range));
            }
        }
    }
}

/// Rejects a duplicate value.
pub(super) fn refuse_repeated(path: &Path<'_>, words: &[&str], errors: &mut Errors) {
    for (index, word) in words.iter().enumerate().filter(|(index, word)| words[..*index].contains(word)) {
        errors.duplicate(&path.index(index), *word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::summary;

    fn check(spec: &Value) -> String {
        let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
        IpPoolRules.default(&mut object);
        summary(|errors| IpPoolRules.validate_create(&object, errors))
    }

    #[test]
    fn a_pool_needs_addresses_that_load_balancers_can_have() {
        assert_eq!(check(&json!({"addresses": ["192.0.2.0/28", "192.0.2.40-192.0.2.60", "2001:db8::/120"]})), "[]");
        assert!(check(&json!({})).starts_with("spec.addresses: Required value: at least one prefix"));
        assert_eq!(
            check(&json!({"addresses": ["192.0.2.0/28", "192.0.2.15-192.0.2.20"]})),
            "spec.addresses[1]: Invalid value: \"192.0.2.15-192.0.2.20\": must not overlap with 192.0.2.0/28, which is in \
             this pool too"
        );
        assert_eq!(
            check(&json!({"addresses": ["127.0.0.0/8"]})),
            "spec.addresses[0]: Invalid value: \"127.0.0.0/8\": must not reach into 127.0.0.0/8, which is loopback"
        );
        assert!(check(&json!({"addresses": ["192.0.2.1/28"]})).contains("write 192.0.2.0/28"));
    }

    #[test]
    fn whom_it_serves_must_make_sense() {
        let with = |more: Value| {
            let mut spec = json!({"addresses": ["192.0.2.1"]});
            spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            check(&spec)
        };
        assert_eq!(with(json!({"namespaces": ["a", "b"], "serviceSelector": {"matchLabels": {"x": "y"}}})), "[]");
        assert!(with(json!({"namespaces": ["A"]})).starts_with("spec.namespaces[0]: Invalid value: \"A\""));
        assert_eq!(with(json!({"namespaces": ["a", "a"]})), "spec.namespaces[1]: Duplicate value: \"a\"");
        assert_eq!(
            with(json!({"announce": ["arp"]})),
            "spec.announce[0]: Unsupported value: \"arp\": supported values: \"bgp\", \"l2\""
        );
        let wrong = with(json!({"serviceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}));
        assert!(wrong.starts_with("spec.serviceSelector.matchExpressions[0].values: Required value"), "{wrong}");
    }

    #[test]
    fn a_row_shows_what_is_there_and_what_is_given() {
        let object = json!({
            "metadata": {"name": "a"}, "status": {"assigned": 3},
            "spec": {"addresses": ["192.0.2.0/28"], "autoAssign": false, "announce": ["l2"]},
        });
        let cells = (TABLE.row)(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(json!(cells), json!(["a", "192.0.2.0/28", "false", "false", 3, "16", "<unknown>", "l2", "0"]));
    }
}
