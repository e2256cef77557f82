//! Sets of paths in the other version of the same object.
//!
//! One kind is served in two versions: an Event of core and of `events.k8s.io` is the same stored object with other
//! names for some of its members. In: paths of one version. Out: paths of the other, or nothing for a version that is
//! not served. Renaming paths is enough, because the members differ in name only.

use std::borrow::Cow;

use super::element::Element;
use super::fieldset::Set;
use crate::schema::TypeId;

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
pub(super) fn translate<'a>(set: Set<'a>, ty: TypeId, from: &str, to: &str) -> Option<Set<'a>> {
    if from == to {
        return Some(set);
    }
    let is_event = matches!(ty.get().name, "core.Event" | "events.Event");
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    #[test]
    fn events_are_renamed_and_other_versions_forgotten() {
        let fields = json!({"f:note": {}, "f:regarding": {"f:name": {}}, "f:type": {}});
        let set = Set::decode(&fields).expect("a set");
        let event = schema::named("core.Event");
        let core = translate(set.clone(), event, "events.k8s.io/v1", "v1").expect("served");
        assert_eq!(core.encode(), json!({"f:message": {}, "f:involvedObject": {"f:name": {}}, "f:type": {}}));
        assert_eq!(translate(core, event, "v1", "events.k8s.io/v1"), Some(set.clone()));
        assert_eq!(translate(set.clone(), event, "v2", "v1"), None);
        assert_eq!(translate(set, schema::named("core.Service"), "events.k8s.io/v1", "v1"), None);
    }
}
