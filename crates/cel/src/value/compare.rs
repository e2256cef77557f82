//! Equality and order of values.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::{List, Map, Unique, Value, number};
use crate::budget::{Budget, Stop};
use crate::declared::Shape;

/// Whether two values are equal. Numbers of different types are equal if they are the same number.
///
/// # Errors
/// A few Kubernetes types refuse to be compared with values of other types.
pub(crate) fn equal(budget: &mut Budget, left: &Value<'_>, right: &Value<'_>) -> Result<bool, Stop> {
    budget.work(1)?;
    let same_kind = |same: Option<bool>| same.ok_or_else(Stop::no_such_overload);
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            numbers(left, right) == Some(Ordering::Equal)
        }
        (Value::String(left), Value::String(right)) => {
            let (left, right) = (left.as_str(), right.as_str());
            if left.len() == right.len() {
                budget.bytes(left.len())?;
            }
            left == right
        }
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left.order(right).is_eq(),
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left == right,
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equal(budget, left, right)?,
            (left, right) => left.is_none() == right.is_none(),
        },
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len()
                && match left.unique() {
                    Unique::No => all_equal(budget, left, right)?,
                    unique => same_elements(budget, unique, left, right)?,
                }
        }
        (Value::Map(left), Value::Map(right)) => left.len() == right.len() && same_entries(budget, left, right)?,
        // What a schema declares as a list or a map is not compared with anything else.
        (Value::List(left), _) if left.is_declared() => return Err(Stop::no_such_overload()),
        (Value::Map(left), _) if left.as_declared().is_some() => return Err(Stop::no_such_overload()),
        (Value::Invalid(message), _) | (_, Value::Invalid(message)) => return Err(Stop::Error((**message).to_owned())),
        (Value::Object(left), right) => {
            same_kind(if let Value::Object(right) = right { Some(std::ptr::addr_eq(*left, *right)) } else { None })?
        }
        (Value::Quantity(left), right) => same_kind(match right {
            Value::Quantity(right) if !right.is_computed() => Some(left.order(right).is_eq()),
            _ => None,
        })?,
        (Value::Url(left), right) => {
            same_kind(if let Value::Url(right) = right { Some(left.to_string() == right.to_string()) } else { None })?
        }
        (Value::Ip(left), right) => same_kind(if let Value::Ip(right) = right { Some(left == right) } else { None })?,
        (Value::Cidr(left), right) => {
            same_kind(if let Value::Cidr(right) = right { Some(left == right) } else { None })?
        }
        (Value::Semver(left), right) => {
            same_kind(if let Value::Semver(right) = right { Some(left.order(right).is_eq()) } else { None })?
        }
        (Value::Format(left), right) => {
            same_kind(if let Value::Format(right) = right { Some(left.name == right.name) } else { None })?
        }
        (Value::Check(_), _) => return Err(Stop::no_such_overload()),
        _ => false,
    })
}

fn all_equal(budget: &mut Budget, left: &List<'_>, right: &List<'_>) -> Result<bool, Stop> {
    let declared = left.is_declared();
    for (left, right) in left.iter().zip(right.iter()) {
        let same = equal(budget, &left, &right);
        if !(if declared { same } else { is_not_false(same) })? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two lists of the same length have the same elements in any order.
fn same_elements(budget: &mut Budget, unique: Unique<'_>, left: &List<'_>, right: &List<'_>) -> Result<bool, Stop> {
    budget.make(left.len())?;
    let mut known = HashMap::with_capacity(left.len());
    for value in left.iter() {
        known.insert(unique.key(&value)?, value);
    }
    let mut seen = HashSet::with_capacity(known.len());
    for value in right.iter() {
        let key = unique.key(&value)?;
        match known.get(&key) {
            None => return Ok(false),
            Some(other) if unique != Unique::Values && !equal(budget, other, &value)? => return Ok(false),
            Some(_) => drop(seen.insert(key)),
        }
    }
    Ok(seen.len() == known.len())
}

/// Whether two maps of the same size have the same entries.
fn same_entries(budget: &mut Budget, left: &Map<'_>, right: &Map<'_>) -> Result<bool, Stop> {
    let Some((fields, declared)) = left.as_declared() else {
        for (key, value) in left.iter() {
            match right.find(&key) {
                Some(other) if is_not_false(equal(budget, &value, &other))? => {}
                _ => return Ok(false),
            }
        }
        return Ok(true);
    };
    for (name, json) in fields {
        let known = match declared.shape() {
            Shape::Object(properties) => properties.fields.get(name.as_str()).and_then(Option::as_deref),
            Shape::Map(values) => Some(&**values),
            _ => None,
        };
        let same = match known {
            Some(known) => {
                let is_object = matches!(declared.shape(), Shape::Object(_));
                let value = (!is_object || !json.is_null()).then(|| Value::declared(json, known));
                let escaped = if is_object { crate::escape::escape(name) } else { None };
                let other = right.find(&Value::string(escaped.as_deref().unwrap_or(name)));
                match (value, other) {
                    (Some(value), Some(other)) => equal(budget, &value, &other)?,
                    (value, other) => value.is_none() == other.is_none(),
                }
            }
            // Fields that the schema does not know are compared as they are, if the other object has them.
            None => {
                let (others, _) = right.as_declared().ok_or_else(Stop::no_such_overload)?;
                match others.get(name) {
                    Some(other) => equal_json(budget, json, other)?,
                    None => true,
                }
            }
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two JSON values are equal.
fn equal_json(budget: &mut Budget, left: &Json, right: &Json) -> Result<bool, Stop> {
    budget.work(1)?;
    Ok(match (left, right) {
        (Json::String(left), Json::String(right)) => {
            budget.bytes(left.len().min(right.len()))?;
            left == right
        }
        (Json::Array(left), Json::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right) {
                if !equal_json(budget, left, right)? {
                    return Ok(false);
                }
            }
            true
        }
        (Json::Object(left), Json::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (name, value) in left {
                match right.get(name) {
                    Some(other) if equal_json(budget, value, other)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (left, right) => left == right,
    })
}

/// Elements that refuse to be compared count as equal.
fn is_not_false(equal: Result<bool, Stop>) -> Result<bool, Stop> {
    match equal {
        Err(Stop::Error(_)) => Ok(true),
        other => other,
    }
}

/// Whether two values are equal, where refusing to be compared is being different.
pub(crate) fn is_equal(budget: &mut Budget, left: &Value<'_>, right: &Value<'_>) -> Result<bool, Stop> {
    match equal(budget, left, right) {
        Err(Stop::Error(_)) => Ok(false),
        other => other,
    }
}

/// The order of two numbers, exact across types; none with NaN.
fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Double(left), Value::Int(right)) => left.partial_cmp(&number::from_int(*right)),
        (Value::Double(left), Value::Uint(right)) => left.partial_cmp(&number::from_uint(*right)),
        (Value::Int(_) | Value::Uint(_), Value::Double(_)) => numbers(right, left).map(Ordering::reverse),
        _ => None,
    }
}

/// Whether values of this kind have an order.
pub(crate) fn has_order(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
    )
}

/// The order of two values.
///
/// # Errors
/// When the values have no order, or NaN is among them.
pub(crate) fn order(budget: &mut Budget, left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, Stop> {
    budget.work(1)?;
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => {
            budget.bytes(left.as_str().len().min(right.as_str().len()))?;
            left.as_str().cmp(right.as_str())
        }
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.order(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            numbers(left, right).ok_or("NaN values cannot be ordered")?
        }
        (Value::Double(left), _) if left.is_nan() => return Err("NaN values cannot be ordered".into()),
        _ => return Err(Stop::no_such_overload()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eq(left: &Value<'_>, right: &Value<'_>) -> Result<bool, Stop> {
        equal(&mut Budget::new(u64::MAX), left, right)
    }

    #[test]
    fn numbers_compare_across_types() {
        let cases = [
            (Value::Int(1), Value::Uint(1), true),
            (Value::Int(1), Value::Double(1.0), true),
            (Value::Int(-1), Value::Uint(u64::MAX), false),
            (Value::Double(f64::NAN), Value::Double(f64::NAN), false),
            (Value::Int(1), Value::string("1"), false),
            (Value::Null, Value::Int(0), false),
            (Value::Null, Value::Null, true),
        ];
        for (left, right, wanted) in cases {
            assert_eq!(eq(&left, &right), Ok(wanted), "{left} {right}");
            assert_eq!(eq(&right, &left), Ok(wanted), "{right} {left}");
        }
        let mut budget = Budget::new(u64::MAX);
        assert_eq!(order(&mut budget, &Value::Int(-1), &Value::Uint(0)), Ok(Ordering::Less));
        assert!(order(&mut budget, &Value::Int(1), &Value::Double(f64::NAN)).is_err());
        assert!(order(&mut budget, &Value::Int(1), &Value::string("a")).is_err());
    }

    #[test]
    fn lists_and_maps_compare_by_their_elements() {
        let list = |values: &[i64]| Value::list(values.iter().copied().map(Value::Int).collect());
        assert_eq!(eq(&list(&[1, 2]), &list(&[1, 2])), Ok(true));
        assert_eq!(eq(&list(&[1, 2]), &list(&[2, 1])), Ok(false));
        let json: serde_json::Value =
            serde_json::from_str(r#"[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, {"a": 1}]"#).expect("JSON");
        let Value::List(maps) = Value::from_json(&json) else { panic!("no list") };
        let at = |index| maps.get(index).expect("a map");
        assert_eq!(eq(&at(0), &at(1)), Ok(true));
        assert_eq!(eq(&at(0), &at(2)), Ok(false));
    }

    #[test]
    fn kubernetes_types_refuse_other_types() {
        let ip = Value::Ip([127, 0, 0, 1].into());
        assert_eq!(eq(&ip, &Value::string("127.0.0.1")), Err(Stop::no_such_overload()));
        assert_eq!(eq(&Value::string("127.0.0.1"), &ip), Ok(false));
        assert_eq!(eq(&ip, &ip), Ok(true));
    }
}
