//! Conversions between types: `int('1')`, `string(true)`, `type(x)`.

use super::{Timestamp, Value, number, time};
use crate::budget::Stop;
use crate::types::Type;

/// The value as a value of another type.
///
/// # Errors
/// When there is no such conversion, or the value is out of range.
pub(crate) fn convert<'a>(value: &Value<'a>, to: &Type) -> Result<Value<'a>, Stop> {
    let refused = || Stop::Error(format!("type conversion error from '{}' to '{to}'", value.type_name()));
    let converted = match (value, to) {
        (_, Type::Type(_)) => return Ok(Value::Type(value.type_name().into())),
        (value, to) if value.type_name() == to.name() => Some(value.clone()),
        (Value::Int(int), _) => from_int(*int, to)?,
        (Value::Uint(uint), _) => from_uint(*uint, to)?,
        (Value::Double(double), _) => from_double(*double, to)?,
        (Value::String(text), _) => from_string(text.as_str(), to)?,
        (Value::Bool(value), Type::String) => Some(Value::string(value.to_string())),
        (Value::Null, Type::String) => Some(Value::string("null")),
        (Value::Bytes(bytes), Type::String) => {
            let text = std::str::from_utf8(bytes).map_err(|_| "invalid UTF-8 in bytes, cannot convert to string")?;
            Some(Value::string(text.to_owned()))
        }
        (Value::Timestamp(time), Type::String) => Some(Value::string(time.display())),
        (Value::Timestamp(time), Type::Int) => Some(Value::Int(time.seconds())),
        (Value::Duration(nanos), Type::String) => Some(Value::string(time::duration_in_seconds(*nanos))),
        (Value::Duration(nanos), Type::Int) => Some(Value::Int(*nanos)),
        (Value::Type(name), Type::String) => Some(Value::String(name.clone().into())),
        _ => None,
    };
    converted.ok_or_else(refused)
}

fn from_int<'a>(value: i64, to: &Type) -> Result<Option<Value<'a>>, Stop> {
    Ok(match to {
        Type::Uint => Some(Value::Uint(u64::try_from(value).map_err(|_| "unsigned integer overflow")?)),
        Type::Double => Some(Value::Double(number::from_int(value))),
        Type::String => Some(Value::string(value.to_string())),
        Type::Timestamp => Some(Value::Timestamp(Timestamp::from_seconds(value).ok_or("timestamp overflow")?)),
        _ => None,
    })
}

fn from_uint<'a>(value: u64, to: &Type) -> Result<Option<Value<'a>>, Stop> {
    Ok(match to {
        Type::Int => Some(Value::Int(i64::try_from(value).map_err(|_| "integer overflow")?)),
        Type::Double => Some(Value::Double(number::from_uint(value))),
        Type::String => Some(Value::string(value.to_string())),
        _ => None,
    })
}

fn from_double<'a>(value: f64, to: &Type) -> Result<Option<Value<'a>>, Stop> {
    Ok(match to {
        Type::Int => Some(Value::Int(number::to_int(value).ok_or("integer overflow")?)),
        Type::Uint => Some(Value::Uint(number::to_uint(value).ok_or("unsigned integer overflow")?)),
        Type::String => Some(Value::string(number::shortest(value))),
        _ => None,
    })
}

fn from_string<'a>(text: &str, to: &Type) -> Result<Option<Value<'a>>, Stop> {
    Ok(match to {
        Type::Int => text.parse().ok().map(Value::Int),
        Type::Uint => text.parse().ok().filter(|_| !text.starts_with('+')).map(Value::Uint),
        Type::Double => double(text).map(Value::Double),
        Type::Bool => match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        Type::Bytes => Some(Value::Bytes(text.as_bytes().into())),
        Type::Duration => time::parse_duration(text).map(Value::Duration),
        Type::Timestamp => match Timestamp::parse(text) {
            Some(time) if !time.in_range() => return Err("timestamp overflow".into()),
            time => time.map(Value::Timestamp),
        },
        _ => None,
    })
}

/// A double as Go reads it: infinity only if it is written.
fn double(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let written = text.contains(['n', 'N']);
    (value.is_finite() || written).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Value<'_>, to: &Type) -> String {
        match convert(value, to) {
            Ok(value) => format!("{} {value}", value.type_name()),
            Err(Stop::Error(message)) => message,
            Err(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn conversions() {
        let cases = [
            (Value::string("12"), Type::Int, "int 12"),
            (Value::string("1x"), Type::Int, "type conversion error from 'string' to 'int'"),
            (Value::string("+1"), Type::Uint, "type conversion error from 'string' to 'uint'"),
            (Value::string("1e400"), Type::Double, "type conversion error from 'string' to 'double'"),
            (Value::string("inf"), Type::Double, "double +Inf"),
            (Value::string("T"), Type::Bool, "bool true"),
            (Value::string("yes"), Type::Bool, "type conversion error from 'string' to 'bool'"),
            (Value::Int(-1), Type::Uint, "unsigned integer overflow"),
            (Value::Uint(u64::MAX), Type::Int, "integer overflow"),
            (Value::Double(1.9), Type::Int, "int 1"),
            (Value::Double(-0.5), Type::Uint, "unsigned integer overflow"),
            (Value::Int(1), Type::Timestamp, "google.protobuf.Timestamp {1970-01-01T00:00:01Z}"),
            (Value::Int(i64::MAX), Type::Timestamp, "timestamp overflow"),
            (Value::Duration(1_500_000_000), Type::String, "string 1.5s"),
            (Value::Bytes([0xff].into()), Type::String, "invalid UTF-8 in bytes, cannot convert to string"),
            (Value::list(Vec::new()), Type::Int, "type conversion error from 'list' to 'int'"),
            (Value::Null, Type::String, "string null"),
            (Value::Int(1), Type::Type(None), "type int"),
        ];
        for (value, to, wanted) in cases {
            assert_eq!(shown(&value, &to), wanted, "{value} to {to}");
        }
    }
}
