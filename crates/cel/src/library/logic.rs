//! Operators of the language: logic, comparison, arithmetic, membership.

use std::cmp::Ordering;

use super::{any, math};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, Overload};
use crate::syntax::ast::op;
use crate::types::Type;
use crate::value::{Value, compare};

const A: Type = Type::Param("A");
const B: Type = Type::Param("B");

pub(super) fn add(all: &mut Functions) {
    let signature = |id, args: &[Type], result| Overload::signature(id, false, args, result);
    let anything: fn(&Value<'_>) -> bool = |_| true;
    all.add_singleton(op::CONDITIONAL, anything, refuse, [signature("conditional", &[Type::Bool, A, A], A)]);
    for (name, id) in [(op::AND, "logical_and"), (op::OR, "logical_or")] {
        all.add_singleton(name, anything, refuse, [signature(id, &[Type::Bool, Type::Bool], Type::Bool)]);
    }
    all.add_singleton(op::NOT, anything, not, [signature("logical_not", &[Type::Bool], Type::Bool)]);
    all.add_singleton(
        op::NOT_STRICTLY_FALSE,
        anything,
        refuse,
        [signature("not_strictly_false", &[Type::Bool], Type::Bool)],
    );
    for (name, id) in [(op::EQUALS, "equals"), (op::NOT_EQUALS, "not_equals")] {
        all.add_singleton(name, anything, refuse, [signature(id, &[A, A], Type::Bool)]);
    }
    add_arithmetic(all);
    add_order(all);
    let (list, map) = (Type::list(A), Type::map(A, B));
    all.add_singleton(
        op::INDEX,
        anything,
        refuse,
        [signature("index_list", &[list.clone(), Type::Int], A), signature("index_map", &[map.clone(), A], B)],
    );
    all.add_singleton(
        op::IN,
        anything,
        contains,
        [signature("in_list", &[A, list], Type::Bool), signature("in_map", &[A, map], Type::Bool)],
    );
}

/// An operator, the first operands it takes, its code, and the ids and signatures of its overloads.
type Arithmetic = (&'static str, fn(&Value<'_>) -> bool, Native, Vec<(&'static str, Vec<Type>, Type)>);

fn add_arithmetic(all: &mut Functions) {
    use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let list = || Type::list(A);
    let tables: [Arithmetic; 6] = [
        (
            op::ADD,
            adds,
            math::add,
            vec![
                ("add_bytes", vec![Bytes, Bytes], Bytes),
                ("add_double", vec![Double, Double], Double),
                ("add_duration_duration", vec![Duration, Duration], Duration),
                ("add_duration_timestamp", vec![Duration, Timestamp], Timestamp),
                ("add_timestamp_duration", vec![Timestamp, Duration], Timestamp),
                ("add_int64", vec![Int, Int], Int),
                ("add_list", vec![list(), list()], list()),
                ("add_string", vec![String, String], String),
                ("add_uint64", vec![Uint, Uint], Uint),
            ],
        ),
        (
            op::DIVIDE,
            |value| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_)),
            math::divide,
            vec![
                ("divide_double", vec![Double, Double], Double),
                ("divide_int64", vec![Int, Int], Int),
                ("divide_uint64", vec![Uint, Uint], Uint),
            ],
        ),
        (
            op::MODULO,
            |value| matches!(value, Value::Int(_) | Value::Uint(_)),
            math::modulo,
            vec![("modulo_int64", vec![Int, Int], Int), ("modulo_uint64", vec![Uint, Uint], Uint)],
        ),
        (
            op::MULTIPLY,
            |value| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_)),
            math::multiply,
            vec![
                ("multiply_double", vec![Double, Double], Double),
                ("multiply_int64", vec![Int, Int], Int),
                ("multiply_uint64", vec![Uint, Uint], Uint),
            ],
        ),
        (
            op::NEGATE,
            |value| matches!(value, Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Duration(_)),
            math::negate,
            vec![("negate_double", vec![Double], Double), ("negate_int64", vec![Int], Int)],
        ),
        (
            op::SUBTRACT,
            subtracts,
            math::subtract,
            vec![
                ("subtract_double", vec![Double, Double], Double),
                ("subtract_duration_duration", vec![Duration, Duration], Duration),
                ("subtract_int64", vec![Int, Int], Int),
                ("subtract_timestamp_duration", vec![Timestamp, Duration], Timestamp),
                ("subtract_timestamp_timestamp", vec![Timestamp, Timestamp], Duration),
                ("subtract_uint64", vec![Uint, Uint], Uint),
            ],
        ),
    ];
    for (name, accepts, code, overloads) in tables {
        let overloads = overloads.into_iter().map(|(id, args, result)| Overload::signature(id, false, &args, result));
        all.add_singleton(name, accepts, code, overloads);
    }
}

fn adds(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

fn subtracts(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) | Value::Timestamp(_))
}

/// Ids of the overloads of one operator for strings and bytes, on which the cost depends, and of the others.
type OrderIds = (&'static str, &'static str, &'static str, [&'static str; 11]);

fn add_order(all: &mut Functions) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let operators: [(&str, Native, OrderIds); 4] = [
        (op::LESS, less, ("less_bool", "less_string", "less_bytes", LESS_IDS)),
        (
            op::LESS_EQUALS,
            less_equals,
            ("less_equals_bool", "less_equals_string", "less_equals_bytes", LESS_EQUALS_IDS),
        ),
        (op::GREATER, greater, ("greater_bool", "greater_string", "greater_bytes", GREATER_IDS)),
        (
            op::GREATER_EQUALS,
            greater_equals,
            ("greater_equals_bool", "greater_equals_string", "greater_equals_bytes", GREATER_EQUALS_IDS),
        ),
    ];
    for (name, code, (bool_id, string_id, bytes_id, ids)) in operators {
        let pairs = [(Int, [Int, Double, Uint]), (Uint, [Uint, Double, Int]), (Double, [Double, Int, Uint])];
        let mut signatures = vec![(bool_id, Bool, Bool)];
        let mut rest = ids.into_iter();
        for (left, rights) in pairs {
            signatures.extend(rights.into_iter().zip(rest.by_ref()).map(|(right, id)| (id, left.clone(), right)));
        }
        signatures.push((string_id, String, String));
        signatures.push((bytes_id, Bytes, Bytes));
        signatures.extend([Timestamp, Duration].into_iter().zip(rest).map(|(kind, id)| (id, kind.clone(), kind)));
        let overloads =
            signatures.into_iter().map(|(id, left, right)| Overload::signature(id, false, &[left, right], Bool));
        all.add_singleton(name, compare::has_order, code, overloads);
    }
}

macro_rules! order_ids {
    ($($name:ident: $prefix:literal),*) => {
        $(const $name: [&str; 11] = [
            concat!($prefix, "_int64"), concat!($prefix, "_int64_double"), concat!($prefix, "_int64_uint64"),
            concat!($prefix, "_uint64"), concat!($prefix, "_uint64_double"), concat!($prefix, "_uint64_int64"),
            concat!($prefix, "_double"), concat!($prefix, "_double_int64"), concat!($prefix, "_double_uint64"),
            concat!($prefix, "_timestamp"), concat!($prefix, "_duration"),
        ];)*
    };
}

order_ids!(LESS_IDS: "less", LESS_EQUALS_IDS: "less_equals", GREATER_IDS: "greater", GREATER_EQUALS_IDS: "greater_equals");

/// For operators that the evaluator handles itself.
fn refuse<'a>(_: &mut Budget, _: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Err(Stop::no_such_overload())
}

fn not<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    any(args, 0)?.as_bool().map(|value| Value::Bool(!value)).ok_or_else(Stop::no_such_overload)
}

fn ordered<'a>(budget: &mut Budget, args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Result<Value<'a>, Stop> {
    compare::order(budget, any(args, 0)?, any(args, 1)?).map(|order| Value::Bool(holds(order)))
}

fn less<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    ordered(budget, args, Ordering::is_lt)
}

fn less_equals<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    ordered(budget, args, Ordering::is_le)
}

fn greater<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    ordered(budget, args, Ordering::is_gt)
}

fn greater_equals<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    ordered(budget, args, Ordering::is_ge)
}

fn contains<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let element = any(args, 0)?;
    match any(args, 1)? {
        Value::List(list) => list_contains(budget, list, element).map(Value::Bool),
        Value::Map(map) => Ok(Value::Bool(map.find(element).is_some())),
        _ => Err(Stop::no_such_overload()),
    }
}

/// Whether an element is in a list.
pub(super) fn list_contains(
    budget: &mut Budget,
    list: &crate::value::List<'_>,
    element: &Value<'_>,
) -> Result<bool, Stop> {
    for other in list.iter() {
        if compare::is_equal(budget, element, &other)? {
            return Ok(true);
        }
    }
    Ok(false)
}
