//! Why a selector matches no Pod: what comes nearest to a match is named.
//!
//! In: a selector and the Pods of its namespace by label. Out: one or two sentences. Pure, and cheap enough to be asked after
//! every change of a Pod: it looks at lists of labels, and at Pods only where all labels but one agree.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::similar::{differs_in_case, key_distance, value_distance};
use super::words::{count, list, shorten};
use crate::objects::pod::Pod;
use crate::objects::service::Selector;
use crate::world::Pods;

/// How many values or keys are named.
const NAMED: usize = 3;
/// How many labels a selector may have for each of them to be tried as the one too many.
const TRIED: usize = 8;
/// How many namespaces are searched for Pods that were made in the wrong one.
const SEARCHED: usize = 100;
/// How long the text of a selector may be.
const LONGEST_SELECTOR: usize = 300;
/// Labels that controllers put on Pods; nobody selects by them on purpose.
const MADE_BY_CONTROLLERS: [&str; 3] = ["pod-template-hash", "controller-revision-hash", "pod-template-generation"];

/// Says why a selector matches none of the Pods of a namespace.
pub(super) fn explain(pods: &Pods, namespace: &str, selector: &Selector) -> String {
    let (asked, total) = (text(selector), pods.count(namespace));
    if total == 0 {
        let there = format!("there are no pods in {namespace} that selector {asked} could match");
        return match elsewhere(pods, namespace, selector) {
            Some(hint) => format!("{there}; {hint}"),
            None => format!("{there}. Create pods with these labels in {namespace}."),
        };
    }
    let head = format!("selector {asked} matches 0 of {} in {namespace}", count(total, "pod"));
    let advice = "Change the selector or the labels of the pods.";
    if let Some(hint) = all_but_one(pods, namespace, selector) {
        return format!("{head}; {hint}. {advice}");
    }
    let absent = selector.iter().filter(|(key, value)| borne_by(pods, namespace, key, value) == 0);
    let hints: Vec<Hint> = absent.take(2).map(|(key, value)| label(pods, namespace, key, value)).collect();
    if hints.is_empty() {
        return format!("{head}; {}. {advice}", scattered(pods, namespace, selector));
    }
    let elsewhere = if hints.iter().any(|hint| hint.near) { None } else { elsewhere(pods, namespace, selector) };
    let said: Vec<String> = hints.into_iter().map(|hint| hint.text).chain(elsewhere).collect();
    format!("{head}; {}. {advice}", said.join("; "))
}

/// `app=web,tier=front`.
pub(super) fn text(selector: &Selector) -> String {
    let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    shorten(labels.join(","), LONGEST_SELECTOR)
}

/// Something that may help.
struct Hint {
    text: String,
    /// Whether it is likely to be what was meant.
    near: bool,
}

/// Pods that have every label but one.
fn all_but_one(pods: &Pods, namespace: &str, selector: &Selector) -> Option<String> {
    if !(2..=TRIED).contains(&selector.len()) {
        return None;
    }
    let without = |left_out: usize| -> Selector {
        let others = selector.iter().enumerate().filter(|(index, _)| *index != left_out);
        others.map(|(_, label)| label.clone()).collect()
    };
    let tries = (0..selector.len()).map(|index| (index, pods.matching(namespace, &without(index))));
    // What looks like a slip of the pen comes before what merely concerns more Pods.
    let (index, found) = tries.max_by_key(|(index, found)| {
        let (key, value) = &selector[*index];
        let slip = found.iter().filter_map(|pod| pod.entry.facts.label(key)).any(|have| is_near(value, have));
        (slip, found.len(), Reverse(*index))
    })?;
    let (key, value) = &selector[index];
    let rest = text(&without(index));
    let have = instead(&found, key, value);
    match &found[..] {
        [] => None,
        [pod] => Some(format!("pod {} matches {rest} but does not have {key}={value}; it has {have}", pod.name())),
        many => Some(format!("{} match {rest} but none of them has {key}={value}; they have {have}", pods_of(many))),
    }
}

fn is_near(wanted: &str, have: &str) -> bool {
    value_distance(wanted, have).is_some()
}

fn pods_of(pods: &[&Arc<Pod>]) -> String {
    count(pods.len(), "pod")
}

/// What Pods have instead of a label.
fn instead(pods: &[&Arc<Pod>], key: &str, value: &str) -> String {
    let values = census(pods, key);
    if !values.is_empty() {
        return shares(key, &nearest(value, values), pods.len());
    }
    let keys: BTreeSet<&str> = pods.iter().flat_map(|pod| &pod.entry.facts.labels).map(|(key, _)| &**key).collect();
    let similar = keys.into_iter().filter_map(|have| Some((key_distance(key, have)?, have))).min();
    similar.map_or_else(
        || format!("no label {key}"),
        |(_, other)| shares(other, &nearest(value, census(pods, other)), pods.len()),
    )
}

/// The values of a key that Pods have, each with the number of its Pods.
fn census<'a>(pods: &[&'a Arc<Pod>], key: &str) -> BTreeMap<&'a str, usize> {
    let mut values = BTreeMap::new();
    for value in pods.iter().filter_map(|pod| pod.entry.facts.label(key)) {
        *values.entry(value).or_default() += 1;
    }
    values
}

/// `tier=frontend`, or `tier=frontend (2 pods) and tier=back (1 pod)` when not all have the same.
fn shares(key: &str, values: &[Near<'_>], all: usize) -> String {
    let share = |near: &Near<'_>| match near.pods {
        pods if pods == all => format!("{key}={}{}", near.value, near.remark()),
        pods => format!("{key}={} ({}){}", near.value, count(pods, "pod"), near.remark()),
    };
    list(&values.iter().map(share).collect::<Vec<_>>(), NAMED)
}

/// What Pods have that is like a label that none has.
fn label(pods: &Pods, namespace: &str, key: &str, value: &str) -> Hint {
    let values = nearest(value, pods.values(namespace, key));
    if !values.is_empty() {
        let near = values.iter().any(|near| near.distance.is_some());
        return Hint { text: bearers(key, &values), near };
    }
    let none = format!("no pod has the label {key}");
    let similar = similar_keys(pods, namespace, key, value);
    if !similar.is_empty() {
        let have = |other: &&str| bearers(other, &nearest(value, pods.values(namespace, other)));
        let have: Vec<String> = similar.iter().take(2).map(have).collect();
        return Hint { text: format!("{none}; {}", have.join(", ")), near: true };
    }
    let used: BTreeSet<&str> = pods.keys(namespace).filter(|key| !MADE_BY_CONTROLLERS.contains(key)).collect();
    let used: Vec<&str> = used.into_iter().collect();
    let text = match used[..] {
        [] => none,
        [one] => format!("{none}; the only label in use is {one}"),
        _ => format!("{none}; the labels in use are {}", list(&used, NAMED + 2)),
    };
    Hint { text, near: false }
}

/// Keys that may be the one that was meant: those under which the wanted value is found, then those of similar name.
fn similar_keys<'a>(pods: &'a Pods, namespace: &str, key: &str, value: &str) -> Vec<&'a str> {
    // `true` is found under many keys that have nothing in common.
    let tells = value.len() >= 3 && !matches!(value, "true" | "false");
    let rank = |have: &'a str| {
        let distance = key_distance(key, have);
        let has_value = (tells || distance.is_some()) && borne_by(pods, namespace, have, value) > 0;
        (has_value || distance.is_some()).then_some((!has_value, distance.unwrap_or(usize::MAX), have))
    };
    let mut ranked: Vec<_> = pods.keys(namespace).filter_map(rank).collect();
    ranked.sort_unstable();
    // One that has the value itself says it all.
    let keep = if ranked.first().is_some_and(|(lacks_value, ..)| !lacks_value) { 1 } else { 2 };
    ranked.into_iter().take(keep).map(|(_, _, have)| have).collect()
}

/// `3 pods have app=web2 and 1 pod has app=api`.
fn bearers(key: &str, values: &[Near<'_>]) -> String {
    let bearer = |near: &Near<'_>| {
        let verb = if near.pods == 1 { "has" } else { "have" };
        format!("{} {verb} {key}={}{}", count(near.pods, "pod"), near.value, near.remark())
    };
    list(&values.iter().map(bearer).collect::<Vec<_>>(), NAMED)
}

/// A value that Pods have.
struct Near<'a> {
    value: &'a str,
    pods: usize,
    /// How far it is from what was wanted, if they have anything in common.
    distance: Option<usize>,
    /// Whether only upper and lower case differ.
    case: bool,
}

impl Near<'_> {
    const fn remark(&self) -> &'static str {
        if self.case { " (only upper and lower case differ)" } else { "" }
    }
}

/// The values that are most like the wanted one; the most frequent ones when none is like it.
fn nearest<'a>(wanted: &str, values: impl IntoIterator<Item = (&'a str, usize)>) -> Vec<Near<'a>> {
    let near = |(value, pods)| Near {
        value,
        pods,
        distance: value_distance(wanted, value),
        case: differs_in_case(wanted, value),
    };
    let mut all: Vec<Near<'a>> = values.into_iter().map(near).collect();
    if all.iter().any(|near| near.distance.is_some()) {
        all.retain(|near| near.distance.is_some());
    }
    all.sort_unstable_by_key(|near| (near.distance, Reverse(near.pods), near.value));
    all.truncate(NAMED);
    all
}

/// Every label is there, but no two Pods' worth of them in one.
fn scattered(pods: &Pods, namespace: &str, selector: &Selector) -> String {
    let bearers = |(key, value): &(Box<str>, Box<str>)| {
        let number = borne_by(pods, namespace, key, value);
        format!("{} {} {key}={value}", count(number, "pod"), if number == 1 { "has" } else { "have" })
    };
    let each: Vec<String> = selector.iter().map(bearers).collect();
    format!("{}, but no pod has all of these labels", list(&each, NAMED))
}

fn borne_by(pods: &Pods, namespace: &str, key: &str, value: &str) -> usize {
    pods.values(namespace, key).find(|(have, _)| *have == value).map_or(0, |(_, pods)| pods)
}

/// Other namespaces whose Pods match. They are not watched for this, so how many Pods there are is not said.
fn elsewhere(pods: &Pods, namespace: &str, selector: &Selector) -> Option<String> {
    let all = pods.namespaces();
    if all.len() > SEARCHED {
        return None;
    }
    let mut found: Vec<&str> = all.filter(|other| *other != namespace && pods.matches_any(other, selector)).collect();
    found.sort_unstable();
    if found.is_empty() {
        return None;
    }
    let noun = if found.len() == 1 { "namespace" } else { "namespaces" };
    let there = list(&found, NAMED);
    Some(format!("pods in {noun} {there} match, but a Service selects only pods of its own namespace"))
}

#[cfg(test)]
mod tests;
