//! Durations of the Gateway API (GEP-2257): one to four numbers of one to five digits with the units h, m, s and ms.

use std::time::Duration;

/// Parses a duration such as `1h30m`, `500ms` or `0s`; none if the text is not one.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) {
            return None;
        }
        let number: u32 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        // `ms` before `m`.
        let (value, after) = if let Some(after) = unit.strip_prefix("ms") {
            (Duration::from_millis(number.into()), after)
        } else if let Some(after) = unit.strip_prefix('h') {
            (Duration::from_secs(3600) * number, after)
        } else if let Some(after) = unit.strip_prefix('m') {
            (Duration::from_secs(60) * number, after)
        } else {
            (Duration::from_secs(number.into()), unit.strip_prefix('s')?)
        };
        sum += value;
        if after.is_empty() {
            return Some(sum);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn durations_of_the_gateway_api() {
        let table = [
            ("0s", 0),
            ("500ms", 500),
            ("1s", 1000),
            ("1m", 60_000),
            ("2h", 7_200_000),
            ("1h30m5s7ms", 5_405_007),
            ("10ms1h", 3_600_010),
            ("99999h", 359_996_400_000),
            ("1m1m", 120_000),
        ];
        for (text, millis) in table {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "1", "s", "1.5s", "-1s", "+1s", "1us", "1S", "100000s", "1s ", " 1s", "1h1h1h1h1h", "1d"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
