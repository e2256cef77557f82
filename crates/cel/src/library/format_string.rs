//! `'%s is %d'.format([…])`: clauses, and the same clauses checked before evaluation.
//!
//! Fixed-point and scientific numbers are written as in American English, which is what Kubernetes' version of the library
//! does: thousands are separated by commas and exponents are superscripts.

use crate::budget::{Budget, Stop};
use crate::types::Type;
use crate::value::convert::convert;
use crate::value::{List, Map, Value};

/// Digits after the decimal point, unless a clause sets another precision.
const PRECISION: usize = 6;

/// What a clause wants done with its argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

impl Clause {
    /// The message for an argument of a type that does not fit.
    pub(crate) fn refuse(self, kind: &str) -> String {
        let what = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{what}, was given {kind}")
    }
}

/// A piece of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece<'f> {
    Text(&'f str),
    Clause(Clause),
}

/// Takes a format apart.
pub(crate) struct Pieces<'f> {
    rest: &'f str,
}

impl<'f> Pieces<'f> {
    pub(crate) fn new(format: &'f str) -> Self {
        Self { rest: format }
    }

    /// The next piece. `missing` is the number of the argument that a clause would need, if there is none; while checking,
    /// an incomplete clause is reported before it, while formatting behind it.
    ///
    /// # Errors
    /// What is wrong with a clause, or that its argument is missing.
    pub(crate) fn next(&mut self, missing: Option<usize>, checking: bool) -> Result<Option<Piece<'f>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if let Some(tail) = self.rest.strip_prefix("%%") {
            self.rest = tail;
            return Ok(Some(Piece::Text("%")));
        }
        let Some(clause) = self.rest.strip_prefix('%') else {
            let (text, rest) = self.rest.split_at(self.rest.find('%').unwrap_or(self.rest.len()));
            self.rest = rest;
            return Ok(Some(Piece::Text(text)));
        };
        let incomplete = clause.is_empty();
        match missing {
            Some(index) if !(checking && incomplete) => return Err(format!("index {index} out of range")),
            _ if incomplete => return Err("unexpected end of string".to_owned()),
            _ => {}
        }
        let (clause, rest) = parse_clause(clause).map_err(|why| format!("could not parse formatting clause: {why}"))?;
        self.rest = rest;
        Ok(Some(Piece::Clause(clause)))
    }
}

fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, rest) = parse_precision(text).map_err(|why| format!("error while parsing precision: {why}"))?;
    let precision = precision.unwrap_or(PRECISION);
    let mut chars = rest.chars();
    let clause = match chars.next() {
        Some('s') => Clause::String,
        Some('d') => Clause::Decimal,
        Some('f') => Clause::Fixed(precision),
        Some('e') => Clause::Scientific(precision),
        Some('b') => Clause::Binary,
        Some('x') => Clause::Hex { upper: false },
        Some('X') => Clause::Hex { upper: true },
        Some('o') => Clause::Octal,
        other => {
            // The reference implementation reads one byte.
            let byte = other.map_or(0, |c| c.to_string().bytes().next().unwrap_or(0));
            return Err(format!("unrecognized formatting clause \"{}\"", char::from(byte)));
        }
    };
    Ok((clause, chars.as_str()))
}

fn parse_precision(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(digits) = text.strip_prefix('.') else { return Ok((None, text)) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).ok_or("could not find end of precision specifier")?;
    let (digits, rest) = digits.split_at(end);
    let precision = digits.parse().map_err(|_| {
        let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("error while converting precision to integer: strconv.Atoi: parsing {digits:?}: {why}")
    })?;
    Ok((Some(precision), rest))
}

/// The format with its arguments filled in.
pub(super) fn format(budget: &mut Budget, format: &str, args: &List<'_>) -> Result<String, Stop> {
    budget.bytes(format.len())?;
    let mut out = String::new();
    let mut pieces = Pieces::new(format);
    let mut index = 0;
    loop {
        match pieces.next((index >= args.len()).then_some(index), false)? {
            None => return Ok(out),
            Some(Piece::Text(text)) => out.push_str(text),
            Some(Piece::Clause(clause)) => {
                let arg = args.get(index).ok_or_else(|| format!("index {index} out of range"))?;
                let shown = apply(budget, clause, &arg).map_err(|stop| match stop {
                    Stop::Error(why) => Stop::Error(format!("error during formatting: {why}")),
                    other => other,
                })?;
                budget.make_bytes(shown.len())?;
                out.push_str(&shown);
                index += 1;
            }
        }
    }
}

fn apply(budget: &mut Budget, clause: Clause, arg: &Value<'_>) -> Result<String, Stop> {
    let shown = match (clause, arg) {
        (Clause::String, _) => Some(plain(budget, arg)?),
        (Clause::Decimal, Value::Int(value)) => Some(value.to_string()),
        (Clause::Decimal, Value::Uint(value)) => Some(value.to_string()),
        (Clause::Fixed(precision), _) => match double(arg) {
            Some(value) => {
                budget.make_bytes(precision.saturating_add(400))?;
                Some(fixed(value, precision))
            }
            None => None,
        },
        (Clause::Scientific(width), _) => match double(arg) {
            Some(value) => {
                budget.make_bytes(width.saturating_add(32))?;
                Some(format!("{:>width$}", scientific(value)))
            }
            None => None,
        },
        (Clause::Binary, Value::Int(value)) => Some(signed(*value, |amount| format!("{amount:b}"))),
        (Clause::Binary, Value::Uint(value)) => Some(format!("{value:b}")),
        (Clause::Binary, Value::Bool(value)) => Some(u8::from(*value).to_string()),
        (Clause::Octal, Value::Int(value)) => Some(signed(*value, |amount| format!("{amount:o}"))),
        (Clause::Octal, Value::Uint(value)) => Some(format!("{value:o}")),
        (Clause::Hex { upper }, _) => hex(budget, arg)?.map(|hex| if upper { hex.to_uppercase() } else { hex }),
        _ => None,
    };
    shown.ok_or_else(|| Stop::Error(clause.refuse(arg.type_name())))
}

fn signed(value: i64, show: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", show(value.unsigned_abs()))
}

fn hex(budget: &mut Budget, arg: &Value<'_>) -> Result<Option<String>, Stop> {
    let bytes = match arg {
        Value::Int(value) => return Ok(Some(signed(*value, |amount| format!("{amount:x}")))),
        Value::Uint(value) => return Ok(Some(format!("{value:x}"))),
        Value::String(text) => text.as_str().as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => return Ok(None),
    };
    budget.make_bytes(bytes.len().saturating_mul(2))?;
    Ok(Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// A double, or one of the strings that stand for one.
fn double(arg: &Value<'_>) -> Option<f64> {
    match arg {
        Value::Double(value) => Some(*value),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value.is_infinite().then(|| if value > 0.0 { "∞".to_owned() } else { "-∞".to_owned() })
}

fn fixed(value: f64, precision: usize) -> String {
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{value:.precision$}");
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::new();
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

fn scientific(value: f64) -> String {
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{value:.PRECISION$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let digits: String = format!("{digits:0>2}")
        .chars()
        .map(|digit| match digit {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            '9' => '⁹',
            _ => '⁰',
        })
        .collect();
    format!("{mantissa}×10{sign}{digits}")
}

/// The clause `%s`.
fn plain(budget: &mut Budget, arg: &Value<'_>) -> Result<String, Stop> {
    match arg {
        Value::List(list) => show_list(budget, list),
        Value::Map(map) => show_map(budget, map),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::Timestamp(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Type(_)
        | Value::Null => match convert(arg, &Type::String) {
            Ok(Value::String(text)) => {
                budget.bytes(text.as_str().len())?;
                Ok(text.as_str().to_owned())
            }
            Err(Stop::Error(why)) => Err(format!("could not convert argument {} to string", go_quote(&why)).into()),
            _ => Err(Stop::no_such_overload()),
        },
        _ => Err(Clause::String.refuse(arg.type_name()).into()),
    }
}

/// A value inside of a list or a map.
fn nested(budget: &mut Budget, value: &Value<'_>) -> Result<String, Stop> {
    Ok(match value {
        Value::Double(double) if double.is_finite() => format!("{double:.PRECISION$}"),
        Value::Double(double) => go_quote(&crate::value::number::shortest(*double)),
        Value::Timestamp(time) => format!("timestamp({})", go_quote(&time.display())),
        Value::Duration(nanos) => {
            format!("duration({})", go_quote(&crate::value::time::duration_in_seconds(*nanos)))
        }
        Value::String(text) => {
            budget.bytes(text.as_str().len())?;
            go_quote(text.as_str())
        }
        Value::Bytes(_) => format!("b{}", go_quote(&plain(budget, value)?)),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Bool(_)
        | Value::Null
        | Value::Type(_)
        | Value::List(_)
        | Value::Map(_) => plain(budget, value)?,
        _ => return Err(format!("no formatting function for {}", value.type_name()).into()),
    })
}

fn show_list(budget: &mut Budget, list: &List<'_>) -> Result<String, Stop> {
    let mut items = Vec::new();
    for item in list.iter() {
        budget.make(2)?;
        items.push(nested(budget, &item)?);
    }
    Ok(format!("[{}]", items.join(", ")))
}

fn show_map(budget: &mut Budget, map: &Map<'_>) -> Result<String, Stop> {
    let mut entries = Vec::new();
    for (key, value) in map.iter() {
        budget.make(4)?;
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            return Err(format!("no formatting function for map key of type {}", key.type_name()).into());
        }
        entries.push((nested(budget, &key)?, nested(budget, &value)?));
    }
    entries.sort();
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", entries.join(", ")))
}

/// A string in quotes as Go writes it.
pub(crate) fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' ' => out.push(' '),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Letters, marks, numbers, punctuation and symbols; not spaces, controls, formats and private characters.
fn is_printable(c: char) -> bool {
    let hidden = matches!(
        u32::from(c),
        0xad | 0x600..=0x605
            | 0x61c
            | 0x6dd
            | 0x70f
            | 0x180e
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0xe000..=0xf8ff
            | 0xfeff
            | 0xfff0..=0xfffb
            | 0xfffe..=0xffff
            | 0xe_0000..=0x10_ffff
    );
    !(c.is_control() || c.is_whitespace() || hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_american() {
        assert_eq!(fixed(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(fixed(-999.5, 0), "-1,000");
        assert_eq!(fixed(f64::NEG_INFINITY, 2), "-∞");
        assert_eq!(scientific(0.000_12), "1.200000×10⁻⁰⁴");
    }

    #[test]
    fn huge_precision_is_refused() {
        let args = List::from_values(vec![Value::Double(1.0)]);
        let result = format(&mut Budget::new(u64::MAX), "%.4000000000f", &args);
        assert_eq!(result, Err(Stop::Cancelled));
    }

    #[test]
    fn quotes_escape_what_is_not_printable() {
        assert_eq!(go_quote("a\"\u{1}\u{a0}ü\u{200b}"), "\"a\\\"\\x01\\u00a0ü\\u200b\"");
    }
}
