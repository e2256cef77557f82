//! New Pods of a Job: the template, the tracking finalizer, and the fields that hold the completion index.

use api::kinds::job::TRACKING_FINALIZER;
use api::value::ValueExt as _;
use api::view::annotations::{JOB_INDEX_FAILURE_COUNT, JOB_INDEX_IGNORED_FAILURE_COUNT};
use api::view::labels::JOB_COMPLETION_INDEX;
use serde_json::{Map, Value, json};

use super::super::{StoredObject, name_from, new_pod};
use super::KIND;
use super::plan::NewPod;

/// The variable in which containers find their index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Bytes of the generated name before its random suffix.
const PREFIX_LIMIT: usize = 58;

/// A Pod of a Job; the seed makes its name unique.
pub(super) fn new(owner: &StoredObject, wanted: &NewPod, (revision, number): (u64, usize)) -> Value {
    let mut template = owner.object.at("spec.template").clone();
    let base = match wanted.index {
        None => format!("{}-", owner.name()),
        Some(index) => {
            add_index(&mut template, owner.name(), index);
            indexed_base(owner.name(), index)
        }
    };
    if let Some((failures, ignored)) = wanted.failures {
        set_entry(&mut template, "metadata.annotations", JOB_INDEX_FAILURE_COUNT, failures);
        if ignored > 0 {
            set_entry(&mut template, "metadata.annotations", JOB_INDEX_IGNORED_FAILURE_COUNT, ignored);
        }
    }
    add_finalizer(&mut template);
    let name = name_from(&base, (owner.uid(), revision, number));
    let mut pod = new_pod(&template, owner.namespace(), &name, &KIND.reference(&owner.object));
    pod.put("metadata.generateName", base);
    pod
}

/// Adds the tracking finalizer.
pub(super) fn add_finalizer(object: &mut Value) {
    let mut finalizers = object.items("metadata.finalizers").to_vec();
    if !finalizers.iter().any(|have| have == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.into());
    }
    object.put("metadata.finalizers", finalizers);
}

fn add_index(template: &mut Value, owner: &str, index: i64) {
    set_entry(template, "metadata.annotations", JOB_COMPLETION_INDEX, index);
    set_entry(template, "metadata.labels", JOB_COMPLETION_INDEX, index);
    template.put("spec.hostname", format!("{owner}-{index}"));
    let path = format!("metadata.labels['{JOB_COMPLETION_INDEX}']");
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for list in ["spec.initContainers", "spec.containers"] {
        for container in template.items_mut(list) {
            let mut variables = container.items("env").to_vec();
            if !variables.iter().any(|have| have.text("name") == INDEX_VARIABLE) {
                variables.push(variable.clone());
                container.put("env", variables);
            }
        }
    }
}

/// Sets an entry of a map, whose key may contain dots.
fn set_entry(object: &mut Value, map: &str, key: &str, value: i64) {
    if object.map(map).is_none() {
        object.put(map, Map::new());
    }
    if let Some(map) = object.at_mut(map).and_then(Value::as_object_mut) {
        map.insert(key.to_owned(), value.to_string().into());
    }
}

/// The name of an indexed Pod before its random suffix: it ends with the index, even if the name of the Job is long.
fn indexed_base(owner: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let room = PREFIX_LIMIT.saturating_sub(suffix.len());
    format!("{}{suffix}", &owner[..owner.floor_char_boundary(room)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_index() {
        assert_eq!(indexed_base("pi", 7), "pi-7-");
        assert_eq!(indexed_base(&"a".repeat(63), 12), format!("{}-12-", "a".repeat(54)));
    }
}
