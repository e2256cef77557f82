//! When definitions are installed, and what is written.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::crd::approval;
use crate::crd::condition::{self, API_APPROVED, ESTABLISHED};
use crate::crd::names;
use crate::gateway_api::install::{Record, Stored, object};
use crate::object::{decode_light, encode};
use crate::view;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn installed(channel: Channel, index: usize, old: Option<Value>) -> Value {
    let builder = builders(channel).nth(index).expect("a builder");
    object(builder, channel, old, &[], now(), "u")
}

fn is_outdated(definition: &Value, record: &Record, channel: Channel) -> bool {
    let stored: Stored = view::parse(&encode(definition)).expect("a definition");
    stored.is_outdated(record, channel)
}

#[test]
fn installed_definitions_are_served_at_once() {
    for channel in CHANNELS {
        let mut others: Vec<Value> = Vec::new();
        for builder in builders(channel) {
            let definition = object(builder, channel, None, &others.iter().collect::<Vec<_>>(), now(), "u");
            assert!(condition::is_true(&definition, ESTABLISHED), "{}", builder.name);
            let is_protected = approval::is_protected(definition.text("spec.group"));
            assert_eq!(condition::is_true(&definition, API_APPROVED), is_protected, "{}", builder.name);
            assert_eq!(definition.at("status.acceptedNames"), definition.at("spec.names"));
            assert_eq!(definition.items("status.storedVersions").len(), 1);
            assert_eq!(names::status(&definition, &others.iter().collect::<Vec<_>>(), now()), None);
            others.push(decode_light(&encode(&definition)));
        }
    }
}

#[test]
fn unchanged_definitions_are_replaced_when_the_channel_changes() {
    let old = installed(Channel::Standard, 2, None);
    let record = Record::of(&old, Channel::Standard);
    assert!(!is_outdated(&old, &record, Channel::Standard) && is_outdated(&old, &record, Channel::Experimental));
    let mut with_label = old.clone();
    with_label["metadata"]["labels"] = json!({"mine": "1"});
    let new = installed(Channel::Experimental, 2, Some(with_label));
    assert_eq!(new.int("metadata.generation"), 2);
    assert_eq!(new.at("metadata.labels"), &json!({"mine": "1"}));
    assert_eq!(new.at("metadata.uid"), old.at("metadata.uid"));
    assert_eq!(new.at("status"), old.at("status"));
    assert_ne!(new.at("spec"), old.at("spec"));
    let record = Record::of(&new, Channel::Experimental);
    assert!(!is_outdated(&new, &record, Channel::Experimental) && is_outdated(&new, &record, Channel::Standard));
}

#[test]
fn definitions_of_others_are_kept() {
    let ours = installed(Channel::Standard, 2, None);
    let record = Record::of(&ours, Channel::Standard);
    let mut again = ours.clone();
    again.put("metadata.uid", "v");
    let mut changed = ours.clone();
    changed.put("metadata.generation", 2);
    let mut newer = ours.clone();
    newer["metadata"]["annotations"]["gateway.networking.k8s.io/bundle-version"] = json!("v1.8.0");
    let mut bare = ours.clone();
    bare.drop_path("metadata.annotations");
    let mut deleted = ours;
    deleted.put("metadata.deletionTimestamp", "2026-01-02T03:04:05Z");
    for kept in [again, changed, newer, bare, deleted] {
        assert!(!is_outdated(&kept, &record, Channel::Experimental), "{}", kept.at("metadata"));
    }
}
