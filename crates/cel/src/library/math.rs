//! Arithmetic of the operators: `+`, `-`, `*`, `/`, `%`, with checks for overflow.

use super::any;
use crate::budget::{Budget, Stop};
use crate::value::Value;

type Done<'a> = Result<Value<'a>, Stop>;

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";

pub(super) fn add<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match (any(args, 0)?, any(args, 1)?) {
        (Value::Int(left), Value::Int(right)) => Value::Int(left.checked_add(*right).ok_or(INT)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left.checked_add(*right).ok_or(UINT)?),
        (Value::Double(left), Value::Double(right)) => Value::Double(left + right),
        (Value::String(left), Value::String(right)) => {
            let (left, right) = (left.as_str(), right.as_str());
            budget.make_bytes(left.len().saturating_add(right.len()))?;
            Value::string([left, right].concat())
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.make_bytes(left.len().saturating_add(right.len()))?;
            Value::Bytes([&**left, &**right].concat().into())
        }
        (Value::List(left), Value::List(right)) => {
            budget.make(left.join_cost(right))?;
            Value::List(left.add(right)?)
        }
        (Value::Duration(left), Value::Duration(right)) => Value::Duration(left.checked_add(*right).ok_or(INT)?),
        (Value::Timestamp(time), Value::Duration(nanos)) | (Value::Duration(nanos), Value::Timestamp(time)) => {
            Value::Timestamp(time.plus(*nanos).ok_or("timestamp overflow")?)
        }
        _ => return Err(Stop::no_such_overload()),
    })
}

pub(super) fn subtract<'a>(_: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match (any(args, 0)?, any(args, 1)?) {
        (Value::Int(left), Value::Int(right)) => Value::Int(left.checked_sub(*right).ok_or(INT)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left.checked_sub(*right).ok_or(UINT)?),
        (Value::Double(left), Value::Double(right)) => Value::Double(left - right),
        (Value::Duration(left), Value::Duration(right)) => Value::Duration(left.checked_sub(*right).ok_or(INT)?),
        (Value::Timestamp(time), Value::Duration(nanos)) => {
            let nanos = nanos.checked_neg().ok_or(INT)?;
            Value::Timestamp(time.plus(nanos).ok_or("timestamp overflow")?)
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => Value::Duration(left.since(right).ok_or(INT)?),
        _ => return Err(Stop::no_such_overload()),
    })
}

pub(super) fn multiply<'a>(_: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match (any(args, 0)?, any(args, 1)?) {
        (Value::Int(left), Value::Int(right)) => Value::Int(left.checked_mul(*right).ok_or(INT)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left.checked_mul(*right).ok_or(UINT)?),
        (Value::Double(left), Value::Double(right)) => Value::Double(left * right),
        _ => return Err(Stop::no_such_overload()),
    })
}

pub(super) fn divide<'a>(_: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match (any(args, 0)?, any(args, 1)?) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err("division by zero".into()),
        (Value::Int(left), Value::Int(right)) => Value::Int(left.checked_div(*right).ok_or(INT)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left / right),
        (Value::Double(left), Value::Double(right)) => Value::Double(left / right),
        _ => return Err(Stop::no_such_overload()),
    })
}

pub(super) fn modulo<'a>(_: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match (any(args, 0)?, any(args, 1)?) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err("modulus by zero".into()),
        (Value::Int(left), Value::Int(right)) => Value::Int(left.checked_rem(*right).ok_or(INT)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left % right),
        _ => return Err(Stop::no_such_overload()),
    })
}

pub(super) fn negate<'a>(_: &mut Budget, args: &[Value<'a>]) -> Done<'a> {
    Ok(match any(args, 0)? {
        Value::Int(value) => Value::Int(value.checked_neg().ok_or(INT)?),
        Value::Double(value) => Value::Double(-value),
        Value::Duration(nanos) => Value::Duration(nanos.checked_neg().ok_or(INT)?),
        _ => return Err(Stop::no_such_overload()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_an_error() {
        let mut budget = Budget::new(u64::MAX);
        let cases: [(crate::declare::Native, [Value<'static>; 2], &str); 8] = [
            (add, [Value::Int(i64::MAX), Value::Int(1)], INT),
            (subtract, [Value::Uint(0), Value::Uint(1)], UINT),
            (multiply, [Value::Int(i64::MIN), Value::Int(-1)], INT),
            (divide, [Value::Int(i64::MIN), Value::Int(-1)], INT),
            (divide, [Value::Int(1), Value::Int(0)], "division by zero"),
            (modulo, [Value::Uint(1), Value::Uint(0)], "modulus by zero"),
            (modulo, [Value::Int(i64::MIN), Value::Int(-1)], INT),
            (add, [Value::Int(1), Value::Uint(1)], "no such overload"),
        ];
        for (function, args, wanted) in cases {
            assert_eq!(function(&mut budget, &args).map(|value| value.to_string()), Err(wanted.into()));
        }
        assert!(
            matches!(divide(&mut budget, &[Value::Double(1.0), Value::Double(0.0)]), Ok(Value::Double(value)) if value.is_infinite())
        );
    }
}
