//! Schedules of CronJobs: five fields of numbers, ranges, steps and names, or a descriptor (`@daily`, `@every 1h`).
//!
//! In: the text. Out: nothing, or the error of the parser that Kubernetes uses (robfig/cron, `ParseStandard`).

use crate::duration;
use crate::field::quote;

/// A field: its smallest and largest value, and names from the smallest on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: MONTHS },
    Bounds { min: 0, max: 6, names: DAYS },
];
const DESCRIPTORS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Checks a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let schedule = without_zone(schedule)?;
    if schedule.starts_with('@') {
        return check_descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| check_range(part, bounds))
    })
}

/// The schedule after `TZ=…`, which validation refuses for another reason.
fn without_zone(schedule: &str) -> Result<&str, String> {
    if !schedule.starts_with("TZ=") && !schedule.starts_with("CRON_TZ=") {
        return Ok(schedule);
    }
    let rest = schedule.split_once(' ').map(|(_, rest)| rest.trim());
    rest.ok_or_else(|| format!("provided bad location {}", schedule.split_once('=').map_or("", |(_, zone)| zone)))
}

fn check_descriptor(descriptor: &str) -> Result<(), String> {
    if let Some(period) = descriptor.strip_prefix("@every ") {
        return match duration::parse(period) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("failed to parse duration {descriptor}: {error}")),
        };
    }
    if DESCRIPTORS.contains(&descriptor) { Ok(()) } else { Err(format!("unrecognized descriptor: {descriptor}")) }
}

/// `*`, `5`, `1-5`, `mon-fri`, each with an optional step (`*/10`).
fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match ends[..] {
        // What follows a star is not checked, as there.
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [only] => (number(only, bounds)?, number(only, bounds)?),
        [start, end] => (number(start, bounds)?, number(end, bounds)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let step = match steps[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.max;
            }
            integer(step)?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {range}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {range}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    match bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text)).and_then(|at| u32::try_from(at).ok()) {
        Some(at) => Ok(at + bounds.min),
        None => integer(text),
    }
}

fn integer(text: &str) -> Result<u32, String> {
    let parsed: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", quote(text))
    })?;
    if parsed < 0 {
        return Err(format!("negative number ({parsed}) not allowed: {text}"));
    }
    Ok(u32::try_from(parsed).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_those_of_the_original() {
        for good in
            ["* * * * *", "*/5 0-12/2 1,15 jan-MAR mon-fri", "0 4 ? * 0", "@daily", "@every 1h30m", "5/15 * * * *"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "empty spec string"),
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
