//! Validates an applied configuration against the schema, with the messages of kube-apiserver.
//!
//! In: the configuration as the client sent it. Out: the text of everything that does not fit. Nothing is coerced and
//! nothing unknown is tolerated here: ownership of a field that does not exist would be worth nothing.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use serde_json::{Map, Value};

use super::custom::Custom;
use super::element::Element;
use super::node::{Form, List, Node};
use crate::field::quote;
use crate::schema::Shape;
use crate::structural::Type;

/// The error about list items with the same identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duplicates {
    /// They are in stored objects and cannot be helped.
    Allow,
    /// They do not fit.
    Refuse,
}

/// What has been found so far.
struct Findings {
    duplicates: Duplicates,
    errors: Vec<String>,
}

/// Checks an object without its `apiVersion` and `kind`.
///
/// # Errors
/// The message: one error as it is, several below each other.
pub(super) fn check(root: Node<'_>, config: &Value, duplicates: Duplicates) -> Result<(), String> {
    let mut findings = Findings { duplicates, errors: Vec::new() };
    check_at(root, config, &Trail::Root, &mut findings);
    match findings.errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

/// The way from the root, written out only when there is something to say.
enum Trail<'t> {
    Root,
    Step(&'t Self, &'t Element<'t>),
}

impl Display for Trail<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Trail::Root => Ok(()),
            Trail::Step(parent, element) => write!(f, "{parent}{element}"),
        }
    }
}

impl Trail<'_> {
    fn complain(&self, findings: &mut Findings, what: &str) {
        findings.errors.push(match self {
            Trail::Root => what.to_owned(),
            Trail::Step(..) => format!("{self}: {what}"),
        });
    }
}

fn check_at(node: Node<'_>, value: &Value, trail: &Trail<'_>, findings: &mut Findings) {
    if value.is_null() {
        return;
    }
    match (node, value) {
        (Node::Leaf(shape), _) => check_leaf(shape, value, trail, findings),
        (Node::Custom(custom), _) => check_custom(custom, value, trail, findings),
        (Node::Message(_) | Node::Map(_), Value::Object(map)) => check_members(node, map, trail, findings),
        (Node::List { .. }, Value::Array(items)) => {
            if let Form::List(list) = node.form(Some(value)) {
                check_items(list, items, trail, findings);
            }
        }
        (Node::List { .. }, _) => no_list(value, trail, findings),
        (Node::Message(_) | Node::Map(_), _) => no_map(value, trail, findings),
        (Node::Deduced | Node::Untyped, _) => {}
    }
}

fn no_list(value: &Value, trail: &Trail<'_>, findings: &mut Findings) {
    trail.complain(findings, &format!("expected list, got &{{{}}}", plain(value)));
}

fn no_map(value: &Value, trail: &Trail<'_>, findings: &mut Findings) {
    trail.complain(findings, &format!("expected map, got &{{{}}}", plain(value)));
}

fn check_items(list: List<'_>, items: &[Value], trail: &Trail<'_>, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = match list.element(item) {
            Ok(element) => element,
            Err(why) => return trail.complain(findings, &format!("element {index}: {why}")),
        };
        if findings.duplicates == Duplicates::Refuse && seen.contains(&element) {
            trail.complain(findings, &format!("duplicate entries for key {element}"));
        }
        check_at(list.item, item, &Trail::Step(trail, &element), findings);
        seen.insert(element);
    }
}

/// The items of a list that is one value.
fn check_atomic_items(item: Node<'_>, items: &[Value], trail: &Trail<'_>, findings: &mut Findings) {
    for (index, value) in items.iter().enumerate() {
        let element = Element::Index(i64::try_from(index).unwrap_or(i64::MAX));
        check_at(item, value, &Trail::Step(trail, &element), findings);
    }
}

/// Atomic values are still checked inside.
fn check_leaf(shape: &'static Shape, value: &Value, trail: &Trail<'_>, findings: &mut Findings) {
    match (shape, value) {
        (Shape::Object(ty), Value::Object(map)) => check_members(Node::Message(*ty), map, trail, findings),
        (Shape::Map(entry), Value::Object(map)) => check_members(Node::Map(entry), map, trail, findings),
        (Shape::List(item), Value::Array(items)) => {
            check_atomic_items(Node::of_shape(item), items, trail, findings);
        }
        (Shape::List(_), _) => no_list(value, trail, findings),
        (Shape::Object(_) | Shape::Map(_), _) => no_map(value, trail, findings),
        _ => {
            if let Some(what) = mismatch(shape, value) {
                trail.complain(findings, &what);
            }
        }
    }
}

/// A value of a structural schema, which may allow several types.
fn check_custom(custom: Custom<'_>, value: &Value, trail: &Trail<'_>, findings: &mut Findings) {
    let node = Node::Custom(custom);
    match (value, custom.scalar()) {
        (Value::Object(map), _) if custom.allows(Type::Object) => check_members(node, map, trail, findings),
        (Value::Array(items), _) if custom.allows(Type::Array) => match node.form(Some(value)) {
            Form::List(list) => check_items(list, items, trail, findings),
            _ => check_atomic_items(custom.item_node(), items, trail, findings),
        },
        (_, Some(shape)) => {
            if let Some(what) = mismatch(shape, value) {
                trail.complain(findings, &what);
            }
        }
        _ if custom.allows(Type::Array) => no_list(value, trail, findings),
        _ => no_map(value, trail, findings),
    }
}

fn check_members(node: Node<'_>, map: &Map<String, Value>, trail: &Trail<'_>, findings: &mut Findings) {
    for (name, value) in map {
        let element = Element::field(name);
        let here = Trail::Step(trail, &element);
        match node.member(name) {
            Some(member) => check_at(member, value, &here, findings),
            // kube-apiserver checks no further in this object.
            None => return here.complain(findings, "field not declared in schema"),
        }
    }
}

/// What is wrong with a scalar.
fn mismatch(shape: &Shape, value: &Value) -> Option<String> {
    match shape {
        Shape::Int32 | Shape::Int64 | Shape::Float64 => {
            (!value.is_number()).then(|| format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Shape::String | Shape::Bytes | Shape::Duration => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", sharp(value))),
        Shape::Bool => (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", plain(value))),
        Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString => {
            (value.is_array() || value.is_object()).then(|| format!("expected any scalar, got &{{{}}}", plain(value)))
        }
        Shape::Raw | Shape::FieldsV1 | Shape::Json => None,
        Shape::Object(_) | Shape::Union(..) | Shape::List(_) | Shape::Map(_) => None,
    }
}

/// The Go type of a decoded JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.as_i64().map_or_else(|| float(number.as_f64()), |number| number.to_string()),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let members: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// A value as Go's `%#v` prints it.
fn sharp(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(sharp).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let members: Vec<String> =
                map.iter().map(|(key, value)| format!("{}:{}", quote(key), sharp(value))).collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
    }
}

/// A float as Go's `%v` prints it: the shortest digits, with an exponent from a million on and below 0.0001.
fn float(number: Option<f64>) -> String {
    let number = number.unwrap_or_default();
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..6).contains(&exponent) => number.to_string(),
        Ok(exponent) => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    fn words(config: &Value) -> String {
        check(Node::Message(schema::named("core.Service")), config, Duplicates::Refuse).expect_err("does not fit")
    }

    #[test]
    fn what_fits_passes() {
        let config = json!({
            "metadata": {"name": "web", "labels": {"a": null}, "creationTimestamp": null},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 80, "protocol": "UDP"}], "selector": null},
        });
        assert_eq!(check(Node::Message(schema::named("core.Service")), &config, Duplicates::Refuse), Ok(()));
    }

    #[test]
    fn unknown_fields_and_wrong_types_are_named() {
        assert_eq!(words(&json!({"spec": {"foo": 1}})), ".spec.foo: field not declared in schema");
        assert_eq!(
            words(&json!({"metadata": {"labels": {"a": 1}}})),
            ".metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}"
        );
        assert_eq!(
            words(&json!({"spec": {"ports": [{"port": "x"}]}})),
            ".spec.ports[port=\"x\",protocol=\"TCP\"].port: expected numeric (int or float), got string"
        );
        assert_eq!(words(&json!({"spec": {"ports": {"a": 1}}})), ".spec.ports: expected list, got &{map[a:1]}");
        assert_eq!(words(&json!({"spec": [1, "b"]})), ".spec: expected map, got &{[1 b]}");
        assert_eq!(words(&json!([])), "expected map, got &{[]}");
        assert_eq!(
            words(&json!({"spec": {"publishNotReadyAddresses": "yes"}})),
            ".spec.publishNotReadyAddresses: expected boolean, got &{yes}"
        );
        assert_eq!(
            words(&json!({"spec": {"externalIPs": ["a", 2]}})),
            ".spec.externalIPs[1]: expected string, got &value.valueUnstructured{Value:2}"
        );
    }

    #[test]
    fn items_need_an_identity_of_their_own() {
        assert_eq!(
            words(&json!({"spec": {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}})),
            ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]"
        );
        assert_eq!(
            words(&json!({"metadata": {"finalizers": ["a", "a"], "ownerReferences": [null]}})),
            "errors:\n  .metadata.finalizers: duplicate entries for key [=\"a\"]\n  .metadata.ownerReferences: element \
             0: associative list with keys may not have a null element"
        );
    }

    #[test]
    fn numbers_print_as_go_prints_them() {
        assert_eq!(float(Some(1.5)), "1.5");
        assert_eq!(float(Some(1e6)), "1e+06");
        assert_eq!(float(Some(100_000.0)), "100000");
        assert_eq!(float(Some(2.5e-7)), "2.5e-07");
        assert_eq!(
            sharp(&json!({"a": [1, null]})),
            "map[string]interface {}{\"a\":[]interface {}{1, interface {}(nil)}}"
        );
    }
}
