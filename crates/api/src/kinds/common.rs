//! Checks that several kinds share and that are no rule of names, addresses or metadata.
//!
//! In: values and paths. Out: field errors of Kubernetes. Everything here has at least two users.

use serde_json::Value;

use crate::field::{Errors, FieldError, Path, quote};
use crate::ip;
use crate::names;
use crate::value::ValueExt as _;

/// What a write to an immutable field is answered with.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// The transport protocols, sorted as messages list them.
pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Bytes of the message of a condition.
const MAX_CONDITION_MESSAGE: usize = 32 * 1024;
/// Bytes of the reason of a condition.
const MAX_CONDITION_REASON: usize = 1024;
const BAD_CONDITION_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a \
     string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or \
     'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
     '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// One `Invalid value` for each thing that is wrong with a string.
pub(super) fn report(path: &Path<'_>, value: &str, wrong: Vec<String>, errors: &mut Errors) {
    for detail in wrong {
        errors.invalid(path, value, &detail);
    }
}

/// Refuses a change of a string.
pub(super) fn immutable_text(path: &Path<'_>, new: &str, old: &str, errors: &mut Errors) {
    if new != old {
        errors.invalid(path, new, IMMUTABLE);
    }
}

/// Refuses a reference to something that does not exist in the same object.
pub(super) fn not_found(path: &Path<'_>, value: &str, errors: &mut Errors) {
    let body = format!("Not found: {}", quote(value));
    errors.0.push(FieldError { reason: "FieldValueNotFound", field: path.to_string(), body });
}

/// Refuses a value that is printed as Go prints a struct ([`go_struct`]).
pub(super) fn invalid_struct(path: &Path<'_>, printed: &str, detail: &str, errors: &mut Errors) {
    let body = format!("Invalid value: {printed}: {detail}");
    errors.0.push(FieldError { reason: "FieldValueInvalid", field: path.to_string(), body });
}

/// Refuses something without printing it.
pub(super) fn invalid_omitted(path: &Path<'_>, detail: &str, errors: &mut Errors) {
    let body = format!("Invalid value: {detail}");
    errors.0.push(FieldError { reason: "FieldValueInvalid", field: path.to_string(), body });
}

/// Refuses a repeated struct; the detail may be empty.
pub(super) fn duplicate_struct(path: &Path<'_>, printed: &str, detail: &str, errors: &mut Errors) {
    let separator = if detail.is_empty() { "" } else { ": " };
    let body = format!("Duplicate value: {printed}{separator}{detail}");
    errors.0.push(FieldError { reason: "FieldValueDuplicate", field: path.to_string(), body });
}

/// An object as Go prints the struct behind it: members by their Go names, in the order they are declared.
/// `members` pairs Go name and JSON name; a missing one prints as an empty string, or as null if its JSON name is
/// marked with `?`.
pub(super) fn go_struct(object: &Value, members: &[(&str, &str)]) -> String {
    let print = |(name, field): &(&str, &str)| match (object.at(field.trim_end_matches('?')), field.ends_with('?')) {
        (Value::Null, false) => format!("\"{name}\":\"\""),
        (value, _) => format!("\"{name}\":{value}"),
    };
    format!("{{{}}}", members.iter().map(print).collect::<Vec<_>>().join(","))
}

/// Rejects an empty or unknown value.
pub(super) fn one_of(path: &Path<'_>, word: &str, known: &[&str], errors: &mut Errors) {
    if word.is_empty() {
        errors.required(path, "");
    } else if !known.contains(&word) {
        errors.not_supported(path, word, known);
    }
}

/// An environment variable: printable ASCII without `=`.
pub(super) fn variable_name(name: &str) -> Vec<String> {
    if name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// A name of a host, or `*.` and one.
pub(super) fn host_or_wildcard(host: &str) -> Vec<String> {
    if host.contains('*') { names::wildcard_subdomain(host) } else { names::dns_subdomain(host) }
}

/// Whether two values mean the same: nothing, null, an empty list and an empty map are one.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_empty(value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b || (is_empty(a) && is_empty(b)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Metadata that users own stays as it was, where a change of the status may not touch it.
pub(super) fn keep_metadata(new: &mut Value, old: &Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "generation"] {
        let path = format!("metadata.{field}");
        match old.at(&path) {
            Value::Null => {
                new.drop_path(&path);
            }
            value => new.put(&path, value.clone()),
        }
    }
}

/// Conditions of a status in the form that all newer kinds share (`metav1.Condition`).
pub(super) fn validate_conditions(path: &Path<'_>, conditions: &[Value], errors: &mut Errors) {
    const STATUSES: &[&str] = &["False", "True", "Unknown"];
    for (index, condition) in conditions.iter().enumerate() {
        let (path, kind) = (path.index(index), condition.text("type"));
        if conditions[..index].iter().any(|earlier| earlier.text("type") == kind) {
            errors.duplicate(&path, kind);
        }
        if kind.is_empty() {
            errors.required(&path.child("type"), "is required");
        } else {
            report(&path.child("type"), kind, names::qualified_name(kind), errors);
        }
        one_of(&path.child("status"), condition.text("status"), STATUSES, errors);
        let generation = condition.int("observedGeneration");
        if generation < 0 {
            errors.invalid(&path.child("observedGeneration"), generation, "must be greater than or equal to zero");
        }
        if !condition.has("lastTransitionTime") {
            errors.required(&path.child("lastTransitionTime"), "");
        }
        validate_condition_reason(&path.child("reason"), condition.text("reason"), errors);
        if condition.text("message").len() > MAX_CONDITION_MESSAGE {
            errors.too_long(&path.child("message"), MAX_CONDITION_MESSAGE);
        }
    }
}

fn validate_condition_reason(path: &Path<'_>, reason: &str, errors: &mut Errors) {
    if reason.is_empty() {
        return errors.required(path, "");
    }
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let is_valid = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.chars().all(inner);
    if !is_valid {
        errors.invalid(path, reason, BAD_CONDITION_REASON);
    }
    if reason.len() > MAX_CONDITION_REASON {
        errors.too_long(path, MAX_CONDITION_REASON);
    }
}

/// The load balancer part of a status: addresses and names, values of `old` pass.
pub(super) fn validate_ingress_points(path: &Path<'_>, points: &[Value], old: &[Value], errors: &mut Errors) {
    let old: Vec<&str> = old.iter().map(|point| point.text("ip")).filter(|ip| !ip.is_empty()).collect();
    for (index, point) in points.iter().enumerate() {
        let path = path.index(index);
        let (address, host) = (point.text("ip"), point.text("hostname"));
        if !address.is_empty() {
            ip::check_address(&path.child("ip"), address, &old, errors);
        }
        if !host.is_empty() {
            let path = path.child("hostname");
            report(&path, host, names::dns_subdomain(host), errors);
            if ip::parse_lenient(host).is_some() {
                errors.invalid(&path, host, "must be a DNS name, not an IP address");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_variables() {
        assert!(variable_name("a.b-C %1").is_empty());
        assert_eq!(variable_name("a=b").len(), 1);
        assert_eq!(variable_name("é").len(), 1);
    }

    #[test]
    fn empty_things_are_the_same() {
        assert!(same(&json!({"a": null, "b": [{}]}), &json!({"b": [{"c": {}}]})));
        assert!(same(&Value::Null, &json!([])));
        assert!(!same(&json!({"a": ""}), &json!({})));
        assert!(!same(&json!([1, 2]), &json!([1])));
    }

    #[test]
    fn wildcards_stand_in_front() {
        assert!(host_or_wildcard("*.example.com").is_empty());
        assert!(host_or_wildcard("a.example.com").is_empty());
        for bad in ["*", "*.", "*example.com", "a.*.com", "*.*.com", "*.Foo"] {
            assert_eq!(host_or_wildcard(bad).len(), 1, "{bad}");
        }
    }
}
