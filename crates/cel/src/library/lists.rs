//! Kubernetes' functions of lists: order, sums, extremes, positions.

use super::{any, list, logic, math};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Overload, member};
use crate::types::Type;
use crate::value::{Value, compare, number};

/// Types with an order, with the ids of the overloads for lists of them: `isSorted`, `max` and `min`.
const ORDERED: [(Type, &str, &str, &str); 8] = [
    (Type::Int, "list_int_is_sorted_bool", "list_int_max_int", "list_int_min_int"),
    (Type::Uint, "list_uint_is_sorted_bool", "list_uint_max_uint", "list_uint_min_uint"),
    (Type::Double, "list_double_is_sorted_bool", "list_double_max_double", "list_double_min_double"),
    (Type::Bool, "list_bool_is_sorted_bool", "list_bool_max_bool", "list_bool_min_bool"),
    (Type::Duration, "list_duration_is_sorted_bool", "list_duration_max_duration", "list_duration_min_duration"),
    (Type::Timestamp, "list_timestamp_is_sorted_bool", "list_timestamp_max_timestamp", "list_timestamp_min_timestamp"),
    (Type::String, "list_string_is_sorted_bool", "list_string_max_string", "list_string_min_string"),
    (Type::Bytes, "list_bytes_is_sorted_bool", "list_bytes_max_bytes", "list_bytes_min_bytes"),
];

/// Adds the functions; `includes` is there since the latest version.
pub(super) fn add(all: &mut Functions, includes: bool) {
    let of = |kind: &Type| [Type::list(kind.clone())];
    let ordered = |pick: fn(&(Type, &'static str, &'static str, &'static str)) -> Overload| ORDERED.iter().map(pick);
    all.add("isSorted", ORDERED.iter().map(|(kind, id, ..)| member(id, &of(kind), Type::Bool, is_sorted)));
    all.add("max", ordered(|(kind, _, id, _)| member(id, &[Type::list(kind.clone())], kind.clone(), max)));
    all.add("min", ordered(|(kind, _, _, id)| member(id, &[Type::list(kind.clone())], kind.clone(), min)));
    all.add(
        "sum",
        [
            member("list_int_sum_int", &of(&Type::Int), Type::Int, |b, args| sum(b, args, Value::Int(0))),
            member("list_uint_sum_uint", &of(&Type::Uint), Type::Uint, |b, args| sum(b, args, Value::Uint(0))),
            member("list_double_sum_double", &of(&Type::Double), Type::Double, |b, args| {
                sum(b, args, Value::Double(0.0))
            }),
            member("list_duration_sum_duration", &of(&Type::Duration), Type::Duration, |b, args| {
                sum(b, args, Value::Duration(0))
            }),
        ],
    );
    let pair = [Type::list(Type::Param("A")), Type::Param("A")];
    all.add("indexOf", [member("list_a_index_of_int", &pair, Type::Int, |b, args| position(b, args, false))]);
    all.add("lastIndexOf", [member("list_a_last_index_of_int", &pair, Type::Int, |b, args| position(b, args, true))]);
    if includes {
        let anything = [Type::Dyn, Type::Dyn];
        all.add("includes", [member("list_includes_dyn_dyn", &anything, Type::Bool, self::includes)]);
    }
}

fn is_sorted<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let mut before: Option<Value<'a>> = None;
    for next in list(args, 0)?.iter() {
        if !compare::has_order(&next) {
            return Err(Stop::no_such_overload());
        }
        if let Some(before) = &before
            && order(budget, before, &next)?.is_some_and(std::cmp::Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        before = Some(next);
    }
    Ok(Value::Bool(true))
}

/// The order of two values, if they have one.
fn order(budget: &mut Budget, left: &Value<'_>, right: &Value<'_>) -> Result<Option<std::cmp::Ordering>, Stop> {
    match compare::order(budget, left, right) {
        Ok(order) => Ok(Some(order)),
        Err(Stop::Error(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn sum<'a>(budget: &mut Budget, args: &[Value<'a>], zero: Value<'a>) -> Result<Value<'a>, Stop> {
    let mut total = zero;
    for next in list(args, 0)?.iter() {
        budget.work(1)?;
        total = math::add(budget, &[total, next])?;
    }
    Ok(total)
}

fn extreme<'a>(
    budget: &mut Budget,
    args: &[Value<'a>],
    name: &str,
    replaces: fn(std::cmp::Ordering) -> bool,
) -> Result<Value<'a>, Stop> {
    let mut best: Option<Value<'a>> = None;
    for next in list(args, 0)?.iter() {
        if !compare::has_order(&next) {
            return Err(Stop::no_such_overload());
        }
        let better = match &best {
            Some(best) => order(budget, best, &next)?.is_some_and(replaces),
            None => true,
        };
        if better {
            best = Some(next);
        }
    }
    best.ok_or_else(|| format!("{name} called on empty list").into())
}

fn max<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    extreme(budget, args, "max", std::cmp::Ordering::is_lt)
}

fn min<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    extreme(budget, args, "min", std::cmp::Ordering::is_gt)
}

fn position<'a>(budget: &mut Budget, args: &[Value<'a>], last: bool) -> Result<Value<'a>, Stop> {
    let (values, wanted) = (list(args, 0)?, any(args, 1)?);
    let len = values.len();
    for nth in 0..len {
        let index = if last { len - 1 - nth } else { nth };
        if let Some(value) = values.get(index)
            && compare::is_equal(budget, &value, wanted)?
        {
            return Ok(Value::Int(number::size(index)));
        }
    }
    Ok(Value::Int(-1))
}

fn includes<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let wanted = any(args, 1)?;
    match any(args, 0)? {
        Value::List(values) => logic::list_contains(budget, values, wanted).map(Value::Bool),
        other => compare::is_equal(budget, other, wanted).map(Value::Bool),
    }
}
