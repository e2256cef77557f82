//! Why a selector matches no Pod: names the nearest match.
//!
//! In: a Service and the Pods of its namespace by label. Out: a finding whose command selects the nearest match. Cheap enough
//! to run after every change of a Pod: it reads lists of labels, and Pods only where all labels but one match.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Cluster, Pod};
use crate::finding::{Finding, code};
use crate::labels::{Label, Selector, label, selector_text};
use crate::model::Service;
use crate::similar::{differs_in_case, is_similar, key_distance, value_distance};
use crate::words::{count, list};

/// How many values or keys are named.
const NAMED: usize = 3;
/// Maximum number of labels of a selector for which each is tried as the superfluous one.
const TRIED: usize = 8;
/// How many namespaces are searched for Pods that were created in the wrong one.
const SEARCHED: usize = 100;
/// Labels that controllers set on Pods; selectors of users do not use them on purpose.
const MADE_BY_CONTROLLERS: [&str; 3] = ["pod-template-hash", "controller-revision-hash", "pod-template-generation"];

/// An owned selector.
type Owned = Box<Selector>;

/// Explains why the selector of a Service matches no Pod of its namespace.
pub(crate) fn find<C: Cluster>(cluster: &C, service: &Service, selector: &Selector) -> Finding {
    let Reason { message, meant } = explain(cluster, service.namespace(), selector);
    let fix = match meant {
        Some(Meant::Selector(meant)) => service.set_selector(&meant),
        Some(Meant::Elsewhere { namespace, pod }) => service.expose_in(&namespace, &pod, selector),
        None => service.run_pod(selector),
    };
    Finding::new(code::NO_POD_MATCHES, message, fix)
}

/// Why a selector matches nothing.
struct Reason {
    message: String,
    /// What was probably intended.
    meant: Option<Meant>,
}

enum Meant {
    /// These labels.
    Selector(Owned),
    /// Pods in another namespace, such as this one.
    Elsewhere { namespace: String, pod: String },
}

fn explain<C: Cluster>(cluster: &C, namespace: &str, selector: &Selector) -> Reason {
    let (asked, total) = (selector_text(selector), cluster.count(namespace));
    if total == 0 {
        let there = format!("there are no pods in {namespace} that selector {asked} could match");
        return match elsewhere(cluster, namespace, selector) {
            Some((hint, meant)) => Reason { message: format!("{there}; {hint}"), meant: Some(meant) },
            None => {
                let message = format!("{there}. Create pods with these labels in {namespace}.");
                Reason { message, meant: None }
            }
        };
    }
    let head = format!("selector {asked} matches 0 of {} in {namespace}", count(total, "pod"));
    let advice = "Change the selector or the labels of the pods.";
    if let Some((hint, meant)) = all_but_one(cluster, namespace, selector) {
        return Reason { message: format!("{head}; {hint}. {advice}"), meant: Some(Meant::Selector(meant)) };
    }
    let absent: Vec<&Label> =
        selector.iter().filter(|(key, value)| borne_by(cluster, namespace, key, value) == 0).collect();
    let hints: Vec<Hint> = absent.iter().take(2).map(|(key, value)| hint(cluster, namespace, key, value)).collect();
    if hints.is_empty() {
        let message = format!("{head}; {}. {advice}", scattered(cluster, namespace, selector));
        return Reason { message, meant: None };
    }
    let near = replaced(selector, &absent, &hints).filter(|meant| cluster.any(namespace, meant).is_some());
    let elsewhere = match hints.iter().any(|hint| hint.near.is_some()) {
        true => None,
        false => elsewhere(cluster, namespace, selector),
    };
    let (elsewhere, there) = elsewhere.unzip();
    let said: Vec<String> = hints.into_iter().map(|hint| hint.text).chain(elsewhere).collect();
    Reason { message: format!("{head}; {}. {advice}", said.join("; ")), meant: near.map(Meant::Selector).or(there) }
}

/// The selector with similar labels in place of those that no Pod has; none if one has no similar label.
fn replaced(selector: &Selector, absent: &[&Label], hints: &[Hint]) -> Option<Owned> {
    if absent.len() > hints.len() {
        return None;
    }
    let mut meant: BTreeMap<Box<str>, Box<str>> =
        selector.iter().filter(|label| !absent.contains(label)).cloned().collect();
    for hint in hints {
        let (key, value) = hint.near.clone()?;
        meant.insert(key, value);
    }
    Some(meant.into_iter().collect())
}

/// Something that may help.
struct Hint {
    text: String,
    /// The label that was probably intended.
    near: Option<Label>,
}

/// Pods that have every label but one, and the selector with the label that they have instead.
fn all_but_one<C: Cluster>(cluster: &C, namespace: &str, selector: &Selector) -> Option<(String, Owned)> {
    if !(2..=TRIED).contains(&selector.len()) {
        return None;
    }
    let without = |left_out: usize| -> Owned {
        let others = selector.iter().enumerate().filter(|(index, _)| *index != left_out);
        others.map(|(_, label)| label.clone()).collect()
    };
    let tries = selector.iter().enumerate().map(|(index, label)| {
        let rest = without(index);
        let found = cluster.matching(namespace, &rest);
        (index, label, rest, found)
    });
    // Probable typing errors rank before differences that affect more Pods.
    let (_, (key, value), rest, found) = tries.max_by_key(|(index, (key, value), _, found)| {
        let slip = found.iter().filter_map(|pod| label(pod.labels(), key)).any(|have| is_similar(value, have));
        (slip, found.len(), Reverse(*index))
    })?;
    let (have, other) = instead(&found, key, value);
    let text = match &found[..] {
        [] => return None,
        [pod] => {
            let (name, rest) = (pod.name(), selector_text(&rest));
            format!("pod {name} matches {rest} but does not have {key}={value}; it has {have}")
        }
        many => {
            let (pods, rest) = (count(many.len(), "pod"), selector_text(&rest));
            format!("{pods} match {rest} but none of them has {key}={value}; they have {have}")
        }
    };
    let mut meant: BTreeMap<Box<str>, Box<str>> = rest.into_iter().collect();
    meant.extend(other);
    Some((text, meant.into_iter().collect()))
}

/// What Pods have instead of a label: as text, and the nearest match.
fn instead<P: Pod>(pods: &[&P], key: &str, value: &str) -> (String, Option<Label>) {
    let values = census(pods, key);
    let (key, values) = if values.is_empty() {
        let keys: BTreeSet<&str> = pods.iter().flat_map(|pod| pod.labels()).map(|(key, _)| &**key).collect();
        let similar = keys.into_iter().filter_map(|have| Some((key_distance(key, have)?, have))).min();
        let Some((_, other)) = similar else { return (format!("no label {key}"), None) };
        (other, census(pods, other))
    } else {
        (key, values)
    };
    let nearest = nearest(value, values);
    let first = nearest.first().map(|near| (key.into(), near.value.into()));
    (shares(key, &nearest, pods.len()), first)
}

/// The values of a key that Pods have, each with the number of its Pods.
fn census<'a, P: Pod>(pods: &[&'a P], key: &str) -> BTreeMap<&'a str, usize> {
    let mut values = BTreeMap::new();
    for value in pods.iter().filter_map(|pod| label(pod.labels(), key)) {
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

/// Labels of Pods that are similar to a label that none has.
fn hint<C: Cluster>(cluster: &C, namespace: &str, key: &str, value: &str) -> Hint {
    let values = nearest(value, cluster.values(namespace, key));
    if let Some(first) = values.first() {
        let near = first.distance.map(|_| (key.into(), first.value.into()));
        return Hint { text: bearers(key, &values), near };
    }
    let none = format!("no pod has the label {key}");
    let similar = similar_keys(cluster, namespace, key, value);
    let have = |other: &&str| (Box::from(*other), nearest(value, cluster.values(namespace, other)));
    let have: Vec<(Box<str>, Vec<Near<'_>>)> = similar.iter().take(2).map(have).collect();
    if let Some((other, values)) = have.first() {
        let near = values.first().map(|near| (other.clone(), near.value.into()));
        let said: Vec<String> = have.iter().map(|(other, values)| bearers(other, values)).collect();
        return Hint { text: format!("{none}; {}", said.join(", ")), near };
    }
    let used: BTreeSet<&str> =
        cluster.keys(namespace).into_iter().filter(|key| !MADE_BY_CONTROLLERS.contains(key)).collect();
    let used: Vec<&str> = used.into_iter().collect();
    let text = match used[..] {
        [] => none,
        [one] => format!("{none}; the only label in use is {one}"),
        _ => format!("{none}; the labels in use are {}", list(&used, NAMED + 2)),
    };
    Hint { text, near: None }
}

/// Keys that were probably intended: those that have the wanted value, then those with a similar name.
fn similar_keys<'a, C: Cluster>(cluster: &'a C, namespace: &str, key: &str, value: &str) -> Vec<&'a str> {
    // `true` is a value of many unrelated keys.
    let tells = value.len() >= 3 && !matches!(value, "true" | "false");
    let rank = |have: &'a str| {
        let distance = key_distance(key, have);
        let has_value = (tells || distance.is_some()) && borne_by(cluster, namespace, have, value) > 0;
        (has_value || distance.is_some()).then_some((!has_value, distance.unwrap_or(usize::MAX), have))
    };
    let mut ranked: Vec<_> = cluster.keys(namespace).into_iter().filter_map(rank).collect();
    ranked.sort_unstable();
    // A key with the value itself is sufficient.
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
    /// Its distance from the wanted value, if they have anything in common.
    distance: Option<usize>,
    /// Whether only upper and lower case differ.
    case: bool,
}

impl Near<'_> {
    const fn remark(&self) -> &'static str {
        if self.case { " (only upper and lower case differ)" } else { "" }
    }
}

/// The values most similar to the wanted one; the most frequent ones when none is similar.
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

/// Every label exists, but no Pod has all of them.
fn scattered<C: Cluster>(cluster: &C, namespace: &str, selector: &Selector) -> String {
    let bearers = |(key, value): &Label| {
        let number = borne_by(cluster, namespace, key, value);
        format!("{} {} {key}={value}", count(number, "pod"), if number == 1 { "has" } else { "have" })
    };
    let each: Vec<String> = selector.iter().map(bearers).collect();
    format!("{}, but no pod has all of these labels", list(&each, NAMED))
}

fn borne_by<C: Cluster>(cluster: &C, namespace: &str, key: &str, value: &str) -> usize {
    cluster.values(namespace, key).into_iter().find(|(have, _)| *have == value).map_or(0, |(_, pods)| pods)
}

/// Other namespaces whose Pods match. They are not watched for this, so the number of Pods is not reported.
fn elsewhere<C: Cluster>(cluster: &C, namespace: &str, selector: &Selector) -> Option<(String, Meant)> {
    let all = cluster.namespaces();
    if all.len() > SEARCHED {
        return None;
    }
    let first = |other: &str| Some(cluster.any(other, selector)?.name().to_owned());
    let others = all.into_iter().filter(|other| *other != namespace);
    let mut found: Vec<(&str, String)> = others.filter_map(|other| Some((other, first(other)?))).collect();
    found.sort_unstable();
    let (namespace, pod) = found.first()?.clone();
    let noun = if found.len() == 1 { "namespace" } else { "namespaces" };
    let there = list(&found.iter().map(|(other, _)| *other).collect::<Vec<_>>(), NAMED);
    let text = format!("pods in {noun} {there} match, but a Service selects only pods of its own namespace");
    Some((text, Meant::Elsewhere { namespace: namespace.to_owned(), pod }))
}

#[cfg(test)]
mod tests;
