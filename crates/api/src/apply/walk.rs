//! From objects to sets of field paths, following the schema.
//!
//! In: objects as [`super::object_type::ObjectType::complete`] or an applied configuration gives them. Out: the paths an object
//! contains ([`set_of`]), the paths in which two objects differ ([`compare`]), and sets fitted to the schema.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::element::{Element, same};
use super::fieldset::Set;
use super::node::{Form, List, Node};

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

/// The paths that an object contains. Lists and maps count only through their content, unless they are atomic.
pub(super) fn set_of<'a>(node: Node<'a>, value: &'a Value) -> Set<'a> {
    own_set(node, value).1
}

/// Whether the place itself is contained, and the paths below it.
fn own_set<'a>(node: Node<'a>, value: &'a Value) -> (bool, Set<'a>) {
    let mut out = Set::default();
    match (node.form(Some(value)), value) {
        (Form::Leaf, _) => return (true, out),
        (Form::List(list), Value::Array(items)) => {
            // Items with the same key are owned as one, without descending into them.
            for (at, twins) in group(list, items).unwrap_or_default() {
                let below = match twins.as_slice() {
                    [only] => own_set(list.item, only).1,
                    _ => Set::default(),
                };
                out.push(at, true, below);
            }
        }
        (Form::Members, Value::Object(map)) => {
            for (name, value) in map {
                let Some(member) = node.member(name) else { continue };
                let (own, below) = own_set(member, value);
                let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                // The entries of a map are there by being named; declared members are only as much as is in them.
                out.push(Element::field(name), own || bare || !node.declares(name), below);
            }
        }
        _ => {}
    }
    (false, out)
}

/// In what the second object differs from the first.
///
/// # Errors
/// The message for a list item that has no identity.
pub(super) fn compare<'a>(node: Node<'a>, old: &'a Value, new: &'a Value) -> Result<Difference<'a>, String> {
    let mut out = Difference::default();
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        compare_members(node, Some(old), Some(new), &mut out)?;
    }
    Ok(out)
}

fn compare_at<'a>(
    node: Node<'a>,
    at: Element<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    out: &mut Difference<'a>,
) -> Result<(), String> {
    let mut below = Difference::default();
    let (before, after) = (node.form(old.or(new)), node.form(new.or(old)));
    let mut leaf = compare_below(node, after, old, new, &mut below)?;
    // A value whose type is not fixed may have changed from an object to a list: then the parts it had are gone.
    if discriminant(&before) != discriminant(&after) {
        leaf |= compare_below(node, before, old, new, &mut below)?;
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

/// Compares the parts of two values in one form; `true` when the values have to be compared as a whole.
fn compare_below<'a>(
    node: Node<'a>,
    form: Form<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    out: &mut Difference<'a>,
) -> Result<bool, String> {
    match form {
        Form::Leaf => return Ok(true),
        Form::List(list) => {
            let (old, new) = (items_of(old), items_of(new));
            // Two empty lists are compared as values, so that null, absent and empty stay different things.
            if old.is_empty() && new.is_empty() {
                return Ok(true);
            }
            compare_items(list, old, new, out)?;
        }
        Form::Members => {
            let (old, new) = (members_of(old), members_of(new));
            if old.is_none() && new.is_none() {
                return Ok(true);
            }
            compare_members(node, old, new, out)?;
        }
    }
    Ok(false)
}

fn compare_members<'a>(
    node: Node<'a>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    out: &mut Difference<'a>,
) -> Result<(), String> {
    let names: BTreeSet<&String> = old.into_iter().flatten().chain(new.into_iter().flatten()).map(|m| m.0).collect();
    for name in names {
        if let Some(node) = node.member(name) {
            let (old, new) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
            compare_at(node, Element::field(name), old, new, out)?;
        }
    }
    Ok(())
}

fn compare_items<'a>(
    list: List<'a>,
    old: &'a [Value],
    new: &'a [Value],
    out: &mut Difference<'a>,
) -> Result<(), String> {
    let (mut old, mut new) = (group(list, old)?, group(list, new)?);
    let all: BTreeSet<Element<'a>> = old.keys().chain(new.keys()).cloned().collect();
    for at in all {
        let (old, new) = (old.remove(&at).unwrap_or_default(), new.remove(&at).unwrap_or_default());
        compare_twins(list, at, &old, &new, out)?;
    }
    Ok(())
}

/// Compares the items of one identity. Several of them are one field; it comes and goes as their number does.
fn compare_twins<'a>(
    list: List<'a>,
    at: Element<'a>,
    old: &[&'a Value],
    new: &[&'a Value],
    out: &mut Difference<'a>,
) -> Result<(), String> {
    match (old, new) {
        ([] | [_], [] | [_]) => {
            compare_at(list.item, at, old.first().copied(), new.first().copied(), out)?;
        }
        ([_, _, ..], [_, _, ..]) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            out.changed.push(at, !equal, Set::default());
        }
        ([_, _, ..], _) => {
            if let Some(new) = new.first() {
                compare_at(list.item, at.clone(), None, Some(new), out)?;
            }
            out.removed.push(at, true, Set::default());
        }
        (_, [_, _, ..]) => {
            if let Some(old) = old.first() {
                compare_at(list.item, at.clone(), Some(old), None, out)?;
            }
            out.changed.push(at, true, Set::default());
        }
    }
    Ok(())
}

/// The items by identity.
fn group<'a>(list: List<'a>, items: &'a [Value]) -> Result<BTreeMap<Element<'a>, Vec<&'a Value>>, String> {
    let mut out: BTreeMap<Element<'a>, Vec<&'a Value>> = BTreeMap::new();
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

/// Adds the declared members that have something below them: an owner of `spec.type` prevents the removal of `spec`.
pub(super) fn with_members<'a>(node: Node<'_>, set: Set<'a>) -> Set<'a> {
    fitted(Some(node), set, &|node, _, at, own, below| {
        let declared = matches!((node, at), (Some(node), Element::Field(name)) if node.declares(name));
        (own || declared && !below.is_empty(), below)
    })
}

/// Turns paths into what the schema now takes for one value into the path of that value.
pub(super) fn reconciled<'a>(node: Node<'_>, set: Set<'a>) -> Set<'a> {
    fitted(Some(node), set, &|_, child, _, own, below| match child {
        Some(child) if !below.is_empty() && child.is_atomic() => (true, Set::default()),
        _ => (own, below),
    })
}

/// Rebuilds a set entry by entry; `change` sees the node of the parent and of the child.
fn fitted<'a, 's>(
    node: Option<Node<'s>>,
    set: Set<'a>,
    change: &impl Fn(Option<Node<'s>>, Option<Node<'s>>, &Element<'a>, bool, Set<'a>) -> (bool, Set<'a>),
) -> Set<'a> {
    let mut out = Set::default();
    for entry in set.into_entries() {
        let child = match (&entry.at, node) {
            (Element::Field(name), Some(node)) => node.member(name),
            (Element::Key(_), Some(node)) => node.item(),
            _ => None,
        };
        let below = fitted(child, entry.below, change);
        let (own, below) = change(node, child, &entry.at, entry.own, below);
        out.push(entry.at, own, below);
    }
    out
}
