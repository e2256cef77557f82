//! Sets as lists: `sets.contains`, `sets.equivalent`, `sets.intersects`.

use super::{list, logic::list_contains};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, global};
use crate::types::Type;
use crate::value::{List, Value};

pub(super) fn add(all: &mut Functions) {
    let lists = [Type::list(Type::Param("T")), Type::list(Type::Param("T"))];
    all.add("sets.contains", [global("list_sets_contains_list", &lists, Type::Bool, contains)]);
    all.add("sets.equivalent", [global("list_sets_equivalent_list", &lists, Type::Bool, equivalent)]);
    all.add("sets.intersects", [global("list_sets_intersects_list", &lists, Type::Bool, intersects)]);
}

fn contains_all(budget: &mut Budget, list: &List<'_>, part: &List<'_>) -> Result<bool, Stop> {
    for element in part.iter() {
        if !list_contains(budget, list, &element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    contains_all(budget, list(args, 0)?, list(args, 1)?).map(Value::Bool)
}

fn equivalent<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (left, right) = (list(args, 0)?, list(args, 1)?);
    Ok(Value::Bool(contains_all(budget, left, right)? && contains_all(budget, right, left)?))
}

fn intersects<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (left, right) = (list(args, 0)?, list(args, 1)?);
    for element in left.iter() {
        if list_contains(budget, right, &element)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
