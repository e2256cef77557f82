//! Points and spans of time, read and written as Go does.
//!
//! A timestamp keeps the offset with which it was written, for display only. The calendar is the proleptic Gregorian one,
//! the years are 1 to 9999.

use jiff::tz::TimeZone;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// Seconds from the epoch to the start of the year 1.
const FIRST: i64 = -62_135_596_800;
/// The last second of the year 9999.
const LAST: i64 = 253_402_300_799;

/// Hours or minutes beyond which an offset from UTC is cut.
const OFFSET: i64 = 1_000_000;

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since the epoch.
    seconds: i64,
    /// Nanoseconds of the second.
    nanos: i64,
    /// Seconds east of UTC in which it is displayed.
    offset: i64,
}

/// A date and time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 1.
    pub(crate) day_of_year: i64,
    /// 0 is Sunday.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Timestamp {
    /// A point in time from seconds since the epoch.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanos: 0, offset: 0 })
    }

    /// Seconds since the epoch, rounded down.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds of the second.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// The order of two points in time.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == FIRST && self.nanos == 0
    }

    /// Later by a number of nanoseconds; none outside of the years 1 to 9999.
    pub(crate) fn plus(&self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(i128::from(NANOS))).ok()?;
        let nanos = i64::try_from(total.rem_euclid(i128::from(NANOS))).ok()?;
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanos, offset: self.offset })
    }

    /// Nanoseconds from another point in time to this one; none if there are too many.
    pub(crate) fn since(&self, other: &Self) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(NANOS)?;
        seconds.checked_add(self.nanos - other.nanos)
    }

    /// Reads `2006-01-02T15:04:05.999Z07:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text.as_bytes() };
        let (year, month, day) = reader.date()?;
        reader.literal(b'T')?;
        let hour =
            if reader.rest.get(1).is_some_and(u8::is_ascii_digit) { reader.digits(2)? } else { reader.digits(1)? };
        reader.literal(b':')?;
        let minute = reader.digits(2)?;
        reader.literal(b':')?;
        let second = reader.digits(2)?;
        let nanos = reader.fraction();
        let offset = reader.zone()?;
        if !reader.rest.is_empty() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Some(Self { seconds, nanos, offset })
    }

    /// Reads `2006-01-02`.
    pub(crate) fn parse_date(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text.as_bytes() };
        let (year, month, day) = reader.date()?;
        reader.rest.is_empty().then(|| Self { seconds: days_from_civil(year, month, day) * DAY, nanos: 0, offset: 0 })
    }

    /// Whether the point in time is one that the language knows.
    pub(crate) fn in_range(&self) -> bool {
        (FIRST..=LAST).contains(&self.seconds)
    }

    /// The text of the timestamp, in the offset in which it was written.
    pub(crate) fn display(&self) -> String {
        let civil = self.civil(self.offset);
        let Civil { year, month, day, hour, minute, second, .. } = civil;
        let mut out = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            out.push('.');
            out.push_str(fraction.trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let minutes = self.offset.abs() / 60;
            let sign = if self.offset < 0 { '-' } else { '+' };
            out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        out
    }

    /// The date and time of day at an offset from UTC in seconds.
    pub(crate) fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let (days, rest) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1) + 1,
            weekday: (days + 4).rem_euclid(7),
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// Seconds east of UTC at this point in time, in a zone given by name or as `+01:00`.
    ///
    /// # Errors
    /// Go's error message for the time zone.
    pub(crate) fn offset_in(&self, zone: &str) -> Result<i64, String> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let (hours, minutes) = (atoi(hours)?, atoi(minutes)?);
            let (hours, minutes) = (hours.clamp(-OFFSET, OFFSET), minutes.clamp(-OFFSET, OFFSET));
            let total = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
            return Ok(total * 60);
        }
        if matches!(zone, "" | "UTC") {
            return Ok(0);
        }
        let unknown = || format!("unknown time zone {zone}");
        let zone = TimeZone::get(zone).map_err(|_| unknown())?;
        let at = jiff::Timestamp::from_second(self.seconds).map_err(|_| unknown())?;
        Ok(i64::from(zone.to_offset(at).seconds()))
    }
}

/// A whole number as Go reads it.
fn atoi(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
}

struct Reader<'t> {
    rest: &'t [u8],
}

impl Reader<'_> {
    fn literal(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        let value = digits
            .iter()
            .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))?;
        self.rest = rest;
        Some(value)
    }

    fn date(&mut self) -> Option<(i64, i64, i64)> {
        let year = self.digits(4)?;
        self.literal(b'-')?;
        let month = self.digits(2)?;
        self.literal(b'-')?;
        let day = self.digits(2)?;
        let fits = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
        fits.then_some((year, month, day))
    }

    /// A fraction of a second, in nanoseconds; digits beyond are dropped.
    fn fraction(&mut self) -> i64 {
        let [b'.' | b',', digits @ ..] = self.rest else { return 0 };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        let (digits, rest) = digits.split_at(count);
        self.rest = rest;
        digits.iter().chain([b'0'].iter().cycle()).take(9).fold(0, |value, byte| value * 10 + i64::from(byte - b'0'))
    }

    fn zone(&mut self) -> Option<i64> {
        let sign = match self.rest.first()? {
            b'Z' => {
                self.literal(b'Z')?;
                return Some(0);
            }
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.rest = self.rest.get(1..)?;
        let hours = self.digits(2)?;
        self.literal(b':')?;
        let minutes = self.digits(2)?;
        (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a date. Months are counted from March, so that the leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Reads a duration as Go does: `1h30m`, `-1.5s`, `300ms`. The result is in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)?),
        [b'+', ..] => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (amount, tail) = duration_part(rest)?;
        total = total.checked_add(amount).filter(|total| *total <= 1 << 63)?;
        rest = tail;
    }
    if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn duration_part(text: &str) -> Option<(u64, &str)> {
    let split = |text: &'_ str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(split(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(split(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let amount = whole.checked_mul(unit).filter(|amount| *amount <= 1 << 63)?;
    let digits: String = fraction.chars().take(18).collect();
    let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(0));
    let part = if digits.is_empty() { 0 } else { u128::from(unit) * digits.parse::<u128>().ok()? / scale };
    let amount = amount.checked_add(u64::try_from(part).ok()?).filter(|amount| *amount <= 1 << 63)?;
    Some((amount, rest))
}

/// A duration as the language writes it: seconds with a fraction.
pub(crate) fn duration_in_seconds(nanos: i64) -> String {
    let seconds = super::number::from_int(nanos / NANOS) + super::number::from_int(nanos % NANOS) / 1e9;
    format!("{seconds}s")
}

/// A duration as Go writes it: `1h2m3.5s`.
pub(crate) fn duration_in_units(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let amount = nanos.unsigned_abs();
    let decimal = |amount: u64, unit: u64, width: usize| {
        let fraction = format!("{:0width$}", amount % unit);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        format!("{}{dot}{fraction}", amount / unit)
    };
    let text = match amount {
        0 => "0s".to_owned(),
        1..1_000 => format!("{amount}ns"),
        1_000..1_000_000 => decimal(amount, 1_000, 3) + "µs",
        1_000_000..1_000_000_000 => decimal(amount, 1_000_000, 6) + "ms",
        _ => {
            let (minutes, rest) = (amount / 60_000_000_000, amount % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000, 9) + "s";
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_are_read_and_written() {
        let cases = [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05.120+02:00", Some("2026-01-02T03:04:05.12+02:00")),
            ("2026-01-02T3:04:05Z", Some("2026-01-02T03:04:05Z")),
            ("2024-02-29T00:00:00-00:30", Some("2024-02-29T00:00:00-00:30")),
            ("2023-02-29T00:00:00Z", None),
            ("2023-02-28T24:00:00Z", None),
            ("2023-02-28 00:00:00Z", None),
            ("2023-02-28T00:00:00", None),
            ("", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(Timestamp::parse(text).map(|time| time.display()).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn the_calendar_is_right_at_its_edges() {
        for (seconds, wanted) in
            [(FIRST, (1, 1, 1, 1)), (LAST, (9999, 12, 31, 365)), (0, (1970, 1, 1, 1)), (951_782_400, (2000, 2, 29, 60))]
        {
            let civil = Timestamp::from_seconds(seconds).expect("in range").civil(0);
            assert_eq!((civil.year, civil.month, civil.day, civil.day_of_year), wanted, "{seconds}");
        }
        assert_eq!(Timestamp::from_seconds(0).expect("in range").civil(0).weekday, 4);
        assert!(Timestamp::from_seconds(LAST + 1).is_none());
        assert!(Timestamp::from_seconds(LAST).expect("in range").plus(NANOS).is_none());
    }

    #[test]
    fn zones_are_names_or_offsets() {
        let time = Timestamp::parse("2023-07-14T10:30:45Z").expect("a time");
        assert_eq!(time.offset_in("America/Los_Angeles"), Ok(-7 * 3600));
        assert_eq!(time.offset_in("+05:30"), Ok(19_800));
        assert_eq!(time.offset_in("-00:30"), Ok(-1800));
        assert!(
            time.offset_in("9223372036854775807:9223372036854775807")
                .is_ok_and(|offset| time.civil(offset).year > 2023)
        );
        assert_eq!(time.offset_in("Frob/Nix"), Err("unknown time zone Frob/Nix".to_owned()));
        assert_eq!(time.offset_in("a:b"), Err("strconv.Atoi: parsing \"a\": invalid syntax".to_owned()));
    }

    #[test]
    fn durations_are_read_and_written() {
        let cases = [
            ("1h30m", Some("5400s"), "1h30m0s"),
            ("-1.5s", Some("-1.5s"), "-1.5s"),
            ("300ms", Some("0.3s"), "300ms"),
            ("1us", Some("0.000001s"), "1µs"),
            ("0", Some("0s"), "0s"),
            (".5m", Some("30s"), "30s"),
            ("1", None, ""),
            ("1d", None, ""),
            ("", None, ""),
            ("1h-1m", None, ""),
            ("9223372036s9s", None, ""),
        ];
        for (text, seconds, units) in cases {
            let nanos = parse_duration(text);
            assert_eq!(nanos.map(duration_in_seconds).as_deref(), seconds, "{text}");
            if let Some(nanos) = nanos {
                assert_eq!(duration_in_units(nanos), units, "{text}");
            }
        }
        assert_eq!(parse_duration("-9223372036854775808ns"), Some(i64::MIN));
        assert_eq!(parse_duration("9223372036854775808ns"), None);
    }

    proptest! {
        #[test]
        fn days_and_dates_are_inverse(days in -800_000_i64..3_000_000) {
            let (year, month, day) = civil_from_days(days);
            prop_assert_eq!(days_from_civil(year, month, day), days);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,40}") {
            let _ = (Timestamp::parse(&text), Timestamp::parse_date(&text), parse_duration(&text));
        }
    }
}
