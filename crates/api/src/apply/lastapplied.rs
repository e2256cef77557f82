//! Objects that `kubectl apply` used to manage on the client's side.
//!
//! Such an object carries its last configuration in an annotation, and its fields belong to the managers that wrote them. In: the
//! annotation of the live object, or an applied configuration. Out: the paths that `kubectl` may take over without a
//! conflict, because it had applied the very values that are live, and the annotation brought up to date.

use serde_json::{Map, Value};

use super::bare;
use super::check::{Duplicates, check};
use super::element::json;
use super::fieldset::Set;
use super::object_type::ObjectType;
use super::walk::{compare, set_of};
use crate::value::ValueExt as _;
use crate::view::annotations::LAST_APPLIED;

/// The manager for which all this is done.
pub(super) const KUBECTL: &str = "kubectl";

/// How large all annotations of an object may be together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The last configuration, when it is of this version and fits the schema.
pub(super) fn last_config(ty: ObjectType<'_>, live: &Value, api_version: &str) -> Option<Value> {
    let text = annotations(live)?.get(LAST_APPLIED)?.as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    if config.text("apiVersion") != api_version {
        return None;
    }
    let config = bare(&config);
    check(ty.root(), &config, Duplicates::Refuse).ok()?;
    Some(config)
}

/// The paths of the last configuration that are in the complete live object with the same values.
pub(super) fn untouched<'a>(ty: ObjectType<'a>, live: &Value, config: &'a Value) -> Set<'a> {
    let node = ty.root();
    match compare(node, config, live) {
        Ok(difference) => set_of(node, config).difference(&difference.changed).difference(&difference.removed),
        Err(_) => Set::default(),
    }
}

/// Writes the applied configuration into the annotation, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let present = annotations(object).is_some_and(|all| !all.get(LAST_APPLIED).is_none_or(|text| text == ""));
    if !present {
        return;
    }
    let mut config = config.clone();
    match config.at_mut("metadata.annotations") {
        Some(Value::Object(all)) => {
            all.remove(LAST_APPLIED);
        }
        _ => {
            config.drop_path("metadata.annotations");
        }
    }
    let text = json(&config) + "\n";
    let Some(all) = object.at_mut("metadata.annotations").and_then(Value::as_object_mut) else { return };
    all.insert(LAST_APPLIED.to_owned(), text.into());
    let size: usize = all.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        all.remove(LAST_APPLIED);
    }
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.map("metadata.annotations")
}
