//! Recorded answers of kube-apiserver, replayed against the rules alone.
//!
//! A tiny server without HTTP: it keeps the objects of one kind, applies PUT, POST and merge patches through the hooks
//! in their order, and compares objects and errors. Recordings are those of the workspace, or of the
//! folder that `WAYPOST_GOLDEN` names.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::field::Errors;
use crate::kind::Kind;
use crate::kinds::pod;
use crate::priority;
use crate::status::Status;
use crate::value::ValueExt as _;

const NAMESPACE: &str = "golden-ns";

/// What a check finds, as one text; `[]` for nothing.
pub(crate) fn summary(check: impl FnOnce(&mut Errors)) -> String {
    let mut errors = Errors::default();
    check(&mut errors);
    errors.summary()
}

/// The recordings of a topic.
///
/// # Panics
/// When there are none.
pub(crate) fn topic(name: &str) -> Value {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/api");
    let folder = std::env::var_os("WAYPOST_GOLDEN").map_or_else(|| PathBuf::from(workspace), PathBuf::from);
    let path = folder.join(name).with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = text.replace("${ns}", NAMESPACE).replace("<ns>", NAMESPACE);
    serde_json::from_str(&text).expect("recordings are JSON")
}

/// Replays every case of a topic, as far as it is about this kind.
pub(super) fn golden(name: &str, kind: &'static Kind) {
    golden_where(name, kind, |_| true);
}

/// Replays the cases of a topic for a test, as far as they are about this kind.
pub(super) fn golden_where(name: &str, kind: &'static Kind, wanted: impl Fn(&Value) -> bool) {
    // The class of an Ingress without one is chosen by the server, which sees all classes.
    let for_rules = |case: &&Value| case.text("id") != "ingress.class-default";
    for case in topic(name).items("cases").iter().filter(for_rules) {
        if !wanted(case) {
            continue;
        }
        let mut replay = Replay { kind, objects: HashMap::new(), id: case.text("id").to_owned() };
        for step in case.items("steps") {
            if !replay.step(step) {
                break;
            }
        }
    }
}

/// Replays a case and compares the rows of the Table it ends with.
pub(super) fn table_golden(id: &str, kind: &'static Kind) {
    let topic = topic("table");
    let case = topic.items("cases").iter().find(|case| case.text("id") == id).expect("a recorded case");
    let mut replay = Replay { kind, objects: HashMap::new(), id: id.to_owned() };
    let (last, steps) = case.items("steps").split_last().expect("a case has steps");
    for step in steps {
        assert!(replay.step(step), "{id}: a step cannot be replayed");
    }
    let mut names: Vec<&String> = replay.objects.keys().collect();
    names.sort_unstable();
    let rows = last.items("expect.body.rows");
    assert_eq!(rows.len(), names.len(), "{id}");
    for (row, name) in rows.iter().zip(names) {
        let cells = (kind.table_view.row)(&replay.objects[name], jiff::Timestamp::now());
        let pairs = row.items("cells").iter().zip(&cells);
        for (wanted, cell) in pairs.filter(|(wanted, _)| *wanted != "<age>") {
            assert_eq!(cell, wanted, "{id} {name}: {cells:?}");
        }
        assert_eq!(row.items("cells").len(), cells.len(), "{id} {name}");
        assert_eq!(row.items("conditions"), (kind.table_view.conditions)(&replay.objects[name]), "{id} {name}");
    }
    let columns: Vec<Value> = kind
        .table_view
        .columns
        .iter()
        .map(|c| json!({"name": c.name, "type": c.kind, "format": c.format, "priority": c.priority}))
        .collect();
    assert_eq!(last.items("expect.body.columnDefinitions"), columns, "{id}");
}

struct Replay {
    kind: &'static Kind,
    objects: HashMap<String, Value>,
    id: String,
}

impl Replay {
    /// Takes a step; returns whether the case can continue.
    fn step(&mut self, step: &Value) -> bool {
        let Some((name, subresource)) = self.target(step.text("path")) else { return true };
        let create = match (step.text("method"), name.as_str()) {
            ("POST", "") => true,
            ("PUT", _) if !self.objects.contains_key(&name) => {
                if !self.kind.create_on_update {
                    assert_eq!(step.int("expect.status"), 404, "{}", self.id);
                    return true;
                }
                true
            }
            ("PUT" | "PATCH", _) => false,
            ("DELETE", _) => {
                self.objects.remove(&name);
                return true;
            }
            _ => return true,
        };
        if !step.at("body").is_object() || step.int("expect.status") == 400 || step.int("expect.status") == 409 {
            return false;
        }
        let patch = step.text("method") == "PATCH";
        let media = step.at("headers").get("Content-Type").and_then(Value::as_str).unwrap_or_default();
        if patch && !media.contains("merge-patch") {
            return false;
        }
        let outcome = if create {
            self.create(step.at("body").clone())
        } else {
            self.update(&name, step.at("body"), patch, subresource == "status")
        };
        match outcome {
            Some((object, errors, warnings)) => self.compare(step, object, &errors, &warnings),
            None => return false,
        }
        true
    }

    /// The name and subresource of a URL, if it is one of this kind.
    fn target(&self, path: &str) -> Option<(String, String)> {
        let group = if self.kind.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", self.kind.api_version())
        };
        let rest = path.strip_prefix(&group)?.strip_prefix('/')?;
        let rest = if self.kind.namespaced { rest.strip_prefix("namespaces/")?.split_once('/')?.1 } else { rest };
        let mut parts = rest.split('/');
        (parts.next()? == self.kind.plural).then_some(())?;
        let mut next = || parts.next().unwrap_or_default().to_owned();
        Some((next(), next()))
    }

    fn create(&self, mut object: Value) -> Option<(Value, Errors, Vec<String>)> {
        let rules = self.kind.rules;
        if self.kind.namespaced {
            object.put("metadata.namespace", NAMESPACE);
        }
        rules.default(&mut object);
        if self.kind.kind == pod::KIND.kind {
            // The recording server has the plugin Priority and no class but its own.
            priority::admit(&mut object, None).expect("the priority of a Pod without a class");
        }
        rules.prepare_create(&mut object);
        if self.kind.generation {
            object.put("metadata.generation", 1);
        }
        let (mut errors, mut warnings) = (Errors::default(), Vec::new());
        rules.validate_create(&object, &mut errors);
        rules.warnings(&object, None, &mut warnings);
        object.put("metadata.uid", "u");
        object.put("metadata.resourceVersion", "1");
        Some((object, errors, warnings))
    }

    fn update(&self, name: &str, body: &Value, patch: bool, status: bool) -> Option<(Value, Errors, Vec<String>)> {
        let rules = self.kind.rules;
        let old = self.objects.get(name)?;
        let mut new = if patch { old.clone() } else { body.clone() };
        if patch {
            merge(&mut new, body);
        }
        for field in ["namespace", "uid", "resourceVersion", "generation"] {
            if let Some(value) = old.at("metadata").get(field) {
                new.put(&format!("metadata.{field}"), value.clone());
            }
        }
        // A locked kind needs the version that was read.
        if !patch && !self.kind.unconditional_update {
            return None;
        }
        rules.default(&mut new);
        let (mut errors, mut warnings) = (Errors::default(), Vec::new());
        if status {
            rules.prepare_status(&mut new, old);
            rules.validate_status(&new, old, &mut errors);
            rules.status_warnings(&new, old, &mut warnings);
        } else {
            rules.prepare_update(&mut new, old);
            if self.kind.generation && rules.new_generation(&new, old) {
                new.put("metadata.generation", old.int("metadata.generation") + 1);
            }
            rules.validate_update(&new, old, &mut errors);
            rules.warnings(&new, Some(old), &mut warnings);
        }
        Some((new, errors, warnings))
    }

    fn compare(&mut self, step: &Value, object: Value, errors: &Errors, warnings: &[String]) {
        let expect = step.at("expect");
        let name = object.text("metadata.name").to_owned();
        if !errors.is_empty() {
            let status = Status::invalid(self.kind.group, self.kind.kind, &name, errors);
            let wanted = expect.text("body.message");
            // The group of events.k8s.io is not named, and a diff of Go structs follows some messages.
            let said = status.message.replacen(".events.k8s.io", "", 1);
            let stop = said.find("\nchanged: ").unwrap_or(said.len());
            assert_eq!(said[..stop], wanted[..stop.min(wanted.len())], "{}", self.id);
            assert_eq!(expect.int("status"), 422, "{}", self.id);
            return;
        }
        assert!(expect.int("status") < 300, "{}: accepted, not {}", self.id, expect.text("body.message"));
        if expect.has("body") {
            let (wanted, mut have) = (plain(expect.at("body")), plain(&object));
            if let (false, Value::Object(have)) = (step.items("keys").is_empty(), &mut have) {
                have.retain(|key, _| step.texts("keys").contains(&key.as_str()));
            }
            for path in step.texts("ignore").into_iter().filter(|path| !path.contains('*')) {
                have.drop_path(path);
            }
            if wanted.has("spec") || !object.has("spec") {
                assert_eq!(without_unknown(&have, &wanted), wanted, "{}", self.id);
            }
            let wanted: Vec<&str> = expect
                .texts("warnings")
                .into_iter()
                .filter(|text| !text.starts_with("v1 Endpoints") && !text.starts_with("unknown field"))
                .collect();
            assert_eq!(warnings, wanted, "{}", self.id);
        }
        self.objects.insert(name, object);
    }
}

/// Keys that the schema would have dropped.
fn without_unknown(have: &Value, wanted: &Value) -> Value {
    let mut have = have.clone();
    if !wanted.to_string().contains("\"topology\"") {
        for endpoint in have.items_mut("endpoints") {
            endpoint.drop_path("topology");
        }
    }
    if !wanted.has("endpoints") {
        have.drop_path("endpoints");
    }
    have
}

/// An object without what the server chooses and without empty values, which the codec adds.
fn plain(value: &Value) -> Value {
    fn prune(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let map: Map<String, Value> = map
                    .iter()
                    .map(|(key, value)| (key.clone(), prune(value)))
                    .filter(|(_, value)| !is_zero(value))
                    .collect();
                Value::Object(map)
            }
            Value::Array(items) => items.iter().map(prune).collect(),
            other => other.clone(),
        }
    }
    fn is_zero(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
        }
    }
    let mut object = value.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences"] {
        object.drop_path(&format!("metadata.{field}"));
    }
    for field in ["kind", "apiVersion"] {
        object.drop_path(field);
    }
    prune(&object)
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}
