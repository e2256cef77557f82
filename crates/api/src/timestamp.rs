//! The two kinds of time a Kubernetes object carries.
//!
//! In: RFC 3339 text from clients, or seconds and nanoseconds as protobuf has them. Out: the one format that the
//! server stores and prints (UTC; seconds, or exactly six digits of fraction). Errors use the messages of Go's
//! `time.Parse`, because clients see them.

use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The Unix second of Go's zero time, 0001-01-01T00:00:00Z, which JSON shows as null.
const ZERO_SECOND: i64 = -62_135_596_800;

/// The stored precision of a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// `Time`: whole seconds.
    Seconds,
    /// `MicroTime`: exactly six digits.
    Micros,
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds on top, below 1e9.
    pub nanos: i32,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

impl Moment {
    /// Go's zero time, which means "not set".
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.seconds == ZERO_SECOND && self.nanos == 0
    }

    /// Reads RFC 3339.
    ///
    /// # Errors
    /// Go's error message.
    pub fn parse(text: &str, precision: Precision) -> Result<Self, String> {
        let mut scan = Scan { text, rest: text, precision };
        let year = scan.digits(4, "2006")?;
        scan.literal("-")?;
        let month = scan.digits(2, "01")?;
        scan.range(month, 1, 12, "month")?;
        scan.literal("-")?;
        let day = scan.digits(2, "02")?;
        scan.literal("T")?;
        let hour = scan.digits(2, "15")?;
        scan.range(hour, 0, 23, "hour")?;
        scan.literal(":")?;
        let minute = scan.digits(2, "04")?;
        scan.range(minute, 0, 59, "minute")?;
        scan.literal(":")?;
        let second = scan.digits(2, "05")?;
        scan.range(second, 0, 59, "second")?;
        let nanos = scan.fraction()?;
        let offset = scan.zone()?;
        if !scan.rest.is_empty() {
            return Err(format!("parsing time {text:?}: extra text: {:?}", scan.rest));
        }
        let small = |value: i32| i8::try_from(value).unwrap_or(-1);
        let civil = DateTime::new(
            i16::try_from(year).unwrap_or(0),
            small(month),
            small(day),
            small(hour),
            small(minute),
            small(second),
            0,
        )
        .map_err(|_| format!("parsing time {text:?}: day out of range"))?;
        let stamp = Offset::UTC.to_timestamp(civil).map_err(|_| format!("parsing time {text:?}: year out of range"))?;
        Ok(Self { seconds: stamp.as_second() - i64::from(offset), nanos })
    }

    /// The canonical spelling; the fraction is cut, not rounded.
    #[must_use]
    pub fn print(self, precision: Precision) -> String {
        let stamp = jiff::Timestamp::from_second(self.seconds).unwrap_or_default();
        let civil = Offset::UTC.to_datetime(stamp);
        let fraction = match precision {
            Precision::Seconds => String::new(),
            Precision::Micros => format!(".{:06}", self.nanos.clamp(0, 999_999_999) / 1000),
        };
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second()
        )
    }
}

/// What is still to be read of a time.
struct Scan<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl Scan<'_> {
    fn cannot(&self, element: &str) -> String {
        format!(
            "parsing time {:?} as {:?}: cannot parse {:?} as {element:?}",
            self.text,
            self.precision.layout(),
            self.rest
        )
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<i32, String> {
        match self.rest.get(..count).filter(|head| head.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(head) => {
                let value = head.parse().map_err(|_| self.cannot(element))?;
                self.rest = &self.rest[count..];
                Ok(value)
            }
            None => Err(self.cannot(element)),
        }
    }

    fn literal(&mut self, expected: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(expected).ok_or_else(|| self.cannot(expected))?;
        Ok(())
    }

    fn range(&self, value: i32, low: i32, high: i32, what: &str) -> Result<(), String> {
        if (low..=high).contains(&value) {
            Ok(())
        } else {
            Err(format!("parsing time {:?}: {what} out of range", self.text))
        }
    }

    /// `Time` tolerates any fraction, `MicroTime` demands six digits.
    fn fraction(&mut self) -> Result<i32, String> {
        let digits =
            self.rest.strip_prefix(['.', ',']).map_or(0, |tail| tail.bytes().take_while(u8::is_ascii_digit).count());
        let used = match self.precision {
            Precision::Micros if digits < 6 => return Err(self.cannot(".000000")),
            Precision::Micros => 6,
            Precision::Seconds if digits == 0 => return Ok(0),
            Precision::Seconds => digits,
        };
        let mut nanos = 0;
        for place in 0..9 {
            let digit =
                self.rest.as_bytes().get(1 + place).filter(|_| place < used).map_or(0, |byte| i32::from(byte - b'0'));
            nanos = nanos * 10 + digit;
        }
        self.rest = &self.rest[1 + used..];
        Ok(nanos)
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let whole = self.rest;
        let parsed = (|| {
            let sign = match whole.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let two = |range| whole.get(range).filter(|part: &&str| part.bytes().all(|b| b.is_ascii_digit()));
            let hours: i32 = two(1..3)?.parse().ok()?;
            let minutes: i32 = two(4..6)?.parse().ok()?;
            (whole.as_bytes()[3] == b':').then_some((sign, hours, minutes))
        })();
        let (sign, hours, minutes) = parsed.ok_or_else(|| self.cannot("Z07:00"))?;
        self.range(hours, 0, 24, "time zone offset hour")?;
        self.range(minutes, 0, 59, "time zone offset minute")?;
        self.rest = &whole[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Result<String, String> {
        Moment::parse(text, Precision::Seconds).map(|moment| moment.print(Precision::Seconds))
    }

    fn micros(text: &str) -> Result<String, String> {
        Moment::parse(text, Precision::Micros).map(|moment| moment.print(Precision::Micros))
    }

    #[test]
    fn times_are_printed_in_utc_without_fraction() {
        assert_eq!(seconds("2024-02-29T23:59:59Z").as_deref(), Ok("2024-02-29T23:59:59Z"));
        assert_eq!(seconds("2024-01-01T00:30:00.987+02:00").as_deref(), Ok("2023-12-31T22:30:00Z"));
        assert_eq!(micros("2024-01-01T00:00:00.123456-01:00").as_deref(), Ok("2024-01-01T01:00:00.123456Z"));
        assert!(Moment::parse("0001-01-01T00:00:00Z", Precision::Seconds).is_ok_and(Moment::is_zero));
    }

    #[test]
    fn errors_use_the_words_of_go() {
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        let rest = |value: &str, rest: &str, element: &str| {
            Err(format!("parsing time {value:?} as {layout:?}: cannot parse {rest:?} as {element:?}"))
        };
        assert_eq!(micros("2024-01-01T00:00:01Z"), rest("2024-01-01T00:00:01Z", "Z", ".000000"));
        assert_eq!(micros("2024-01-01T00:00:01.123Z"), rest("2024-01-01T00:00:01.123Z", ".123Z", ".000000"));
        assert_eq!(micros("yesterday"), rest("yesterday", "yesterday", "2006"));
        assert_eq!(
            seconds(""),
            Err("parsing time \"\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"2006\"".to_owned())
        );
        assert_eq!(
            seconds("2024-13-01T00:00:00Z"),
            Err("parsing time \"2024-13-01T00:00:00Z\": month out of range".into())
        );
        assert_eq!(
            seconds("2023-02-29T00:00:00Z"),
            Err("parsing time \"2023-02-29T00:00:00Z\": day out of range".into())
        );
        assert_eq!(
            seconds("2024-01-01T00:00:00Zx"),
            Err("parsing time \"2024-01-01T00:00:00Zx\": extra text: \"x\"".into())
        );
        assert!(seconds("2024-01-01T00:00:00+1é:0").is_err());
    }
}
