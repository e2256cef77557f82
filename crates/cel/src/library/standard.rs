//! Standard functions: sizes, conversions, searching in strings.

use super::{any, regex, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, Overload, global, member};
use crate::types::Type;
use crate::value::{Value, convert::convert, number};

const A: Type = Type::Param("A");
const B: Type = Type::Param("B");

pub(super) fn add(all: &mut Functions) {
    add_size(all);
    add_conversions(all);
    let strings = [Type::String, Type::String];
    all.add_unguarded("contains", [member("contains_string", &strings, Type::Bool, contains)]);
    all.add_unguarded("endsWith", [member("ends_with_string", &strings, Type::Bool, ends_with)]);
    all.add_unguarded("startsWith", [member("starts_with_string", &strings, Type::Bool, starts_with)]);
    all.add_singleton(
        "matches",
        |value| matches!(value, Value::String(_)),
        regex::matches,
        [
            Overload::signature("matches", false, &strings, Type::Bool),
            Overload::signature("matches_string", true, &strings, Type::Bool),
        ],
    );
}

fn add_size(all: &mut Functions) {
    let kinds = [
        ("size_bytes", "bytes_size", Type::Bytes),
        ("size_list", "list_size", Type::list(A)),
        ("size_map", "map_size", Type::map(A, B)),
        ("size_string", "string_size", Type::String),
    ];
    let overloads = kinds.into_iter().flat_map(|(id, member_id, kind)| {
        [
            Overload::signature(id, false, std::slice::from_ref(&kind), Type::Int),
            Overload::signature(member_id, true, &[kind], Type::Int),
        ]
    });
    all.add_singleton(
        "size",
        |value| matches!(value, Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::String(_)),
        size,
        overloads,
    );
}

/// The name of a conversion, its result, its code, and the id of the overload for each argument.
type Conversion<'t> = (&'static str, Type, Native, &'t [(&'static str, Type)]);

fn add_conversions(all: &mut Functions) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    all.add_singleton(
        "type",
        |_| true,
        |_, args| convert(any(args, 0)?, &Type::Type(None)),
        [Overload::signature("type", false, &[A], Type::type_of(A))],
    );
    all.add_singleton(
        "dyn",
        |_| true,
        |_, args| any(args, 0).cloned(),
        [Overload::signature("to_dyn", false, &[A], Type::Dyn)],
    );
    let conversions: [Conversion<'_>; 8] = [
        ("bool", Bool, |_, args| convert(any(args, 0)?, &Bool), &[("bool_to_bool", Bool), ("string_to_bool", String)]),
        (
            "bytes",
            Bytes,
            |_, args| convert(any(args, 0)?, &Bytes),
            &[("bytes_to_bytes", Bytes), ("string_to_bytes", String)],
        ),
        (
            "double",
            Double,
            |_, args| convert(any(args, 0)?, &Double),
            &[
                ("double_to_double", Double),
                ("int64_to_double", Int),
                ("string_to_double", String),
                ("uint64_to_double", Uint),
            ],
        ),
        (
            "duration",
            Duration,
            |_, args| convert(any(args, 0)?, &Duration),
            &[("duration_to_duration", Duration), ("string_to_duration", String)],
        ),
        (
            "int",
            Int,
            |_, args| convert(any(args, 0)?, &Int),
            &[
                ("int64_to_int64", Int),
                ("double_to_int64", Double),
                ("duration_to_int64", Duration),
                ("string_to_int64", String),
                ("timestamp_to_int64", Timestamp),
                ("uint64_to_int64", Uint),
            ],
        ),
        (
            "string",
            String,
            |_, args| convert(any(args, 0)?, &String),
            &[
                ("string_to_string", String),
                ("bool_to_string", Bool),
                ("bytes_to_string", Bytes),
                ("double_to_string", Double),
                ("duration_to_string", Duration),
                ("int64_to_string", Int),
                ("timestamp_to_string", Timestamp),
                ("uint64_to_string", Uint),
            ],
        ),
        (
            "timestamp",
            Timestamp,
            |_, args| convert(any(args, 0)?, &Timestamp),
            &[("timestamp_to_timestamp", Timestamp), ("int64_to_timestamp", Int), ("string_to_timestamp", String)],
        ),
        (
            "uint",
            Uint,
            |_, args| convert(any(args, 0)?, &Uint),
            &[
                ("uint64_to_uint64", Uint),
                ("double_to_uint64", Double),
                ("int64_to_uint64", Int),
                ("string_to_uint64", String),
            ],
        ),
    ];
    for (name, result, code, overloads) in conversions {
        all.add(name, overloads.iter().map(|(id, from)| global(id, std::slice::from_ref(from), result.clone(), code)));
    }
}

/// The functions whose calls with a constant are computed once.
pub(crate) fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

fn size<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Int(number::size(match any(args, 0)? {
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::String(text) => {
            budget.bytes(text.as_str().len())?;
            text.len_chars()
        }
        _ => return Err(Stop::no_such_overload()),
    })))
}

fn contains<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, part) = (text(args, 0)?, text(args, 1)?);
    budget.bytes(whole.len())?;
    Ok(Value::Bool(whole.contains(part)))
}

fn ends_with<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Bool(text(args, 0)?.ends_with(text(args, 1)?)))
}

fn starts_with<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Bool(text(args, 0)?.starts_with(text(args, 1)?)))
}
