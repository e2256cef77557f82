//! Parts of timestamps and durations: `getFullYear()`, `getHours('Europe/Berlin')`.

use super::{any, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, member};
use crate::types::Type;
use crate::value::Value;
use crate::value::time::Civil;

pub(super) fn add(all: &mut Functions) {
    let parts: [(&str, &str, &str, Native); 9] = [
        ("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", |_, args| part(args, |c| c.year)),
        ("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", |_, args| part(args, |c| c.month - 1)),
        ("getDayOfYear", "timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz", |_, args| {
            part(args, |c| c.day_of_year - 1)
        }),
        ("getDayOfMonth", "timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz", |_, args| {
            part(args, |c| c.day - 1)
        }),
        ("getDate", "timestamp_to_day_of_month_1_based", "timestamp_to_day_of_month_1_based_with_tz", |_, args| {
            part(args, |c| c.day)
        }),
        ("getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", |_, args| {
            part(args, |c| c.weekday)
        }),
        ("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", |_, args| part(args, |c| c.hour)),
        ("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", |_, args| part(args, |c| c.minute)),
        ("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz", |_, args| part(args, |c| c.second)),
    ];
    for (name, id, zoned, code) in parts {
        add_part(all, name, id, zoned, code);
    }
    add_part(all, "getMilliseconds", "timestamp_to_milliseconds", "timestamp_to_milliseconds_with_tz", milliseconds);
    let durations: [(&str, &str, Native); 4] = [
        ("getHours", "duration_to_hours", |_, args| duration_part(args, 3_600_000_000_000)),
        ("getMinutes", "duration_to_minutes", |_, args| duration_part(args, 60_000_000_000)),
        ("getSeconds", "duration_to_seconds", |_, args| duration_part(args, 1_000_000_000)),
        ("getMilliseconds", "duration_to_milliseconds", |_, args| duration_part(args, 1_000_000)),
    ];
    for (name, id, code) in durations {
        all.add(name, [member(id, &[Type::Duration], Type::Int, code)]);
    }
}

fn add_part(all: &mut Functions, name: &'static str, id: &'static str, zoned: &'static str, code: Native) {
    all.add(
        name,
        [
            member(id, &[Type::Timestamp], Type::Int, code),
            member(zoned, &[Type::Timestamp, Type::String], Type::Int, code),
        ],
    );
}

/// A part of a timestamp in UTC, or in the zone that the second argument names.
fn part<'a>(args: &[Value<'a>], pick: fn(&Civil) -> i64) -> Result<Value<'a>, Stop> {
    let Value::Timestamp(time) = any(args, 0)? else { return Err(Stop::no_such_overload()) };
    let offset = if args.len() > 1 { time.offset_in(text(args, 1)?)? } else { 0 };
    Ok(Value::Int(pick(&time.civil(offset))))
}

fn milliseconds<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let Value::Timestamp(time) = any(args, 0)? else { return Err(Stop::no_such_overload()) };
    if args.len() > 1 {
        time.offset_in(text(args, 1)?)?;
    }
    Ok(Value::Int(time.nanos() / 1_000_000))
}

fn duration_part<'a>(args: &[Value<'a>], unit: i64) -> Result<Value<'a>, Stop> {
    match any(args, 0)? {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => Err(Stop::no_such_overload()),
    }
}
