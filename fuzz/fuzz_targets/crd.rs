//! A CustomResourceDefinition as a whole: decoded, defaulted, validated, updated, and if it is valid compiled and made to show its
//! own objects. What was validated once is validated again the same way, and a valid definition may be updated to itself.
#![no_main]

use api::crd::{columns, condition, delete, deprecation_warning, served_versions};
use api::custom::Definition;
use api::decode;
use api::field::Errors;
use api::kinds::customresourcedefinition::KIND;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn errors_of(definition: &Value) -> Errors {
    let mut errors = Errors::default();
    KIND.rules.validate_create(definition, &mut errors);
    errors
}

/// What the server does with the objects of a version, on an object that has nothing and one that has too much.
fn serve(version: &Definition) {
    let objects =
        [json!({}), json!({"metadata": {"name": "a"}, "spec": {"replicas": 1, "list": [1, "a", null]}, "status": {}})];
    for mut object in objects {
        version.schema().prune(&mut object);
        version.schema().apply_defaults(&mut object);
        let mut errors = Errors::default();
        version.schema().validate(&object, None, None, &mut errors);
        version.rules.validate(version.schema(), &object, None, &mut errors, &mut Vec::new());
        let _ = columns::row(&version.columns, &object, Timestamp::UNIX_EPOCH);
        let _ = version.selectable.values(&object);
        if let Some(scale) = &version.scale {
            let _ = api::crd::scale::show(scale, &object);
        }
    }
    let _ = version.columns.definitions();
}

fuzz_target!(|data: &[u8]| {
    let Ok(decoded) = decode::decode_json(KIND.type_id(), data) else { return };
    let mut definition = decoded.value;
    KIND.rules.default(&mut definition);
    KIND.rules.prepare_create(&mut definition);
    let errors = errors_of(&definition);
    assert_eq!(errors.0, errors_of(&definition).0, "validation depends on something else");
    KIND.rules.warnings(&definition, None, &mut Vec::new());
    if !errors.is_empty() {
        return;
    }
    let mut updated = definition.clone();
    KIND.rules.prepare_update(&mut updated, &definition);
    // A definition without a resourceVersion may not be updated; that does not depend on its content.
    let mut errors = Errors::default();
    KIND.rules.validate_update(&updated, &definition, &mut errors);
    errors.0.retain(|error| error.field != "metadata.resourceVersion");
    assert!(errors.is_empty(), "a valid definition may be written again: {errors:?}");
    for version in served_versions(&definition) {
        let _ = deprecation_warning(&definition, version);
    }
    Definition::all(&definition, 1).iter().for_each(serve);
    KIND.rules.mark_deleted(&mut definition);
    let _ = (delete::is_due(&definition), condition::is_true(&definition, condition::ESTABLISHED));
});
