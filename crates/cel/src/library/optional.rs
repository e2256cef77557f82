//! Optional values. `or`, `orValue` and optional selection are handled by the evaluator.

use super::{any, list};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Overload, global, member};
use crate::syntax::ast::op;
use crate::types::Type;
use crate::value::Value;

const K: Type = Type::Param("K");
const V: Type = Type::Param("V");

pub(super) fn add(all: &mut Functions) {
    let optional = || Type::optional(V);
    all.add("optional.of", [global("optional_of", &[V], optional(), |_, args| any(args, 0).cloned().map(Value::some))]);
    all.add("optional.ofNonZeroValue", [global("optional_ofNonZeroValue", &[V], optional(), of_non_zero)]);
    all.add("optional.none", [global("optional_none", &[], optional(), |_, _| Ok(Value::Optional(None)))]);
    all.add("value", [member("optional_value", &[optional()], V, value)]);
    all.add("hasValue", [member("optional_hasValue", &[optional()], Type::Bool, has_value)]);
    all.add("or", [Overload::signature("optional_or_optional", true, &[optional(), optional()], optional())]);
    all.add("orValue", [Overload::signature("optional_orValue_value", true, &[optional(), V], V)]);
    all.add(
        op::OPTIONAL_SELECT,
        [Overload::signature("select_optional_field", false, &[Type::Dyn, Type::String], optional())],
    );
    let (values, map) = (Type::list(V), Type::map(K, V));
    let signature = |id, args: &[Type]| Overload::signature(id, false, args, Type::optional(V));
    all.add(
        op::OPTIONAL_INDEX,
        [
            signature("list_optindex_optional_int", &[values.clone(), Type::Int]),
            signature("optional_list_optindex_optional_int", &[Type::optional(values.clone()), Type::Int]),
            signature("map_optindex_optional_value", &[map.clone(), K]),
            signature("optional_map_optindex_optional_value", &[Type::optional(map.clone()), K]),
        ],
    );
    all.add(
        op::INDEX,
        [
            signature("optional_list_index_int", &[Type::optional(values.clone()), Type::Int]),
            signature("optional_map_index_value", &[Type::optional(map), K]),
        ],
    );
    all.add("last", [member("list_last", std::slice::from_ref(&values), optional(), |_, args| end(args, true))]);
    all.add("first", [member("list_first", std::slice::from_ref(&values), optional(), |_, args| end(args, false))]);
    let optionals = [Type::list(optional())];
    all.add("optional.unwrap", [global("optional_unwrap", &optionals, values.clone(), unwrap)]);
    all.add("unwrapOpt", [member("optional_unwrapOpt", &optionals, values, unwrap)]);
}

fn of_non_zero<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let value = any(args, 0)?;
    Ok(if value.is_zero() { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn value<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    match any(args, 0)? {
        Value::Optional(Some(value)) => Ok((**value).clone()),
        Value::Optional(None) => Err("optional.none() dereference".into()),
        _ => Err(Stop::no_such_overload()),
    }
}

fn has_value<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    match any(args, 0)? {
        Value::Optional(value) => Ok(Value::Bool(value.is_some())),
        _ => Err(Stop::no_such_overload()),
    }
}

fn end<'a>(args: &[Value<'a>], last: bool) -> Result<Value<'a>, Stop> {
    let values = list(args, 0)?;
    let index = if last { values.len().saturating_sub(1) } else { 0 };
    Ok(values.get(index).map_or(Value::Optional(None), Value::some))
}

fn unwrap<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let values = list(args, 0)?;
    budget.make(values.len())?;
    let mut out = Vec::new();
    for value in values.iter() {
        match value {
            Value::Optional(Some(value)) => out.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(format!("value {other} is not optional").into()),
        }
    }
    Ok(Value::list(out))
}
