//! Sets of paths in the other versions of the same object.
//!
//! An Event of core and of `events.k8s.io` is the same stored object with other names for some of its members. Custom
//! kinds have any number of versions with schemas of their own, in which paths are equal. In: paths of one version, or
//! two objects. Out: paths of the other version, or nothing for a version that is gone, and the [`Differences`] of the
//! objects in the version of each owner.

use std::borrow::Cow;

use serde_json::Value;

use super::element::Element;
use super::fieldset::Set;
use super::object_type::ObjectType;
use super::walk::{Difference, compare};

/// The members of an Event, as core and as `events.k8s.io` call them.
const EVENT: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

const CORE: &str = "v1";
const EVENTS: &str = "events.k8s.io/v1";

/// The paths of `from` as paths of `to`; `None` when the kind has no such version.
pub(super) fn translate<'a>(set: Set<'a>, ty: ObjectType<'_>, from: &str, to: &str) -> Option<Set<'a>> {
    if from == to {
        return Some(set);
    }
    let is_event = match ty {
        ObjectType::Table(ty) => matches!(ty.get().name, "core.Event" | "events.Event"),
        ObjectType::Custom(custom) => {
            return [from, to].iter().all(|version| custom.schema_of(version).is_some()).then_some(set);
        }
    };
    let forward = match (from, to) {
        (CORE, EVENTS) if is_event => true,
        (EVENTS, CORE) if is_event => false,
        _ => return None,
    };
    let mut out = Set::default();
    for mut entry in set.into_entries() {
        let renamed = match &entry.at {
            Element::Field(name) => EVENT.iter().find_map(|(core, events)| {
                let (old, new) = if forward { (core, events) } else { (events, core) };
                (old == name).then_some(*new)
            }),
            _ => None,
        };
        if let Some(name) = renamed {
            entry.at = Element::Field(Cow::Borrowed(name));
        }
        out.push(entry.at, entry.own, entry.below);
    }
    Some(out)
}

/// In what two objects differ, in every version that owners use.
pub(super) struct Differences<'a> {
    ty: ObjectType<'a>,
    old: &'a Value,
    new: &'a Value,
    reset: &'a Set<'static>,
    /// In the version of the request.
    pub(super) own: Difference<'a>,
    /// In versions with another schema.
    others: Vec<(&'a str, Difference<'a>)>,
}

impl<'a> Differences<'a> {
    /// Compares two complete objects of the version of the request, leaving out the `reset` fields.
    ///
    /// # Errors
    /// The words for a list item that has no identity.
    pub(super) fn new(
        ty: ObjectType<'a>,
        old: &'a Value,
        new: &'a Value,
        reset: &'a Set<'static>,
    ) -> Result<Self, String> {
        let own = compare(ty.root(), old, new).map_err(|why| format!("failed to compare objects: {why}"))?;
        Ok(Self { ty, old, new, reset, own: own.without(reset), others: Vec::new() })
    }

    /// The difference in the version of an owner whose paths are already translated.
    ///
    /// # Errors
    /// What does not fit the schema of that version.
    pub(super) fn of(&mut self, api_version: &'a str) -> Result<&Difference<'a>, String> {
        let Some(root) = self.ty.other_root(api_version) else { return Ok(&self.own) };
        let index = match self.others.iter().position(|(version, _)| *version == api_version) {
            Some(index) => index,
            None => {
                for (name, object) in [("old", self.old), ("new", self.new)] {
                    let fits = self.ty.check_in(api_version, object);
                    fits.map_err(|why| format!("failed to convert {name} object: {why}"))?;
                }
                let other = compare(root, self.old, self.new);
                let other = other.map_err(|why| format!("failed to compare objects: {why}"))?;
                self.others.push((api_version, other.without(self.reset)));
                self.others.len() - 1
            }
        };
        Ok(self.others.get(index).map_or(&self.own, |(_, difference)| difference))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    #[test]
    fn events_are_renamed_and_other_versions_forgotten() {
        let fields = json!({"f:note": {}, "f:regarding": {"f:name": {}}, "f:type": {}});
        let set = Set::decode(&fields).expect("a set");
        let event = ObjectType::Table(schema::named("core.Event"));
        let core = translate(set.clone(), event, "events.k8s.io/v1", "v1").expect("served");
        assert_eq!(core.encode(), json!({"f:message": {}, "f:involvedObject": {"f:name": {}}, "f:type": {}}));
        assert_eq!(translate(core, event, "v1", "events.k8s.io/v1"), Some(set.clone()));
        assert_eq!(translate(set.clone(), event, "v2", "v1"), None);
        assert_eq!(translate(set, schema::named("core.Service").into(), "events.k8s.io/v1", "v1"), None);
    }
}
