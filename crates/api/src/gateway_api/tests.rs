//! The definitions are valid, small, and installed where nothing else is.

mod installation;
mod upstream;

use std::collections::BTreeSet;

use super::*;
use crate::field::Errors;
use crate::kinds::customresourcedefinition::KIND;
use crate::value::ValueExt as _;

const CHANNELS: [Channel; 2] = [Channel::Standard, Channel::Experimental];

fn definitions(channel: Channel) -> Vec<Value> {
    builders(channel).map(|builder| builder.definition(channel)).collect()
}

#[test]
fn definitions_pass_the_validation_of_definitions() {
    let mut all = Vec::new();
    for channel in CHANNELS {
        for (builder, mut definition) in builders(channel).zip(definitions(channel)) {
            let unchanged = definition.at("spec").clone();
            KIND.rules.default(&mut definition);
            assert!(*definition.at("spec") == unchanged, "{}: nothing is left to defaults", builder.name);
            assert_eq!(definition.text("metadata.name"), builder.name);
            KIND.rules.prepare_create(&mut definition);
            let mut errors = Errors::default();
            KIND.rules.validate_create(&definition, &mut errors);
            if !errors.is_empty() {
                all.push(format!("{} {}: {}", builder.name, channel.name(), errors.summary()));
            }
        }
    }
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn channels_contain_the_kinds_of_the_bundle() {
    let kinds = |channel| -> BTreeSet<String> {
        definitions(channel).iter().map(|one| one.text("spec.names.kind").to_owned()).collect()
    };
    let (standard, experimental) = (kinds(Channel::Standard), kinds(Channel::Experimental));
    assert_eq!(standard.len(), 10);
    let added: Vec<&String> = experimental.difference(&standard).collect();
    assert_eq!(added, ["XBackend", "XBackendTrafficPolicy", "XMesh", "XTelemetryPolicy"]);
    assert!(standard.is_subset(&experimental));
}

#[test]
fn every_field_is_described() {
    fn check(schema: &Value, path: &str) {
        for (name, field) in schema.map("properties").into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(name == "metadata" || !field.text("description").is_empty(), "{path}");
            check(field, &path);
        }
        check_parts(schema, path);
    }
    fn check_parts(schema: &Value, path: &str) {
        for part in ["items", "additionalProperties"] {
            if schema.has(part) {
                check(schema.at(part), &format!("{path}[]"));
            }
        }
    }
    for definition in definitions(Channel::Experimental) {
        for version in definition.items("spec.versions") {
            let schema = version.at("schema.openAPIV3Schema");
            assert!(!schema.text("description").is_empty());
            check(schema, definition.text("spec.names.kind"));
        }
    }
}

/// Stored definitions are replaced only when the revision says so: whoever changes a definition changes both.
#[test]
fn the_revision_counts_changes_of_definitions() {
    let all: Vec<Value> = CHANNELS.into_iter().flat_map(definitions).collect();
    let fingerprint = crate::hash::fnv1a32(Value::from(all).to_string().as_bytes());
    assert_eq!((BUNDLE_VERSION, install::REVISION, fingerprint), ("v1.7.0", 1, 1_900_544_104));
}
