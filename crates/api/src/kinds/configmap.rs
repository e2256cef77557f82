//! ConfigMap: text and binary entries under file-like keys, optionally frozen.

use serde_json::Value;

use super::common::{report, same};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// How many bytes the values of a ConfigMap or Secret may have together.
pub(super) const MAX_SIZE: usize = 1024 * 1024;

/// What a write to a frozen ConfigMap or Secret is answered with.
pub(super) const FROZEN: &str = "field is immutable when `immutable` is set";

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    schema: "core.ConfigMap",
    table: "configmaps",
    table_view: &TABLE,
    ..Kind::common(&ConfigMapRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("Data", "How many entries there are."), AGE],
    row: |object, now| {
        let entries =
            object.map("data").map_or(0, |map| map.len()) + object.map("binaryData").map_or(0, |map| map.len());
        vec![object.text("metadata.name").into(), entries.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        let mut size = 0;
        let (data, binary) = (object.map("data"), object.map("binaryData"));
        for (key, value) in data.into_iter().flatten() {
            let path = Path::Root("data");
            report(&path.key(key), key, names::config_key(key), errors);
            if binary.is_some_and(|binary| binary.contains_key(key)) {
                errors.invalid(&path.key(key), key.as_str(), "duplicate of key present in binaryData");
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in binary.into_iter().flatten() {
            report(&Path::Root("binaryData").key(key), key, names::config_key(key), errors);
            size += decoded_len(value);
        }
        if size > MAX_SIZE {
            errors.too_long(&Path::Root("[]"), MAX_SIZE);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        check_frozen(new, old, &["data", "binaryData"], errors);
        self.validate_create(new, errors);
    }
}

/// Refuses changes of `fields`, and thawing, once `immutable` is set.
pub(super) fn check_frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !old.flag("immutable") {
        return;
    }
    if !new.flag("immutable") {
        errors.forbidden(&Path::Root("immutable"), FROZEN);
    }
    for field in fields {
        if !same(new.at(field), old.at(field)) {
            errors.forbidden(&Path::Root(field), FROZEN);
        }
    }
}

/// The decoded length of a base64 string in bytes.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default().trim_end_matches('=');
    text.len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("config-lease-event", &KIND);
    }

    #[test]
    fn values_have_a_limit() {
        let object = json!({
            "metadata": {"name": "c", "namespace": "n"},
            "data": {"a": "x".repeat(MAX_SIZE - 2)}, "binaryData": {"b": "AAAA"},
        });
        assert_eq!(
            summary(|errors| ConfigMapRules.validate_create(&object, errors)),
            "[]: Too long: may not be more than 1048576 bytes"
        );
    }

    #[test]
    fn decoded_lengths() {
        for (text, len) in [("", 0), ("AA==", 1), ("AAA=", 2), ("AAAA", 3)] {
            assert_eq!(decoded_len(&json!(text)), len);
        }
    }
}
