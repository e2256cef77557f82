//! A schema of a definition, a zero byte, and an object: the schema is checked with its rules; if it is valid, the object is pruned,
//! defaulted and validated. Doing any of it again changes nothing.
#![no_main]

use api::field::{Errors, Path};
use api::structural::Structural;
use api::structural::check::{self, check_schema};
use api::structural::rules::{self, Compiled, check_rules};
use api::{decode, schema};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The schema as the server decodes it, and whether a definition may have it.
fn accepted(text: &[u8]) -> Option<(Structural, bool)> {
    let mut parsed: Value = serde_json::from_slice(text).ok()?;
    decode::check(schema::named("apiextensions.JSONSchemaProps"), &mut parsed).ok()?;
    let (path, mut errors) = (Path::Root("schema"), Errors::default());
    let compile = check_schema(&parsed, &path, &check::Options::default(), &mut errors);
    // What is not structural is only parsed: objects never meet it.
    let structural = Structural::parse(&parsed);
    check_rules(&structural, &path, &rules::Options { compile, ..rules::Options::default() }, &mut errors);
    Some((structural, compile && errors.is_empty()))
}

fn errors_of(schema: &Structural, compiled: &Compiled, object: &Value, old: Option<&Value>) -> (Errors, Vec<String>) {
    let (mut errors, mut warnings) = (Errors::default(), Vec::new());
    schema.validate(object, old, None, &mut errors);
    if !rules::blocks(&errors) {
        compiled.validate(schema, object, old, &mut errors, &mut warnings);
    }
    (errors, warnings)
}

fuzz_target!(|data: &[u8]| {
    let (text, body) = common::halves(data);
    let Some((schema, true)) = accepted(text) else { return };
    let compiled = Compiled::new(&schema);
    let Ok(mut object) = serde_json::from_slice::<Value>(body) else { return };
    if !object.is_object() {
        return;
    }
    let _ = schema.prune_strict(&mut object.clone());
    schema.prune(&mut object);
    let mut again = object.clone();
    assert!(schema.prune(&mut again).is_empty(), "unknown fields are left");
    assert_eq!(again, object, "pruning again changes something");
    let before = object.clone();
    schema.apply_defaults(&mut object);
    let mut again = object.clone();
    schema.apply_defaults(&mut again);
    assert_eq!(again, object, "defaulting again changes something");

    let first = errors_of(&schema, &compiled, &object, None);
    assert_eq!(first.0.0, errors_of(&schema, &compiled, &object, None).0.0, "validation depends on something else");
    let _ = errors_of(&schema, &compiled, &object, Some(&before));
    let _ = errors_of(&schema, &compiled, &object, Some(&object));
});
