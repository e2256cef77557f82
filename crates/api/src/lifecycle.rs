//! Creation, update and deletion of objects, independent of their kind.
//!
//! In: objects and the requested operations; time and randomness come from the caller. Out: the same objects with the metadata that the
//! server maintains. The verbs and the controllers share this code, so an object that a controller writes looks as if a client had sent it.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::kind::Kind;
use crate::options::Propagation;
use crate::value::ValueExt as _;

/// Characters of generated names: no vowels, so that names form no words.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them a generated name ends in.
const SUFFIX_LENGTH: usize = 5;
/// How long a generated name may be before its suffix.
const PREFIX_LIMIT: usize = 58;
/// Keeps an object until its dependents are gone.
const FOREGROUND: &str = "foregroundDeletion";
/// Keeps an object until its dependents have let go of it.
const ORPHAN: &str = "orphan";

/// A time as `metav1.Time` writes it.
#[must_use]
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A name that starts with `base` and ends in five characters that `pick` chooses: it returns a number below its argument. A long base is
/// truncated so that the name stays a valid label.
pub fn generate_name(base: &str, mut pick: impl FnMut(usize) -> usize) -> String {
    let mut name = base[..base.floor_char_boundary(PREFIX_LIMIT)].to_owned();
    name.extend((0..SUFFIX_LENGTH).map(|_| char::from(SUFFIX[pick(SUFFIX.len()) % SUFFIX.len()])));
    name
}

/// Sets the generation of a changed object: incremented when its kind has a new one, else unchanged. What a client sent
/// there counts for nothing.
pub fn set_generation(kind: &Kind, new: &mut Value, old: &Value) {
    if !kind.generation {
        keep_generation(new, old);
        return;
    }
    let step = i64::from(kind.rules.new_generation(new, old));
    new.put("metadata.generation", old.int("metadata.generation") + step);
}

/// Keeps the generation: nothing changed that an author specifies.
pub fn keep_generation(new: &mut Value, old: &Value) {
    match old.get("metadata").and_then(|metadata| metadata.get("generation")) {
        Some(generation) => new.put("metadata.generation", generation.clone()),
        None => drop(new.drop_path("metadata.generation")),
    }
}

/// Marks an object as deleted, with the finalizer that the propagation policy requires. An object that is already being deleted keeps its
/// mark, unless the grace period becomes shorter.
pub fn mark_deleted(
    kind: &Kind,
    object: &mut Value,
    grace: Option<i64>,
    propagation: Option<Propagation>,
    now: Timestamp,
) {
    let deleting = object.has("metadata.deletionTimestamp");
    set_propagation(object, propagation);
    let grace = kind.rules.grace_period(object, grace);
    let before = object.at("metadata.deletionGracePeriodSeconds").as_i64();
    if deleting && before.is_none_or(|before| grace >= before) {
        return;
    }
    let deadline = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    object.put("metadata.deletionTimestamp", seconds(deadline));
    object.put("metadata.deletionGracePeriodSeconds", grace);
    if kind.generation && !deleting {
        object.put("metadata.generation", object.int("metadata.generation") + 1);
    }
    kind.rules.mark_deleted(object);
}

/// The propagation policy of a deletion that sets none: some kinds orphan their dependents, unless a finalizer of the object requires
/// otherwise.
#[must_use]
pub fn default_propagation(kind: &Kind, object: &Value) -> Option<Propagation> {
    if !kind.rules.orphans_dependents() {
        return None;
    }
    let finalizers = object.texts("metadata.finalizers");
    let decided = finalizers.iter().any(|have| [ORPHAN, FOREGROUND].contains(have));
    (!decided).then_some(Propagation::Orphan)
}

/// Whether nothing holds a deleted object any more: no finalizer, nothing of its kind, no time left to go.
#[must_use]
pub fn is_released(kind: &Kind, object: &Value) -> bool {
    let graceful = object.int("metadata.deletionGracePeriodSeconds") > 0;
    object.items("metadata.finalizers").is_empty() && !kind.rules.is_held(object) && !graceful
}

/// The two propagations that need a finalizer exclude each other: the last wish counts.
fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let (added, dropped) = match propagation {
        Some(Propagation::Foreground) => (FOREGROUND, ORPHAN),
        Some(Propagation::Orphan) => (ORPHAN, FOREGROUND),
        Some(Propagation::Background) | None => return,
    };
    let mut finalizers: Vec<String> = object.texts("metadata.finalizers").into_iter().map(str::to_owned).collect();
    finalizers.retain(|have| have != dropped);
    if !finalizers.iter().any(|have| have == added) {
        finalizers.push(added.to_owned());
    }
    object.put("metadata.finalizers", finalizers);
}
