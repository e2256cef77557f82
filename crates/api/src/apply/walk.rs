//! From objects to sets of field paths, following the schema.
//!
//! In: objects as [`super::typed::complete`] or an applied configuration gives them. Out: the paths an object speaks
//! of ([`set_of`]), the paths in which two objects differ ([`compare`]), and sets fitted to the schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{Element, same};
use super::fieldset::Set;
use super::typed::{List, Node};
use crate::schema::Shape;

/// In what two objects differ.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Difference<'a> {
    /// Paths that are new or have another value.
    pub(super) changed: Set<'a>,
    /// Paths that are gone.
    pub(super) removed: Set<'a>,
}

impl Difference<'_> {
    /// Leaves out some paths and all that is below them.
    pub(super) fn without(self, paths: &Set<'_>) -> Self {
        Self { changed: self.changed.without(paths), removed: self.removed.without(paths) }
    }
}

/// The paths that an object speaks of. Lists and maps count only through what is in them, unless they are one value.
pub(super) fn set_of(node: Node, value: &Value) -> Set<'_> {
    own_set(node, value).1
}

/// Whether the place itself is spoken of, and the paths below it.
fn own_set(node: Node, value: &Value) -> (bool, Set<'_>) {
    let mut out = Set::default();
    match (node, value) {
        (Node::Leaf(_), _) => return (true, out),
        (Node::List(list), Value::Array(items)) => {
            // Items that cannot be told apart are owned as one, without a look inside.
            for (at, twins) in group(list, items).unwrap_or_default() {
                let below = match twins.as_slice() {
                    [only] => own_set(list.node(), only).1,
                    _ => Set::default(),
                };
                out.push(at, true, below);
            }
        }
        (Node::Map(_) | Node::Message(_), Value::Object(map)) => {
            // The entries of a map are there by being named; members of a message are only as much as is in them.
            let entries = matches!(node, Node::Map(_));
            for (name, value) in map {
                let Some(node) = node.member(name) else { continue };
                let (own, below) = own_set(node, value);
                let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                out.push(Element::field(name), own || bare || entries, below);
            }
        }
        _ => {}
    }
    (false, out)
}

/// In what the second object differs from the first.
///
/// # Errors
/// The words for a list item that has no identity.
pub(super) fn compare<'a>(node: Node, old: &'a Value, new: &'a Value) -> Result<Difference<'a>, String> {
    let mut out = Difference::default();
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        compare_members(node, Some(old), Some(new), &mut out)?;
    }
    Ok(out)
}

fn compare_at<'a>(
    node: Node,
    at: Element<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    out: &mut Difference<'a>,
) -> Result<(), String> {
    let mut below = Difference::default();
    let mut leaf = true;
    match node {
        Node::Leaf(_) => {}
        Node::List(list) => {
            let (old, new) = (items_of(old), items_of(new));
            // Two empty lists are compared as values, so that null, absent and empty stay different things.
            if !(old.is_empty() && new.is_empty()) {
                leaf = false;
                compare_items(list, old, new, &mut below)?;
            }
        }
        Node::Map(_) | Node::Message(_) => {
            let (old, new) = (members_of(old), members_of(new));
            if old.is_some() || new.is_some() {
                leaf = false;
                compare_members(node, old, new, &mut below)?;
            }
        }
    }
    let changed = match (old, new) {
        (None, _) => true,
        (Some(old), Some(new)) => leaf && !same(old, new),
        (Some(_), None) => false,
    };
    if changed {
        out.changed.push(at.clone(), true, below.changed);
        out.removed.push(at, false, below.removed);
    } else {
        if !below.changed.is_empty() {
            out.changed.push(at.clone(), false, below.changed);
        }
        out.removed.push(at, new.is_none(), below.removed);
    }
    Ok(())
}

fn compare_members<'a>(
    node: Node,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    out: &mut Difference<'a>,
) -> Result<(), String> {
    for (name, old) in old.into_iter().flatten() {
        if let Some(node) = node.member(name) {
            compare_at(node, Element::field(name), Some(old), new.and_then(|new| new.get(name)), out)?;
        }
    }
    for (name, new) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name))
            && let Some(node) = node.member(name)
        {
            compare_at(node, Element::field(name), None, Some(new), out)?;
        }
    }
    Ok(())
}

fn compare_items<'a>(list: List, old: &'a [Value], new: &'a [Value], out: &mut Difference<'a>) -> Result<(), String> {
    let (mut old, new) = (group(list, old)?, group(list, new)?);
    for (at, new) in new {
        let old = old.remove(&at).unwrap_or_default();
        compare_twins(list, at, &old, &new, out)?;
    }
    for (at, old) in old {
        compare_twins(list, at, &old, &[], out)?;
    }
    Ok(())
}

/// Compares the items of one identity. Several of them are one field; it comes and goes as their number does.
fn compare_twins<'a>(
    list: List,
    at: Element<'a>,
    old: &[&'a Value],
    new: &[&'a Value],
    out: &mut Difference<'a>,
) -> Result<(), String> {
    match (old, new) {
        ([] | [_], [] | [_]) => {
            compare_at(list.node(), at, old.first().copied(), new.first().copied(), out)?;
        }
        ([_, _, ..], [_, _, ..]) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            out.changed.push(at, !equal, Set::default());
        }
        ([_, _, ..], _) => {
            if let Some(new) = new.first() {
                compare_at(list.node(), at.clone(), None, Some(new), out)?;
            }
            out.removed.push(at, true, Set::default());
        }
        (_, [_, _, ..]) => {
            if let Some(old) = old.first() {
                compare_at(list.node(), at.clone(), Some(old), None, out)?;
            }
            out.changed.push(at, true, Set::default());
        }
    }
    Ok(())
}

/// The items by identity.
fn group(list: List, items: &[Value]) -> Result<BTreeMap<Element<'_>, Vec<&Value>>, String> {
    let mut out: BTreeMap<Element<'_>, Vec<&Value>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let at = list.element(item).map_err(|why| format!("element {index}: {why}"))?;
        out.entry(at).or_default().push(item);
    }
    Ok(out)
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn members_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|map| !map.is_empty())
}

/// Adds the members of messages that have something below them: who owns `spec.type` stands in the way of `spec` going.
pub(super) fn with_members(node: Node, set: Set<'_>) -> Set<'_> {
    fitted(Some(node), set, &|node, child, own, below| {
        let member = matches!(node, Some(Node::Message(_))) && child.is_some() && !below.is_empty();
        (own || member, below)
    })
}

/// Turns paths into what the schema now takes for one value into the path of that value.
pub(super) fn reconciled(node: Node, set: Set<'_>) -> Set<'_> {
    fitted(Some(node), set, &|_, child, own, below| match child {
        Some(Node::Leaf(shape)) if !below.is_empty() && is_container(shape) => (true, Set::default()),
        _ => (own, below),
    })
}

pub(super) fn is_container(shape: &Shape) -> bool {
    matches!(shape, Shape::List(_) | Shape::Map(_) | Shape::Object(_) | Shape::Raw)
}

/// Rebuilds a set entry by entry; `change` sees the node of the parent and of the child.
fn fitted<'a>(
    node: Option<Node>,
    set: Set<'a>,
    change: &impl Fn(Option<Node>, Option<Node>, bool, Set<'a>) -> (bool, Set<'a>),
) -> Set<'a> {
    let mut out = Set::default();
    for entry in set.into_entries() {
        let child = match (&entry.at, node) {
            (Element::Field(name), Some(node)) => node.member(name),
            (Element::Key(_), Some(Node::List(list))) => Some(list.node()),
            _ => None,
        };
        let below = fitted(child, entry.below, change);
        let (own, below) = change(node, child, entry.own, below);
        out.push(entry.at, own, below);
    }
    out
}
