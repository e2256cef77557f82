//! The objects of server-side apply: a configuration laid over the live object, and what is taken out again.
//!
//! In: complete objects, configurations, sets of paths. Out: [`merge`]d objects, whose list items stand as both sides
//! would have them, and [`prune`]d ones, without what the manager applied before and does not any more.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use super::fieldset::Set;
use super::node::{Form, List, Node};
use super::walk::{set_of, with_members};
use crate::schema::Shape;

/// The configuration laid over the live object.
///
/// # Errors
/// The message for a list item that has no identity.
pub(super) fn merge(node: Node<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    Ok(merge_at(node, Some(live), Some(config))?.unwrap_or_else(|| Value::Object(Map::new())))
}

fn merge_at(node: Node<'_>, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, String> {
    // Absent values have no type of their own: what replaces them decides.
    match node.form(config.or(live)) {
        Form::List(list) => {
            let items =
                |side: Option<&Value>| side.and_then(Value::as_array).filter(|items| !items.is_empty()).cloned();
            let (old, new) = (items(live), items(config));
            if old.is_some() || new.is_some() {
                let merged = merge_items(list, &old.unwrap_or_default(), &new.unwrap_or_default())?;
                return Ok((!merged.is_empty()).then_some(Value::Array(merged)));
            }
        }
        Form::Members => {
            let (old, new) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            if old.is_some_and(|map| !map.is_empty()) || new.is_some_and(|map| !map.is_empty()) {
                return merge_members(node, old, new);
            }
        }
        Form::Leaf => {}
    }
    Ok(config.or(live).cloned())
}

fn merge_members(
    node: Node<'_>,
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
) -> Result<Option<Value>, String> {
    let mut out = Map::new();
    let names: BTreeSet<&String> =
        live.into_iter().flatten().chain(config.into_iter().flatten()).map(|m| m.0).collect();
    for name in names {
        let Some(node) = node.member(name) else { continue };
        let (old, new) = (live.and_then(|map| map.get(name)), config.and_then(|map| map.get(name)));
        if let Some(value) = merge_at(node, old, new)? {
            out.insert(name.clone(), value);
        }
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// Merges two lists of items with identity.
///
/// The items of the configuration keep their order. An item only the live object has stays behind the neighbour it
/// follows there, as far as that order allows: both lists are walked together, live items that are in the
/// configuration too wait until it is their turn there, and all others are taken as they come.
fn merge_items(list: List<'_>, live: &[Value], config: &[Value]) -> Result<Vec<Value>, String> {
    let (old, new) = (identities(list, live)?, identities(list, config)?);
    let mut known: BTreeMap<&Element<'_>, Option<&Value>> = BTreeMap::new();
    for (at, item) in old.iter().zip(live) {
        // Live items of one identity cannot be merged with anything: the configuration's item replaces them.
        known.entry(at).and_modify(|item| *item = None).or_insert(Some(item));
    }
    let wanted: BTreeSet<&Element<'_>> = new.iter().collect();
    let mut shared = new.iter().filter(|at| known.contains_key(at)).peekable();
    let mut done: BTreeSet<&Element<'_>> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let Some(at) = old.get(left) {
            let turn = shared.peek().copied();
            if !wanted.contains(at) {
                out.extend(merge_at(list.item, live.get(left), None)?);
                left += 1;
                continue;
            }
            if right < new.len() && *at != new[right] && turn.is_some_and(|turn| turn != at) {
                left += 1;
                continue;
            }
            if done.contains(at) || new.get(right) == Some(at) {
                left += 1;
            }
        }
        if let Some(at) = new.get(right) {
            let item = known.get(at).copied().map(|item| item.unwrap_or(&Value::Null));
            out.extend(merge_at(list.item, item, config.get(right))?);
            done.insert(at);
            right += 1;
            if shared.peek() == Some(&at) {
                shared.next();
            }
        }
    }
    Ok(out)
}

fn identities<'a>(list: List<'a>, items: &'a [Value]) -> Result<Vec<Element<'a>>, String> {
    let identity = |(index, item)| list.element(item).map_err(|why| format!("element {index}: {why}"));
    items.iter().enumerate().map(identity).collect()
}

/// Removes what the manager applied last time, does not apply now, and no other manager owns.
pub(super) fn prune(node: Node<'_>, merged: Value, last: &Set<'_>, owned: Set<'_>) -> Value {
    if last.is_empty() {
        return merged;
    }
    let last = with_members(node, last.clone());
    let everything = with_members(node, set_of(node, &merged));
    let bare = remove(node, &merged, &last);
    let keep = with_members(node, set_of(node, &bare)).union(with_members(node, owned));
    let kept = remove(node, &merged, &everything.clone().difference(&keep));
    // Only what the manager itself had applied may be removed; what was merely inside of it is restored.
    let gone = everything.difference(&with_members(node, set_of(node, &kept))).intersection(&last);
    remove(node, &merged, &gone)
}

/// The value without the paths of a set. What becomes empty by that is null.
fn remove(node: Node<'_>, value: &Value, gone: &Set<'_>) -> Value {
    match (node.form(Some(value)), value) {
        (Form::List(list), Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let entry = list.element(item).ok().and_then(|at| gone.get(&at).map(|entry| (entry.own, &entry.below)));
                match entry {
                    Some((true, _)) => {}
                    Some((false, below)) => out.push(remove(list.item, item, below)),
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (Form::Members, Value::Object(map)) => {
            let mut out = Map::new();
            for (name, value) in map {
                match (gone.get(&Element::field(name)), node.member(name)) {
                    (Some(entry), _) if entry.own => {}
                    (Some(entry), Some(node)) => {
                        out.insert(name.clone(), remove(node, value, &entry.below));
                    }
                    _ => {
                        out.insert(name.clone(), value.clone());
                    }
                }
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        // A path cannot lead into a value that is one field; kube-apiserver clears it then.
        (Form::Leaf, Value::Object(_) | Value::Array(_)) | (Form::List(_) | Form::Members, _) => Value::Null,
        (Form::Leaf, scalar) => scalar.clone(),
    }
}

/// Nulls as decoding reads them: a member that is not there, an entry with an empty value. In custom resources null may be
/// a value: only their `metadata` is typed.
pub(super) fn settle(node: Node<'_>, value: &mut Value) {
    match (node, value) {
        (Node::Message(_), Value::Object(map)) => {
            map.retain(|_, value| !value.is_null());
            for (name, value) in map.iter_mut() {
                if let Some(node) = node.member(name) {
                    settle(node, value);
                }
            }
        }
        (Node::Map(entry), Value::Object(map)) => {
            for value in map.values_mut() {
                if value.is_null() && matches!(entry, Shape::String | Shape::Bytes) {
                    *value = "".into();
                }
                settle(Node::of_shape(entry), value);
            }
        }
        (Node::List { item, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|value| settle(Node::of_shape(item), value));
        }
        (Node::Custom(_), Value::Object(map)) => {
            if let (Some(node), Some(metadata)) = (node.member("metadata"), map.get_mut("metadata")) {
                settle(node, metadata);
            }
        }
        _ => {}
    }
}
