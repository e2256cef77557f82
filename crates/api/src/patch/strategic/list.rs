//! Lists that merge: by a key of their objects, or as a set of scalars.
//!
//! In: a list of the object, and that of the patch. Elements with a key that both have are merged, others are added,
//! `$patch: delete` removes one and `$patch: replace` drops the old list. Then the elements are ordered: those of the
//! patch (or of `$setElementOrder`) are in its order, and those only the object has are inserted between them, each
//! before the first it preceded before. So new elements come before old ones.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::place::Place;
use super::{DIRECTIVE, PatchError, SET_ORDER, merge_map, raw, strip_directives, unknown_directive, wrong_type};
use crate::patch::text;

const MAP: &str = "map[string]interface {}";
const LIST: &str = "[]interface {}";

/// Merges the lists whose order the patch names, and takes them out of it.
pub(super) fn follow_orders(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    place: Place<'_>,
) -> Result<(), PatchError> {
    let names: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for name in names {
        let Some(wanted) = patch.remove(&name) else { continue };
        let wanted = wanted.as_array().ok_or_else(|| wrong_type(LIST, &wanted))?;
        let key = name.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/')).ok_or_else(bad_order)?;
        follow_order(original, patch, key, wanted, place)?;
    }
    Ok(())
}

fn bad_order() -> PatchError {
    PatchError::Malformed("invalid patch format of setElementOrder list".to_owned())
}

fn follow_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    name: &str,
    wanted: &[Value],
    place: Place<'_>,
) -> Result<(), PatchError> {
    if let Some(other) = [original.get(name), patch.get(name)].into_iter().flatten().find(|value| !value.is_array()) {
        return Err(wrong_type(LIST, other));
    }
    let (item, rule) = place.element(name).map_err(raw)?;
    let merge_key = rule.merge_key.unwrap_or_default();
    let change = patch.get(name).and_then(Value::as_array);
    check_order(change.map_or(&[], Vec::as_slice), wanted, merge_key)?;
    let (had, change) = match (original.remove(name), patch.remove(name)) {
        (None, None) => return Ok(()),
        (had, change) => (had.map(into_list), change.map(into_list)),
    };
    same_type(had.as_deref().unwrap_or_default(), change.as_deref().unwrap_or_default())?;
    let server = keys(had.as_deref().unwrap_or_default(), merge_key)?;
    let server = order_after(server, change.as_deref().unwrap_or_default(), merge_key);
    let merged = match (had, change) {
        (Some(had), Some(mut change)) if rule.merge_key.is_some() => merge(had, &mut change, item, merge_key, false)?,
        (Some(had), None) => had,
        (None, Some(mut change)) => {
            change.retain_mut(strip_directives);
            change
        }
        (_, change) => change.unwrap_or_default(),
    };
    let keyed = !merge_key.is_empty() && !merged.is_empty();
    if let Some(index) = wanted.iter().position(|value| keyed && !value.is_object()) {
        return Err(raw(format!("value for key {index} is not a map")));
    }
    let ordered = arrange(merged, &keys(wanted, merge_key)?, &server, merge_key)?;
    original.insert(name.to_owned(), Value::Array(ordered));
    Ok(())
}

/// The order of the object's elements once the patch is merged. New elements have no place in it, but in Kubernetes
/// they fall into the memory that deleted ones leave, at the end of the list whose order counts.
fn order_after(had: Vec<&Value>, change: &[Value], merge_key: &str) -> Vec<Value> {
    let deletes = |element: &&Value| element.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
    let gone: HashSet<&Value> = change.iter().filter(deletes).filter_map(|element| element.get(merge_key)).collect();
    let length = had.len();
    let mut left: Vec<&Value> = had.into_iter().filter(|key| !gone.contains(key)).collect();
    if left.len() < length {
        let mut seen: HashSet<&Value> = left.iter().copied().collect();
        let new = change.iter().filter(|element| element.get(DIRECTIVE).is_none());
        let new = new.filter_map(|element| element.get(merge_key)).filter(|key| seen.insert(key));
        left.extend(new.take(length - left.len()));
    }
    left.into_iter().cloned().collect()
}

fn into_list(value: Value) -> Vec<Value> {
    if let Value::Array(items) = value { items } else { Vec::new() }
}

/// The patch must name its elements in the order it requests.
fn check_order(change: &[Value], wanted: &[Value], merge_key: &str) -> Result<(), PatchError> {
    if wanted.is_empty() || change.is_empty() {
        return Ok(());
    }
    let mut named = Vec::with_capacity(change.len());
    for element in change {
        if !merge_key.is_empty() && !element.is_object() {
            return Err(wrong_type(MAP, element));
        }
        if merge_key.is_empty() || element.get(DIRECTIVE).and_then(Value::as_str) != Some("delete") {
            named.push(element);
        }
    }
    let (mut named, mut wants) = (named.into_iter().peekable(), wanted.iter().peekable());
    while let (Some(element), Some(want)) = (named.peek(), wants.peek()) {
        if element.get(DIRECTIVE).is_some() {
            named.next();
            continue;
        }
        if key_of(element, merge_key)? == key_of(want, merge_key)? {
            named.next();
        }
        wants.next();
    }
    if named.peek().is_none() || wants.peek().is_some() {
        return Ok(());
    }
    let (have, want) = (text::list(change), text::list(wanted));
    Err(raw(format!("The order in patch list:\n{have}\n doesn't match {SET_ORDER} list:\n{want}\n")))
}

/// The list with the patch merged into it, in order.
pub(super) fn merge(
    original: Vec<Value>,
    patch: &mut [Value],
    item: Place<'_>,
    merge_key: &str,
    deleting: bool,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if same_type(&original, patch)? == MAP {
        if merge_key.is_empty() {
            return Err(raw(format!("cannot merge lists without merge key for {}", item.kind())));
        }
        return merge_objects(original, patch, item, merge_key);
    }
    if deleting {
        let gone: HashSet<&Value> = patch.iter().collect();
        return Ok(original.into_iter().filter(|value| !gone.contains(value)).collect());
    }
    let mut seen = HashSet::new();
    let merged: Vec<Value> = original.iter().chain(&*patch).filter(|value| seen.insert(*value)).cloned().collect();
    arrange(merged, &keys(patch, merge_key)?, &original, merge_key)
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: &mut [Value],
    item: Place<'_>,
    merge_key: &str,
) -> Result<Vec<Value>, PatchError> {
    let (mut gone, mut replace) = (HashSet::new(), false);
    for element in &*patch {
        let Some(directive) = element.get(DIRECTIVE) else { continue };
        match directive.as_str() {
            Some("delete") => {
                gone.insert(key_of(element, merge_key)?);
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(raw("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive, element.as_object().unwrap_or(&Map::new()))),
        }
    }
    if replace {
        let kept: Vec<Value> = patch.iter().filter(|element| element.get(DIRECTIVE).is_none()).cloned().collect();
        keys(&kept, merge_key)?;
        return Ok(kept);
    }
    original.retain(|element| element.get(merge_key).is_none_or(|key| !gone.contains(key)));

    let mut places: HashMap<Value, usize> = HashMap::with_capacity(original.len());
    for (index, element) in original.iter().enumerate() {
        if let Some(key) = element.get(merge_key) {
            places.entry(key.clone()).or_insert(index);
        }
    }
    let server = original.len();
    let mut wanted = Vec::with_capacity(patch.len());
    for element in patch.iter_mut().filter(|element| element.get(DIRECTIVE).is_none()) {
        let key = key_of(element, merge_key)?.clone();
        if let Some(&index) = places.get(&key) {
            if let (Value::Object(current), Value::Object(change)) = (&mut original[index], element) {
                merge_map(current, change, item)?;
            }
        } else {
            places.insert(key.clone(), original.len());
            original.push(element.clone());
        }
        wanted.push(key);
    }
    let server: Vec<Value> = keys(&original[..server], merge_key)?.into_iter().cloned().collect();
    arrange(original, &wanted.iter().collect::<Vec<_>>(), &server, merge_key)
}

/// Determines the order: `wanted` and `server` are keys (or scalars) in the order of the patch and of the object.
fn arrange(merged: Vec<Value>, wanted: &[&Value], server: &[Value], merge_key: &str) -> Result<Vec<Value>, PatchError> {
    let wanted = ranks(wanted.iter().copied());
    let server = ranks(server.iter());
    let (mut asked, mut rest, mut strange) = (Vec::new(), Vec::new(), Vec::new());
    for element in merged {
        let key = key_of(&element, merge_key)?;
        let (want, was) = (wanted.get(key).copied(), server.get(key).copied());
        match (want, was) {
            (Some(want), was) => asked.push((want, was, element)),
            (None, Some(was)) => rest.push((Some(was), element)),
            // Neither the object had it nor the order names it: in front, the last one first.
            (None, None) => strange.push((None, element)),
        }
    }
    asked.sort_by_key(|(want, _, _)| *want);
    rest.sort_by_key(|(was, _)| *was);

    let mut out = Vec::with_capacity(asked.len() + rest.len() + strange.len());
    let mut rest = strange.into_iter().rev().chain(rest).peekable();
    for (_, was, element) in asked {
        while let Some((_, earlier)) =
            rest.next_if(|(before, _)| before.zip(was).is_some_and(|(left, right)| left < right))
        {
            out.push(earlier);
        }
        out.push(element);
    }
    out.extend(rest.map(|(_, element)| element));
    Ok(out)
}

fn ranks<'v>(values: impl Iterator<Item = &'v Value>) -> HashMap<&'v Value, usize> {
    let mut out = HashMap::new();
    for (index, value) in values.enumerate() {
        out.entry(value).or_insert(index);
    }
    out
}

/// What identifies elements: a member of an object, or the scalar itself when there is no key.
fn key_of<'v>(element: &'v Value, merge_key: &str) -> Result<&'v Value, PatchError> {
    if merge_key.is_empty() {
        return Ok(element);
    }
    let map = element.as_object().ok_or_else(|| wrong_type(MAP, element))?;
    map.get(merge_key)
        .ok_or_else(|| raw(format!("map: {} does not contain declared merge key: {merge_key}", text::plain(element))))
}

fn keys<'v>(elements: &'v [Value], merge_key: &str) -> Result<Vec<&'v Value>, PatchError> {
    elements.iter().map(|element| key_of(element, merge_key)).collect()
}

/// The Go type that all elements have.
fn same_type(original: &[Value], patch: &[Value]) -> Result<&'static str, PatchError> {
    let mut types = original.iter().chain(patch).map(text::type_name);
    let Some(first) = types.next() else { return Err(raw("no elements in any of the given slices")) };
    if first == LIST {
        return Err(PatchError::Unprocessable("lists of lists are not supported"));
    }
    if types.any(|other| other != first) {
        let (original, patch) = (text::list(original), text::list(patch));
        return Err(raw(format!("list element types are not identical: [{original} {patch}]")));
    }
    Ok(first)
}
