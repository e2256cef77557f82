//! Merges conditions into a stored list.

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::Found;
use crate::cluster::{Tri, Verdict};

/// The longest message of a condition, in bytes.
const LONGEST: usize = 32_768;
/// The most conditions in a list.
const MOST: usize = 8;

/// Conditions keep their place; new ones are appended. Types that are not ours stay as they are, and so does a condition
/// that was derived from a later generation. The transition time moves with the status only.
pub(super) fn merge(stored: &[Value], found: &Found<'_>, generation: i64, now: &str) -> Value {
    let mut list = stored.to_vec();
    for (kind, verdict) in found {
        let place = list.iter().position(|condition| condition.text("type") == *kind);
        let old = place.map_or(&Value::Null, |place| &list[place]);
        if old.int("observedGeneration") > generation {
            continue;
        }
        match (verdict, place) {
            (Some(verdict), Some(place)) => list[place] = render(kind, verdict, old, generation, now),
            (Some(verdict), None) if list.len() < MOST => list.push(render(kind, verdict, old, generation, now)),
            (None, Some(place)) => {
                list.remove(place);
            }
            (Some(_), None) | (None, None) => {}
        }
    }
    list.into()
}

fn render(kind: &str, verdict: &Verdict, old: &Value, generation: i64, now: &str) -> Value {
    let status = match verdict.status {
        Tri::True => "True",
        Tri::False => "False",
        Tri::Unknown => "Unknown",
    };
    let is_same = old.text("status") == status && old.has("lastTransitionTime");
    json!({
        "type": kind,
        "status": status,
        "reason": verdict.reason,
        "message": shorten(&verdict.message),
        "observedGeneration": generation,
        "lastTransitionTime": if is_same { old.text("lastTransitionTime") } else { now },
    })
}

fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST)]
}
