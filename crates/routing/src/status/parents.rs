//! Merges entries of ours into a list that several controllers share: parents of a route, ancestors of a policy.

use api::value::ValueExt as _;
use api::view::gateway_api::CONTROLLER;
use serde_json::{Value, json};

use super::{Found, conditions};
use crate::cluster::Verdict;

/// A list of entries, by the name of the member that says what an entry is about.
pub(super) struct Shared {
    reference: &'static str,
}

pub(super) const PARENTS: Shared = Shared { reference: "parentRef" };
pub(super) const ANCESTORS: Shared = Shared { reference: "ancestorRef" };

/// An entry: what it is about, and its conditions.
type Own<'a> = (Value, Vec<(&'static str, Option<&'a Verdict>)>);

impl Shared {
    /// Entries keep their place. Those of other controllers stay, those of ours that are not in `own` are removed, and new
    /// ones are appended.
    pub(super) fn merge(&self, stored: &[Value], mut own: Vec<Own<'_>>, generation: i64, now: &str) -> Vec<Value> {
        let mut list = Vec::new();
        for entry in stored {
            if entry.text("controllerName") != CONTROLLER {
                list.push(entry.clone());
                continue;
            }
            let reference = entry.at(self.reference);
            if let Some(place) = own.iter().position(|(own, _)| own == reference) {
                let (reference, found) = own.remove(place);
                list.push(self.entry(&reference, entry.items("conditions"), &found, generation, now));
            }
        }
        list.extend(own.into_iter().map(|(reference, found)| self.entry(&reference, &[], &found, generation, now)));
        list
    }

    fn entry(&self, reference: &Value, stored: &[Value], found: &Found<'_>, generation: i64, now: &str) -> Value {
        let conditions = conditions::merge(stored, found, generation, now);
        json!({ self.reference: reference, "controllerName": CONTROLLER, "conditions": conditions })
    }
}
