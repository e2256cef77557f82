//! Comparison with the upstream definitions, which `scripts/gateway-api` downloads: equal schemas apart from descriptions and the
//! text of rules, and equal errors for generated objects, so that the rules decide alike.
//!
//! In: the directory in `GATEWAY_API_CRDS`, with the definitions of each channel in a directory of its name.

use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::custom;
use crate::structural::rules;
use crate::yaml::from_yaml;

/// Pairs of objects that are compared for each version.
const PAIRS: usize = 3000;

/// The upstream definition of the same name.
fn upstream(channel: Channel, builder: &Builder) -> Value {
    let dir = PathBuf::from(std::env::var_os("GATEWAY_API_CRDS").expect("GATEWAY_API_CRDS, the directory config/crd"));
    let (plural, group) = builder.name.split_once('.').expect("plural.group");
    let path = dir.join(channel.name()).join(format!("{group}_{plural}.yaml"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    from_yaml(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())).0
}

/// A schema without what may differ.
fn comparable(schema: &mut Value) {
    if let Value::Object(members) = schema {
        if members.get("description").is_some_and(Value::is_string) {
            members.remove("description");
        }
        for rule in members.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut).into_iter().flatten() {
            rule.drop_path("rule");
        }
        members.values_mut().for_each(comparable);
    } else if let Value::Array(items) = schema {
        items.iter_mut().for_each(comparable);
    }
}

#[test]
#[ignore = "needs the definitions of the upstream bundle: scripts/gateway-api downloads them and runs this"]
fn schemas_equal_those_of_the_bundle() {
    for channel in CHANNELS {
        for builder in builders(channel) {
            let (mut ours, mut theirs) = (builder.definition(channel), upstream(channel, builder));
            ours.drop_path("spec.conversion");
            for definition in [&mut ours, &mut theirs] {
                comparable(definition);
            }
            let differences = differences("", &ours, &theirs);
            assert!(differences.is_empty(), "{} {}:\n{}", builder.name, channel.name(), differences.join("\n"));
        }
    }
}

/// Where two values differ.
fn differences(path: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let both = |key: &String| (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
            keys.into_iter()
                .flat_map(|key| {
                    let (left, right) = both(key);
                    differences(&format!("{path}/{key}"), left, right)
                })
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .flat_map(|(index, (left, right))| differences(&format!("{path}/{index}"), left, right))
            .collect(),
        (a, b) if a == b => Vec::new(),
        (a, b) => vec![format!("{path}: {a} instead of {b}")],
    }
}

#[test]
#[ignore = "needs the definitions of the upstream bundle: scripts/gateway-api downloads them and runs this"]
fn rules_decide_like_those_of_the_bundle() {
    let mut decided = Decided::default();
    for channel in CHANNELS {
        for builder in builders(channel) {
            let (ours, theirs) = (builder.definition(channel), upstream(channel, builder));
            let pairs = custom::Definition::all(&ours, 1).into_iter().zip(custom::Definition::all(&theirs, 1));
            for (version, (ours, theirs)) in ours.items("spec.versions").iter().zip(pairs) {
                let mut maker = Maker {
                    state: 0x9e37_79b9_7f4a_7c15,
                    schema: version.at("schema.openAPIV3Schema"),
                    has_many_matches: false,
                };
                for _ in 0..PAIRS {
                    let (old, new) = maker.pair();
                    let (wanted, errors) = (errors(&theirs, &new, &old), errors(&ours, &new, &old));
                    assert_eq!(errors, wanted, "{} {}: {new} after {old:?}", builder.name, channel.name());
                    decided.count(&wanted);
                }
            }
            decided.expect_all_rules(&theirs, builder.name);
        }
    }
}

/// The messages that occurred, so that no rule is compared on conforming objects only.
#[derive(Default)]
struct Decided {
    messages: BTreeSet<String>,
    accepted: usize,
}

impl Decided {
    fn count(&mut self, errors: &[String]) {
        self.accepted += usize::from(errors.is_empty());
        self.messages.extend(errors.iter().cloned());
    }

    fn expect_all_rules(&mut self, definition: &Value, name: &str) {
        let mut messages = Vec::new();
        rule_messages(definition.at("spec.versions"), &mut messages);
        let seen = |message: &&String| self.messages.iter().any(|error| error.contains(message.as_str()));
        let missing: Vec<&String> = messages.iter().filter(|message| !seen(message)).collect();
        assert!(missing.is_empty() && self.accepted > 0, "{name}: never broken: {missing:#?}");
        *self = Self::default();
    }
}

fn rule_messages(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            out.extend(schema.items("x-kubernetes-validations").iter().map(|rule| rule.text("message").to_owned()));
            members.values().for_each(|value| rule_messages(value, out));
        }
        Value::Array(items) => items.iter().for_each(|value| rule_messages(value, out)),
        _ => {}
    }
}

/// The errors of an object, in their order.
fn errors(definition: &custom::Definition, new: &Value, old: &Option<Value>) -> Vec<String> {
    let defaulted = |value: &Value| {
        let mut value = value.clone();
        definition.schema().prune(&mut value);
        definition.schema().apply_defaults(&mut value);
        value
    };
    let (new, old) = (defaulted(new), old.as_ref().map(defaulted));
    let mut errors = Errors::default();
    definition.schema().validate_values(&new, old.as_ref(), None, &mut errors);
    definition.schema().validate_lists(&new, old.as_ref(), &mut errors);
    if !rules::blocks(&errors) {
        definition.rules().validate(definition.schema(), &new, old.as_ref(), &mut errors, &mut Vec::new());
    }
    errors.0.iter().map(|error| format!("{}: {}", error.field, error.body)).collect()
}

/// Makes objects from a schema: mostly conforming, with values at which rules decide differently.
struct Maker<'s> {
    state: u64,
    schema: &'s Value,
    /// Whether the object gets more matches than a route may have.
    has_many_matches: bool,
}

impl Maker<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % bound as u64).expect("a small number")
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<'p, T>(&mut self, from: &'p [T]) -> &'p T {
        &from[self.below(from.len())]
    }

    /// An object, and perhaps what it was before.
    fn pair(&mut self) -> (Option<Value>, Value) {
        let new = self.object();
        let old = match self.below(4) {
            0 => Some(self.object()),
            1 => Some(new.clone()),
            _ => None,
        };
        (old, new)
    }

    fn object(&mut self) -> Value {
        let schema = self.schema;
        // The size of objects varies: large ones break many rules at once, small ones single rules.
        let density = 1 + self.below(6);
        self.has_many_matches = self.one_in(100);
        let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}});
        for part in ["spec", "status"] {
            if part == "spec" || self.one_in(4) {
                let value = self.value(schema.at("properties").at(part), part, density);
                object.put(part, value);
            }
        }
        object
    }

    fn value(&mut self, schema: &Value, name: &str, density: usize) -> Value {
        if let Some(choices) = schema.get("enum").and_then(Value::as_array)
            && !self.one_in(20)
        {
            return self.pick(choices).clone();
        }
        match schema.text("type") {
            "object" => self.members(schema, name, density),
            "array" => {
                let (count, density) = match name {
                    "rules" if self.has_many_matches => (3, 6),
                    "matches" if self.has_many_matches => (64, 0),
                    _ => (*self.pick(&[0, 1, 1, 1, 2, 2, 3]), density),
                };
                let mut items: Vec<Value> = (0..count).map(|_| self.value(schema.at("items"), name, density)).collect();
                if let (Some(first), true) = (items.first().cloned(), self.one_in(4)) {
                    items.push(first);
                }
                items.into()
            }
            "integer" => json!(*self.pick(&[0, 1, 1, 2, 80, 80, 100, 500, 70_000])),
            "boolean" => json!(self.one_in(2)),
            _ => json!(self.text(name)),
        }
    }

    fn members(&mut self, schema: &Value, name: &str, density: usize) -> Value {
        let mut out = json!({});
        if schema.has("additionalProperties") {
            for _ in 0..self.below(3) {
                let key = *self.pick(&["a", "example.com/b", "-", "a/b/c", "B", ""]);
                let key = if self.one_in(8) { format!("{}/k", "a.".repeat(130)) } else { key.to_owned() };
                out[key] = self.value(schema.at("additionalProperties"), name, density);
            }
            return out;
        }
        let required = schema.texts("required");
        for (key, field) in schema.map("properties").into_iter().flatten() {
            let is_wanted = if required.contains(&key.as_str()) { !self.one_in(150) } else { self.below(6) < density };
            if is_wanted {
                out[key] = self.value(field, key, density);
            }
        }
        // Most unions have the member of their type.
        let kind = out.text("type").to_owned();
        let member = kind.get(..1).map(|first| first.to_lowercase() + &kind[1..]);
        if let (Some(member), false) = (member, self.one_in(4))
            && let Some(field) = schema.at("properties").get(&member)
        {
            out[&member] = self.value(field, &member, density);
        }
        out
    }

    fn text(&mut self, name: &str) -> String {
        let known: &[&str] = match name {
            "protocol" => &["HTTP", "HTTPS", "TLS", "TCP", "UDP", "example.com/X", ""],
            "kind" => &["Service", "Gateway", "XBackend", "Secret", "ClusterTrustBundle", "-"],
            "group" => {
                &["", "", "gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "certificates.k8s.io", "x_"]
            }
            "request" | "backendRequest" | "interval" | "backoff" | "absoluteTimeout" => {
                &["0s", "1s", "10s", "1500ms", "1h", "2h", "1h1s", "500ms", "x", ""]
            }
            "type" => &["IPAddress", "Hostname", "Hostname", "NamedAddress", "example.com/x", ""],
            "hostname" | "hostnames" => &[
                "a.example.com",
                "*.example.com",
                "a.cluster.local",
                "10.0.0.1",
                "*",
                "a*b",
                "2001:db8::1",
                "*.10.0.0.1",
                "",
            ],
            "value" => &[
                "/", "/a", "a", "//", "/./b", "/..", "/.", "/../a", "%2f", "/%2F", "/#", "/ä", "10.0.0.1", "::1",
                "a.b", "",
            ],
            "routability" => &["", "Cluster", "k8s.io/x", "a.k8s.io/x", "example.com/x", "_/x", "x", "a/b/c"],
            "service" | "method" => &["a.B", ".a", "a b", "Get", "1", ""],
            "allowHeaders" | "allowOrigins" | "allowMethods" => &["*", "X-A", "http://a.example.com", ""],
            "wellKnownCACertificates" => &["System", "example.com/x", ""],
            _ => &["a", "a", "b", "a-1", "A B", ""],
        };
        (*self.pick(known)).to_owned()
    }
}
