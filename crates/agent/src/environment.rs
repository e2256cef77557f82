//! The environment variables of a container, and expansion of `$(NAME)`.
//!
//! In: the container and the objects that it refers to. Out: names and values; later ones win: Services, then `envFrom`, then `env`. A missing
//! object or key that is not optional is an error.

use std::collections::BTreeMap;

use api::value::ValueExt as _;
use base64::Engine as _;
use serde_json::Value;
use thiserror::Error;

use crate::downward::{self, Known};
use crate::quantities::{self, Capacity};

/// A kind of object that a container takes values from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// ConfigMap.
    ConfigMap,
    /// Secret.
    Secret,
}

impl Kind {
    /// The resource name in API paths.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// The name in messages, as in the kubelet.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// Objects by kind and name; `None` for those that do not exist.
pub type Objects = BTreeMap<(Kind, String), Option<Value>>;

/// Why a container cannot be configured.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// An object does not exist.
    #[error("{} \"{name}\" not found", .kind.word())]
    NoObject {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// An object lacks a key.
    #[error("couldn't find key {key} in {} \"{name}\"", .kind.word())]
    NoKey {
        /// The kind.
        kind: Kind,
        /// The name.
        name: String,
        /// The key.
        key: String,
    },
    /// A path is not supported by the downward API.
    #[error("{0} is not supported by the downward API")]
    NoField(String),
}

/// Inputs of a container's environment.
#[derive(Clone, Debug, Default)]
pub struct Given<'a> {
    /// The Pod.
    pub pod: Option<&'a Value>,
    /// Its addresses.
    pub known: Known,
    /// Referenced objects.
    pub objects: Objects,
    /// Variables of Services.
    pub services: Vec<(String, String)>,
    /// Resources of the node.
    pub capacity: Capacity,
}

/// The objects that a container takes variables from.
#[must_use]
pub fn references(container: &Value) -> Vec<(Kind, String)> {
    let mut out = Vec::new();
    for from in container.items("envFrom") {
        for (field, kind) in [("configMapRef", Kind::ConfigMap), ("secretRef", Kind::Secret)] {
            if from.has(field) {
                out.push((kind, from.at(field).text("name").to_owned()));
            }
        }
    }
    for variable in container.items("env") {
        for (field, kind) in [("configMapKeyRef", Kind::ConfigMap), ("secretKeyRef", Kind::Secret)] {
            if variable.at("valueFrom").has(field) {
                out.push((kind, variable.at("valueFrom").at(field).text("name").to_owned()));
            }
        }
    }
    out
}

/// The value of a key.
#[must_use]
pub fn bytes_of(kind: Kind, object: &Value, key: &str) -> Option<Vec<u8>> {
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).ok();
    let plain = object.at("data").get(key).and_then(Value::as_str);
    match kind {
        Kind::Secret => decode(plain?),
        Kind::ConfigMap => match plain {
            Some(text) => Some(text.as_bytes().to_vec()),
            None => decode(object.at("binaryData").get(key).and_then(Value::as_str)?),
        },
    }
}

/// The keys of an object.
#[must_use]
pub fn keys(object: &Value) -> Vec<String> {
    let maps = ["data", "binaryData"].into_iter().filter_map(|name| object.at(name).as_object());
    let mut keys: Vec<String> = maps.flat_map(|map| map.keys().cloned()).collect();
    keys.sort();
    keys
}

/// The environment variables of a container, in order of first appearance.
///
/// # Errors
/// When a required object, key or field does not exist.
pub fn variables(container: &Value, given: &Given<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut out = Variables::default();
    for (name, value) in &given.services {
        out.put(name, value.clone());
    }
    for from in container.items("envFrom") {
        from_object(from, given, &mut out)?;
    }
    for variable in container.items("env") {
        let name = variable.text("name");
        match variable.has("valueFrom") {
            true => {
                if let Some(value) = from_elsewhere(container, variable.at("valueFrom"), given)? {
                    out.put(name, value);
                }
            }
            false => {
                let value = expand(variable.text("value"), |name| out.get(name));
                out.put(name, value);
            }
        }
    }
    Ok(out.list)
}

#[derive(Default)]
struct Variables {
    list: Vec<(String, String)>,
}

impl Variables {
    fn put(&mut self, name: &str, value: String) {
        match self.list.iter_mut().find(|(own, _)| own == name) {
            Some((_, old)) => *old = value,
            None => self.list.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.list.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }
}

fn from_object(from: &Value, given: &Given<'_>, out: &mut Variables) -> Result<(), ConfigError> {
    for (field, kind) in [("configMapRef", Kind::ConfigMap), ("secretRef", Kind::Secret)] {
        if !from.has(field) {
            continue;
        }
        let name = from.at(field).text("name").to_owned();
        let Some(object) = given.objects.get(&(kind, name.clone())).and_then(Option::as_ref) else {
            if from.at(field).flag("optional") {
                continue;
            }
            return Err(ConfigError::NoObject { kind, name });
        };
        for key in keys(object) {
            let value = bytes_of(kind, object, &key).unwrap_or_default();
            let variable = format!("{}{key}", from.text("prefix"));
            if !variable.contains('=') {
                out.put(&variable, String::from_utf8_lossy(&value).into_owned());
            }
        }
    }
    Ok(())
}

fn from_elsewhere(container: &Value, from: &Value, given: &Given<'_>) -> Result<Option<String>, ConfigError> {
    for (field, kind) in [("configMapKeyRef", Kind::ConfigMap), ("secretKeyRef", Kind::Secret)] {
        if !from.has(field) {
            continue;
        }
        let (name, key) = (from.at(field).text("name").to_owned(), from.at(field).text("key").to_owned());
        let optional = from.at(field).flag("optional");
        let Some(object) = given.objects.get(&(kind, name.clone())).and_then(Option::as_ref) else {
            return if optional { Ok(None) } else { Err(ConfigError::NoObject { kind, name }) };
        };
        return match bytes_of(kind, object, &key) {
            Some(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            None if optional => Ok(None),
            None => Err(ConfigError::NoKey { kind, name, key }),
        };
    }
    if from.has("fieldRef") {
        let path = from.text("fieldRef.fieldPath");
        let value = given.pod.and_then(|pod| downward::field(pod, &given.known, path));
        return value.map(Some).ok_or_else(|| ConfigError::NoField(path.to_owned()));
    }
    let (resource, divisor) = (from.text("resourceFieldRef.resource"), from.at("resourceFieldRef.divisor"));
    let divisor = divisor.as_str().map_or_else(|| divisor.to_string(), str::to_owned);
    let divisor = if divisor == "null" { String::new() } else { divisor };
    let value = quantities::field(container, resource, &divisor, given.capacity);
    value.map(Some).ok_or_else(|| ConfigError::NoField(resource.to_owned()))
}

/// Expands `$(NAME)`; `$$(NAME)` is escaped, and an unknown name is left unchanged.
#[must_use]
pub fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|tail| tail.split_once(')')) {
            match value(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(pod: &Value) -> Given<'_> {
        let mut objects = Objects::new();
        objects.insert((Kind::ConfigMap, "c".into()), Some(json!({"data": {"a": "1", "b": "2"}})));
        objects.insert((Kind::Secret, "s".into()), Some(json!({"data": {"pw": "aHVudGVy"}})));
        objects.insert((Kind::Secret, "gone".into()), None);
        let services = vec![("WEB_SERVICE_HOST".to_owned(), "10.96.0.9".to_owned())];
        Given { pod: Some(pod), objects, services, ..Given::default() }
    }

    #[test]
    fn later_variables_win_and_may_use_earlier_ones() {
        let pod = json!({"metadata": {"name": "p"}});
        let container = json!({
            "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "X_"}, {"secretRef": {"name": "gone", "optional": true}}],
            "env": [
                {"name": "X_a", "value": "own"},
                {"name": "URL", "value": "http://$(WEB_SERVICE_HOST)/$(X_b)/$$(X_b)/$(NOT)/$"},
                {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
                {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "zz", "optional": true}}},
                {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
            ],
        });
        assert_eq!(references(&container).len(), 4);
        let all = variables(&container, &given(&pod)).expect("all there");
        let get = |name: &str| all.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        assert_eq!(get("X_a"), Some("own"));
        assert_eq!(get("URL"), Some("http://10.96.0.9/2/$(X_b)/$(NOT)/$"));
        assert_eq!((get("PW"), get("NONE"), get("ME"), get("CPU")), (Some("hunter"), None, Some("p"), Some("0")));
    }

    #[test]
    fn missing_objects_and_keys_are_reported() {
        let pod = json!({});
        let fails = |env: Value| variables(&env, &given(&pod)).expect_err("refused").to_string();
        let by = |reference: Value| json!({"env": [{"name": "A", "valueFrom": reference}]});
        assert_eq!(fails(by(json!({"secretKeyRef": {"name": "gone", "key": "k"}}))), "secret \"gone\" not found");
        assert_eq!(
            fails(by(json!({"configMapKeyRef": {"name": "c", "key": "k"}}))),
            "couldn't find key k in configmap \"c\""
        );
        assert!(fails(by(json!({"fieldRef": {"fieldPath": "spec.x"}}))).starts_with("spec.x"));
    }
}
