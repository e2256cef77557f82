//! The definitions and objects of the load: a workload-like kind whose schema has [`RULES`] rules in CEL.
//!
//! Limits of strings, lists and maps are stated, because kube-apiserver refuses rules whose estimated cost is too high.

use serde_json::{Value, json};

use crate::load::NAMESPACE;

/// How many rules the schema of each definition has.
pub const RULES: usize = 20;
/// Where CustomResourceDefinitions are.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where the objects of [`definition`] are.
pub const WORKERS: &str = "/apis/bench.example.com/v1/namespaces/bench/workers";
/// The group of [`definition`].
const GROUP: &str = "bench.example.com";
/// How many kinds one group has.
pub const KINDS_OF_GROUP: usize = 10;

/// The definition of the objects that are created, listed and watched.
#[must_use]
pub fn definition() -> Value {
    custom(GROUP, "workers", "Worker")
}

/// One of many definitions; ten share a group.
#[must_use]
pub fn numbered(number: usize) -> Value {
    custom(&group(number), &format!("workers{number}"), &format!("Worker{number}"))
}

/// The name of one of many definitions.
#[must_use]
pub fn name(number: usize) -> String {
    format!("workers{number}.{}", group(number))
}

/// The group of one of many definitions.
#[must_use]
pub fn group(number: usize) -> String {
    format!("g{}.{GROUP}", number / KINDS_OF_GROUP)
}

/// An object of [`definition`] that keeps all rules.
#[must_use]
pub fn worker(name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Worker",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name, "tier": "backend"}},
        "spec": {
            "image": "registry.example.com/workers/resize:1.4.2", "tier": "batch", "paused": false,
            "replicas": 3, "minReplicas": 1, "maxReplicas": 10,
            "ports": [
                {"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "metrics", "port": 9090, "protocol": "TCP"},
            ],
            "parameters": {"app.queue": "resize", "app.region": "eu-west", "app.size": "large"},
            "resources": {"cpu": 250, "cpuLimit": 500, "memory": 128, "memoryLimit": 256},
            "window": {"start": 2, "end": 6},
        },
    })
}

fn custom(group: &str, plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema()},
                "additionalPrinterColumns": [
                    {"name": "Image", "type": "string", "jsonPath": ".spec.image"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn schema() -> Value {
    let condition = json!({
        "type": "object", "required": ["type", "status"],
        "properties": {
            "type": {"type": "string", "maxLength": 64}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "maxLength": 64}, "message": {"type": "string", "maxLength": 1024},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    });
    json!({
        "type": "object", "description": "A worker that takes jobs from a queue.",
        "properties": {
            "spec": spec(),
            "status": {"type": "object", "properties": {
                "replicas": {"type": "integer", "format": "int32"},
                "conditions": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"], "items": condition},
            }},
        },
        "x-kubernetes-validations": rules(&["self.metadata.name.size() <= 63", "has(self.spec)"]),
    })
}

fn spec() -> Value {
    let count = json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 10_000});
    let hour = json!({"type": "integer", "minimum": 0, "maximum": 24});
    json!({
        "type": "object", "description": "What the worker runs, and how often.",
        "required": ["image", "replicas", "minReplicas", "maxReplicas", "resources", "ports"],
        "properties": {
            "image": {"type": "string", "maxLength": 128, "description": "The image of the worker.",
                "x-kubernetes-validations": rules(&["self.contains(':')", "self.matches('^[a-z0-9./:-]+$')", "!self.endsWith(':latest')"])},
            "tier": {"type": "string", "enum": ["batch", "interactive"], "default": "batch",
                "x-kubernetes-validations": rules(&["self == oldSelf"])},
            "paused": {"type": "boolean", "default": false},
            "replicas": count, "minReplicas": count, "maxReplicas": count,
            "ports": {"type": "array", "maxItems": 8, "items": port(), "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": rules(&["self.exists_one(port, port.name == 'http')", "self.all(port, port.port > 1024)"])},
            "parameters": {"type": "object", "maxProperties": 10,
                "additionalProperties": {"type": "string", "maxLength": 63},
                "x-kubernetes-validations": rules(&["self.all(key, key.startsWith('app.'))", "self.all(key, self[key] != '')"])},
            "resources": {"type": "object", "required": ["cpu", "cpuLimit", "memory", "memoryLimit"],
                "properties": {"cpu": count, "cpuLimit": count, "memory": count, "memoryLimit": count},
                "x-kubernetes-validations": rules(&["self.cpu <= self.cpuLimit", "self.memory <= self.memoryLimit"])},
            "window": {"type": "object", "required": ["start", "end"], "properties": {"start": hour, "end": hour},
                "x-kubernetes-validations": rules(&["self.start < self.end"])},
        },
        "x-kubernetes-validations": rules(&[
            "self.minReplicas <= self.replicas", "self.replicas <= self.maxReplicas", "!self.paused || self.replicas == self.minReplicas",
            "self.tier != 'batch' || has(self.window)", "self.replicas * self.resources.cpu <= 100000",
        ]),
    })
}

fn port() -> Value {
    json!({
        "type": "object", "required": ["name", "port"],
        "properties": {
            "name": {"type": "string", "maxLength": 15}, "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
        },
        "x-kubernetes-validations": rules(&["self.name != 'http' || self.protocol == 'TCP'", "self.port != 2222"]),
    })
}

fn rules(expressions: &[&str]) -> Value {
    expressions.iter().map(|rule| json!({"rule": rule, "message": format!("must hold: {rule}")})).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::custom::{Interner, Kinds};
    use api::field::Errors;
    use api::kinds::customresourcedefinition::KIND;

    use super::*;

    fn count_rules(schema: &Value) -> usize {
        let own = |(key, value): (&String, &Value)| {
            let here = if key == "x-kubernetes-validations" { value.as_array().map_or(0, Vec::len) } else { 0 };
            here + count_rules(value)
        };
        schema.as_object().into_iter().flatten().map(own).sum()
    }

    #[test]
    fn the_definition_has_as_many_rules_as_it_says_and_is_valid() {
        for mut definition in [definition(), numbered(499)] {
            assert_eq!(count_rules(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]), RULES);
            KIND.rules.default(&mut definition);
            KIND.rules.prepare_create(&mut definition);
            let mut errors = Errors::default();
            KIND.rules.validate_create(&definition, &mut errors);
            assert!(errors.is_empty(), "{:?}", errors.0);
        }
        assert_eq!(
            (name(499), group(499)),
            ("workers499.g49.bench.example.com".to_owned(), "g49.bench.example.com".to_owned())
        );
        assert_eq!(numbered(499)["metadata"]["name"], name(499));
    }

    #[test]
    fn objects_are_valid_and_rules_refuse_others() {
        let mut definition = definition();
        definition["status"] = json!({
            "acceptedNames": definition["spec"]["names"],
            "conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}],
        });
        let defined = BTreeMap::from([("workers".to_owned(), Interner::default().define(&definition, 1))]);
        let kinds = Kinds::new(&defined, 1);
        let kind = kinds.find(GROUP, "v1", "workers").expect("an established definition");
        let errors_of = |object: &Value| {
            let mut object = object.clone();
            kind.rules.default(&mut object);
            let mut errors = Errors::default();
            kind.rules.validate_create(&object, &mut errors);
            errors.0
        };
        let mut object = worker("a");
        assert!(errors_of(&object).is_empty(), "{:?}", errors_of(&object));
        object["spec"]["resources"]["cpu"] = 501.into();
        assert_eq!(errors_of(&object).len(), 1, "{:?}", errors_of(&object));
    }
}
