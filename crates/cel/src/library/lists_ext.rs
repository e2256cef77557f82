//! The lists extension: `slice`, `flatten`, `sort`, `sortBy`, `lists.range`, `reverse`, `distinct`; and the function behind
//! the macros that build maps.

use super::{any, int, list};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Overload, global, member};
use crate::syntax::macros::{MAP_INSERT, SORT_BY_KEYS};
use crate::types::Type;
use crate::value::{List, Value, compare, number};

/// The longest list that `lists.range` makes.
const LONGEST_RANGE: i64 = 1_000_000;

/// Types with an order, and the ids of the overloads of `sort` and of sorting by keys.
const ORDERED: [(Type, &str, &str); 8] = [
    (Type::Int, "list_int_sort", "list_int_sortByAssociatedKeys"),
    (Type::Uint, "list_uint_sort", "list_uint_sortByAssociatedKeys"),
    (Type::Double, "list_double_sort", "list_double_sortByAssociatedKeys"),
    (Type::Bool, "list_bool_sort", "list_bool_sortByAssociatedKeys"),
    (Type::Duration, "list_google.protobuf.Duration_sort", "list_google.protobuf.Duration_sortByAssociatedKeys"),
    (Type::Timestamp, "list_google.protobuf.Timestamp_sort", "list_google.protobuf.Timestamp_sortByAssociatedKeys"),
    (Type::String, "list_string_sort", "list_string_sortByAssociatedKeys"),
    (Type::Bytes, "list_bytes_sort", "list_bytes_sortByAssociatedKeys"),
];

pub(super) fn add(all: &mut Functions) {
    let values = || Type::list(Type::Param("T"));
    let dynamic = || Type::list(Type::Dyn);
    let is_list: fn(&Value<'_>) -> bool = |value| matches!(value, Value::List(_));
    all.add("slice", [member("list_slice", &[values(), Type::Int, Type::Int], values(), slice).stopping_early()]);
    all.add_unguarded(
        "flatten",
        [
            member("list_flatten", &[Type::list(values())], values(), flatten),
            member("list_flatten_int", &[dynamic(), Type::Int], dynamic(), flatten),
        ],
    );
    all.add_singleton(
        "sort",
        is_list,
        |budget, args| sort(budget, list(args, 0)?, list(args, 0)?),
        ORDERED.map(|(kind, id, _)| Overload::signature(id, true, &[Type::list(kind.clone())], Type::list(kind))),
    );
    all.add_singleton(
        SORT_BY_KEYS,
        is_list,
        |budget, args| sort(budget, list(args, 0)?, list(args, 1)?),
        ORDERED.map(|(kind, _, id)| Overload::signature(id, true, &[values(), Type::list(kind)], values())),
    );
    all.add("lists.range", [global("lists_range", &[Type::Int], Type::list(Type::Int), range)]);
    all.add("reverse", [member("list_reverse", &[values()], values(), reverse)]);
    all.add("distinct", [member("list_distinct", &[values()], values(), distinct)]);
    let map = || Type::map(Type::Param("K"), Type::Param("V"));
    all.add(
        MAP_INSERT,
        [
            global("@mapInsert_map_key_value", &[map(), Type::Param("K"), Type::Param("V")], map(), insert)
                .stopping_early(),
            global("@mapInsert_map_map", &[map(), map()], map(), insert_all),
        ],
    );
}

fn slice<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (values, start, end) = (list(args, 0)?, int(args, 1)?, int(args, 2)?);
    let len = number::size(values.len());
    if start < 0 || end < 0 {
        return Err(format!("cannot slice({start}, {end}), negative indexes not supported").into());
    }
    if start > end {
        let why = "start index must be less than or equal to end index";
        return Err(format!("cannot slice({start}, {end}), {why}").into());
    }
    if len < end {
        return Err(format!("cannot slice({start}, {end}), list is length {len}").into());
    }
    let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    budget.make(end - start)?;
    Ok(Value::list((start..end).filter_map(|index| values.get(index)).collect()))
}

fn flatten<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let refuse = || {
        let kinds: Vec<String> = args.iter().skip(1).map(kind).collect();
        let target = args.first().map(kind).unwrap_or_default();
        Stop::Error(format!("no such overload: {target}.flatten({})", kinds.join(", ")))
    };
    let values = list(args, 0).map_err(|_| refuse())?;
    let depth = if args.len() > 1 { int(args, 1).map_err(|_| refuse())? } else { 1 };
    if depth < 0 {
        return Err("level must be non-negative".into());
    }
    let mut out = Vec::new();
    flatten_into(budget, values, depth, &mut out)?;
    Ok(Value::list(out))
}

/// The type of a value with its parameters, which are not known.
fn kind(value: &Value<'_>) -> String {
    match value {
        Value::Map(_) => "map(dyn, dyn)".to_owned(),
        Value::List(_) => "list(dyn)".to_owned(),
        Value::Optional(_) => "optional_type(dyn)".to_owned(),
        other => other.type_name().to_owned(),
    }
}

fn flatten_into<'a>(budget: &mut Budget, values: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<(), Stop> {
    for value in values.iter() {
        budget.make(1)?;
        match &value {
            Value::List(inner) if depth > 0 => flatten_into(budget, inner, depth - 1, out)?,
            _ => out.push(value),
        }
    }
    Ok(())
}

fn sort<'a>(budget: &mut Budget, values: &List<'a>, keys: &List<'a>) -> Result<Value<'a>, Stop> {
    if values.len() != keys.len() {
        let what = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list";
        let (values, keys) = (values.len(), keys.len());
        return Err(format!("{what}, but got {values} and {keys} elements respectively").into());
    }
    let Some(first) = keys.get(0) else { return Ok(Value::List(values.clone())) };
    if !compare::has_order(&first) {
        return Err("list elements must be comparable".into());
    }
    budget.make(keys.len().saturating_mul(2))?;
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(values.iter()).collect();
    if pairs.len() > 1 && pairs.iter().any(|(key, _)| key.type_name() != first.type_name()) {
        return Err("list elements must have the same type".into());
    }
    let mut stopped = None;
    pairs.sort_by(|(left, _), (right, _)| match compare::order(budget, left, right) {
        Ok(order) => order,
        Err(Stop::Error(_)) => std::cmp::Ordering::Equal,
        Err(stop) => {
            stopped = Some(stop);
            std::cmp::Ordering::Equal
        }
    });
    match stopped {
        Some(stop) => Err(stop),
        None => Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect())),
    }
}

fn range<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let len = int(args, 0)?;
    if len < 0 {
        return Err(format!("lists.range: size must be non-negative, got {len}").into());
    }
    if len > LONGEST_RANGE {
        return Err(format!("lists.range: size {len} exceeds maximum allowed ({LONGEST_RANGE})").into());
    }
    budget.make(usize::try_from(len).unwrap_or(usize::MAX))?;
    Ok(Value::list((0..len).map(Value::Int).collect()))
}

fn reverse<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let values = list(args, 0)?;
    budget.make(values.len())?;
    Ok(Value::list((0..values.len()).rev().filter_map(|index| values.get(index)).collect()))
}

fn distinct<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let mut out: Vec<Value<'a>> = Vec::new();
    'next: for value in list(args, 0)?.iter() {
        budget.make(1)?;
        for known in &out {
            if compare::is_equal(budget, &value, known)? {
                continue 'next;
            }
        }
        out.push(value);
    }
    Ok(Value::list(out))
}

fn insert<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let Value::Map(map) = any(args, 0)? else { return Err(Stop::no_such_overload()) };
    budget.make(map.len().saturating_mul(4))?;
    let mut map = map.clone();
    insert_one(&mut map, any(args, 1)?, any(args, 2)?)?;
    Ok(Value::Map(map))
}

/// Inserts an entry whose key must be new.
pub(crate) fn insert_one<'a>(map: &mut crate::value::Map<'a>, key: &Value<'a>, value: &Value<'a>) -> Result<(), Stop> {
    if map.insert_new(key.clone(), value.clone()) {
        Ok(())
    } else {
        Err(format!("insert failed: key {key} already exists").into())
    }
}

fn insert_all<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (Value::Map(map), Value::Map(more)) = (any(args, 0)?, any(args, 1)?) else {
        return Err(Stop::no_such_overload());
    };
    budget.make(map.len().saturating_add(more.len()).saturating_mul(4))?;
    let mut map = map.clone();
    for (key, value) in more.iter() {
        insert_one(&mut map, &key, &value)?;
    }
    Ok(Value::Map(map))
}
