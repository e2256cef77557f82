//! Field errors about rules, with the messages of Kubernetes.

use serde_json::Value;

use crate::field::{Bad, FieldError, Path, quote};
use crate::structural::{Rule, Type};

/// What the field of an error is when it concerns the object as a whole.
const WHOLE: &str = "<nil>";

/// A path, or the object as a whole.
pub(super) fn field(path: Option<&Path<'_>>) -> String {
    path.map_or_else(|| WHOLE.to_owned(), ToString::to_string)
}

/// A value is not acceptable; the value is left out if there is none.
pub(super) fn invalid(field: String, value: Option<&str>, detail: &str) -> FieldError {
    let body =
        value.map_or_else(|| format!("Invalid value: {detail}"), |value| format!("Invalid value: {value}: {detail}"));
    FieldError { reason: "FieldValueInvalid", field, body }
}

/// Evaluating a rule failed: the type of the value stands for the value.
pub(super) fn failed(path: Option<&Path<'_>>, ty: Option<Type>, detail: &str) -> FieldError {
    invalid(field(path), Some(&quote(type_name(ty))), detail)
}

/// A rule does not hold.
pub(super) fn refused(field: String, value: Option<&str>, detail: &str, reason: &str) -> FieldError {
    match reason {
        "FieldValueForbidden" => {
            FieldError { reason: "FieldValueForbidden", field, body: format!("Forbidden: {detail}") }
        }
        "FieldValueRequired" => {
            FieldError { reason: "FieldValueRequired", field, body: format!("Required value: {detail}") }
        }
        "FieldValueDuplicate" => {
            let body = value.map_or_else(|| "Duplicate value".to_owned(), |value| format!("Duplicate value: {value}"));
            FieldError { reason: "FieldValueDuplicate", field, body }
        }
        _ => invalid(field, value, detail),
    }
}

/// A value as errors show it; none for objects and lists.
pub(super) fn shown(value: &Value, ty: Option<Type>) -> Option<String> {
    match (ty, value) {
        (Some(Type::Object | Type::Array), _) => None,
        (_, Value::Number(number)) if !number.is_i64() => number.as_f64().map(cel::format_double),
        _ => Some(Bad::from(value).to_string()),
    }
}

/// A type as a value in an error.
pub(super) fn type_name(ty: Option<Type>) -> &'static str {
    ty.map_or("", Type::as_str)
}

/// An expression of a rule is not valid: the rule is the value.
pub(super) fn rule_error(path: &Path<'_>, rule: &Rule, detail: &str) -> FieldError {
    let optional = rule.optional_old_self.map_or_else(|| "null".to_owned(), |optional| optional.to_string());
    let reason = if rule.reason.is_empty() { "null".to_owned() } else { json(&rule.reason) };
    let value = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
        json(&rule.rule),
        json(&rule.message),
        json(&rule.message_expression),
        json(&rule.field_path)
    );
    invalid(path.to_string(), Some(&value), detail)
}

/// A string in JSON as Go writes it, with escapes for what HTML gives a meaning.
fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}
