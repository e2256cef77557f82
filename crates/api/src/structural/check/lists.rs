//! `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type`.

use std::collections::HashSet;

use serde_json::Value;

use super::{dump, invalid};
use crate::field::{Errors, Path};
use crate::structural::go;
use crate::value::ValueExt as _;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";

/// Reports that a type does not go with an extension.
fn check_type(schema: &Value, wanted: &str, extension: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let ty = schema.text("type");
    let why = format!("must be {wanted} if {extension} is specified");
    if ty.is_empty() {
        errors.required(&path.child("type"), &why);
    } else if ty != wanted {
        errors.invalid(&path.child("type"), ty, &why);
    }
    ty == wanted
}

pub(super) fn check_map_type(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(map_type) = schema.at(MAP_TYPE).as_str() else { return };
    check_type(schema, "object", MAP_TYPE, path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        errors.not_supported(&path.child(MAP_TYPE), map_type, &["atomic", "granular"]);
    }
}

pub(super) fn check_list_type(schema: &Value, path: &Path<'_>, atomic_sets: bool, errors: &mut Errors) {
    let list_type = schema.at(LIST_TYPE).as_str();
    let place = path.child(LIST_TYPE);
    if let Some(list_type) = list_type {
        if check_type(schema, "array", LIST_TYPE, path, errors) && atomic_sets && has_structured_elements(schema) {
            let items = path.child("items");
            let wrong = if schema.text("items.type") == "array" { LIST_TYPE } else { MAP_TYPE };
            // kube-apiserver shows the list type in both cases.
            let shown = go::json(schema.at("items").at(LIST_TYPE));
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.0.push(invalid(&items.child(wrong), &shown, why));
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.not_supported(&place, list_type, &["atomic", "set", "map"]);
        }
    }
    if !schema.items(MAP_KEYS).is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(&place, why),
            Some("map") => {}
            Some(other) => errors.invalid(&place, other, why),
        }
    }
    if list_type == Some("map") {
        check_map(schema, path, errors);
    }
}

/// Whether a set has elements that are no scalars and merge field by field.
pub(super) fn has_structured_elements(schema: &Value) -> bool {
    let items = schema.at("items");
    schema.text(LIST_TYPE) == "set"
        && match items.text("type") {
            "array" => items.at(LIST_TYPE).as_str().is_some_and(|list_type| list_type != "atomic"),
            "object" => items.text(MAP_TYPE) != "atomic",
            _ => false,
        }
}

/// Checks keys and items of a list that is a map.
fn check_map(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (keys, place) = (schema.texts(MAP_KEYS), path.child(MAP_KEYS));
    let (items, items_place) = (schema.at("items"), path.child("items"));
    if keys.is_empty() {
        errors.required(&place, "must not be empty if x-kubernetes-list-type is map");
    }
    match items {
        Value::Null => errors.required(&items_place, "must have a schema if x-kubernetes-list-type is map"),
        Value::Object(_) => {}
        _ => {
            let why = "must only have a single schema if x-kubernetes-list-type is map";
            errors.0.push(invalid(&items_place, &dump::items(items), why));
        }
    }
    if !items.is_object() {
        return;
    }
    let ty = items.text("type");
    if ty != "object" {
        errors.invalid(
            &items_place.child("type"),
            ty,
            "must be object if parent array's x-kubernetes-list-type is map",
        );
        return;
    }
    let mut seen = HashSet::new();
    for key in keys {
        let properties = items_place.child("properties");
        match items.map("properties").and_then(|properties| properties.get(key)) {
            Some(property) if matches!(property.text("type"), "array" | "object") => {
                // kube-apiserver shows the type of the items.
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&properties.key(key).child("type"), ty, why);
            }
            Some(_) => {}
            None => {
                let why = "entries must all be names of item properties";
                errors.0.push(invalid(&place, &go::json(schema.at(MAP_KEYS)), why));
            }
        }
        if !seen.insert(key) {
            errors.0.push(invalid(&place, &go::json(schema.at(MAP_KEYS)), "must not contain duplicate entries"));
        }
    }
}

/// Checks that elements of sets and maps are never null, and that keys of maps always have a value.
pub(super) fn check_keys(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (list_type, items) = (schema.text(LIST_TYPE), schema.at("items"));
    if !items.is_object() || !matches!(list_type, "set" | "map") {
        return;
    }
    let path = path.child("items");
    if items.flag("nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&path.child("nullable"), &why);
    }
    if list_type != "map" {
        return;
    }
    let (required, properties) = (items.texts("required"), path.child("properties"));
    for key in schema.texts(MAP_KEYS) {
        let Some(property) = items.map("properties").and_then(|properties| properties.get(key)) else { continue };
        let place = properties.key(key);
        if !required.contains(&key) && !property.has("default") {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&place.child("default"), why);
        }
        if property.flag("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&place.child("nullable"), why);
        }
    }
}
