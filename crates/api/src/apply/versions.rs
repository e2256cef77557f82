//! Sets of paths in the other versions of the same object.
//!
//! An Event of core and of `events.k8s.io` is the same stored object with other names for some of its members; so is an
//! autoscaler of `autoscaling/v1` and of `autoscaling/v2`, as far as both versions have a field for something. Custom
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

/// The members of the spec of an autoscaler, as `autoscaling/v1` and as `autoscaling/v2` call them.
const AUTOSCALER: &[(&str, &str)] = &[("targetCPUUtilizationPercentage", "metrics")];

const CORE: &str = "v1";
const EVENTS: &str = "events.k8s.io/v1";
const AUTOSCALING: [&str; 2] = ["autoscaling/v1", "autoscaling/v2"];

/// The paths of `from` as paths of `to`; `None` when the kind has no such version.
pub(super) fn translate<'a>(set: Set<'a>, ty: ObjectType<'_>, from: &str, to: &str) -> Option<Set<'a>> {
    if from == to {
        return Some(set);
    }
    let name = match ty {
        ObjectType::Table(ty) => ty.get().name,
        ObjectType::Custom(custom) => {
            return [from, to].iter().all(|version| custom.schema_of(version).is_some()).then_some(set);
        }
    };
    match (name, from, to) {
        ("core.Event" | "events.Event", CORE, EVENTS) => Some(rename(set, EVENT, true)),
        ("core.Event" | "events.Event", EVENTS, CORE) => Some(rename(set, EVENT, false)),
        ("autoscaling.HorizontalPodAutoscaler" | "autoscaling_v2.HorizontalPodAutoscaler", from, to)
            if AUTOSCALING.contains(&from) && AUTOSCALING.contains(&to) =>
        {
            let mut out = Set::default();
            for entry in set.into_entries() {
                let is_spec = matches!(&entry.at, Element::Field(name) if name == "spec");
                let below = if is_spec { rename(entry.below, AUTOSCALER, from == AUTOSCALING[0]) } else { entry.below };
                out.push(entry.at, entry.own, below);
            }
            Some(out)
        }
        _ => None,
    }
}

/// The set with the second names of members instead of the first, or the other way round.
fn rename<'a>(set: Set<'a>, names: &[(&'static str, &'static str)], forward: bool) -> Set<'a> {
    let mut out = Set::default();
    for mut entry in set.into_entries() {
        let renamed = match &entry.at {
            Element::Field(name) => names.iter().find_map(|(first, second)| {
                let (old, new) = if forward { (first, second) } else { (second, first) };
                (old == name).then_some(*new)
            }),
            _ => None,
        };
        if let Some(name) = renamed {
            entry.at = Element::Field(Cow::Borrowed(name));
        }
        out.push(entry.at, entry.own, entry.below);
    }
    out
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
    /// The message for a list item that has no identity.
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
        let is_opaque = self.ty.is_opaque();
        let index = match self.others.iter().position(|(version, _)| *version == api_version) {
            Some(index) => index,
            None if is_opaque => {
                // Metadata is the same in every version.
                let of_metadata =
                    Difference { changed: metadata(&self.own.changed), removed: metadata(&self.own.removed) };
                self.others.push((api_version, of_metadata));
                self.others.len() - 1
            }
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

/// The paths in the metadata of an object.
fn metadata<'a>(set: &Set<'a>) -> Set<'a> {
    let mut out = Set::default();
    for entry in set.clone().into_entries() {
        if matches!(&entry.at, Element::Field(name) if name == "metadata") {
            out.push(entry.at, entry.own, entry.below);
        }
    }
    out
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

    #[test]
    fn the_metric_of_an_autoscaler_is_owned_in_both_versions() {
        let older = json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:maxReplicas": {}, "f:targetCPUUtilizationPercentage": {}}});
        let set = Set::decode(&older).expect("a set");
        let scaler = ObjectType::Table(schema::named("autoscaling_v2.HorizontalPodAutoscaler"));
        let newer = translate(set.clone(), scaler, "autoscaling/v1", "autoscaling/v2").expect("served");
        let expected = json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:maxReplicas": {}, "f:metrics": {}}});
        assert_eq!(newer.encode(), expected);
        assert_eq!(translate(newer, scaler, "autoscaling/v2", "autoscaling/v1"), Some(set.clone()));
        assert_eq!(translate(set, scaler, "autoscaling/v2beta2", "autoscaling/v1"), None);
    }
}
