//! Kubernetes resource quantities: `quantity('1.5Gi')`.
//!
//! As in Kubernetes, an amount is a 64-bit number with a power of ten where that is possible, and a decimal of any size
//! otherwise; whether it counts as an integer depends on which of the two it is.

mod decimal;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use self::decimal::Decimal;
use super::{any, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, global, member};
use crate::types::Type;
use crate::value::{Value, number};

const NAME: &str = "kubernetes.Quantity";
const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// The finest power of ten.
const NANO: i64 = -9;
/// Digits that a 64-bit amount may have.
const DIGITS: usize = 18;

/// A resource quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quantity {
    amount: Amount,
    /// Whether it is the result of arithmetic. The reference implementation refuses to compare other quantities with it.
    computed: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Amount {
    /// A number times a power of ten.
    Small(i64, i64),
    Large(Decimal),
}

/// How the suffix scales the number.
enum Scale {
    Ten(i64),
    Two(u32),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.decimal())
    }
}

impl Quantity {
    /// # Errors
    /// The error message of Kubernetes.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let amount = if text == "0" { Amount::Small(0, 0) } else { parse_amount(text)? };
        Ok(Self { amount, computed: false })
    }

    pub(crate) fn is_computed(&self) -> bool {
        self.computed
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small(value, scale) => Decimal::new(i128::from(*value), *scale),
            Amount::Large(decimal) => decimal.clone(),
        }
    }

    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.decimal().order(&other.decimal())
    }

    fn as_int(&self) -> Option<i64> {
        match &self.amount {
            Amount::Small(value, scale) => scaled(*value, *scale),
            Amount::Large(_) => None,
        }
    }

    fn as_float(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Small(value, scale) => (number::from_int(*value), *scale),
            Amount::Large(decimal) => (decimal.digits_as_float(), decimal.exponent()),
        };
        if exponent == 0 {
            return base;
        }
        base * 10_f64.powi(i32::try_from(exponent).unwrap_or(if exponent > 0 { i32::MAX } else { i32::MIN }))
    }

    /// # Errors
    /// When the two are too far apart for their sum to be written down.
    fn plus(&self, other: &Self, negative: bool) -> Result<Self, Stop> {
        if let (Amount::Small(value, scale), Amount::Small(more, more_scale)) = (&self.amount, &other.amount) {
            let more = if negative { more.checked_neg() } else { Some(*more) };
            if let Some((value, scale)) = more.and_then(|more| small_sum((*value, *scale), (more, *more_scale))) {
                return Ok(Self { amount: Amount::Small(value, scale), computed: true });
            }
        }
        let sum = self.decimal().plus(&other.decimal(), negative).ok_or("quantity is too large")?;
        Ok(Self { amount: Amount::Large(sum), computed: true })
    }
}

/// A number times a power of ten that is not negative.
fn scaled(value: i64, scale: i64) -> Option<i64> {
    if value == 0 && scale >= 0 {
        return Some(0);
    }
    value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
}

fn small_sum(left: (i64, i64), right: (i64, i64)) -> Option<(i64, i64)> {
    if right.0 == 0 {
        return Some(left);
    }
    if left.0 == 0 {
        return Some(right);
    }
    let scale = left.1.min(right.1);
    let sum = scaled(left.0, left.1 - scale)?.checked_add(scaled(right.0, right.1 - scale)?)?;
    Some((sum, scale))
}

/// The parts of a quantity as it is written.
struct Parts<'t> {
    negative: bool,
    /// Sign, digits and point.
    number: &'t str,
    /// Digits before the point without leading zeros, `0` if there are none.
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let start = unsigned.trim_start_matches('0');
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if start.is_empty() {
        return Ok(Parts { negative, number: "0", whole: "0", fraction: "", suffix: "" });
    }
    let (whole, rest) = start.split_at(digits(start));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let number = text.get(..text.len() - rest.len()).unwrap_or_default();
    let whole = if whole.is_empty() { "0" } else { whole };
    let letters = rest.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = if letters.is_empty() { letters } else { letters.strip_prefix(['-', '+']).unwrap_or(letters) };
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FORMAT);
    }
    Ok(Parts { negative, number, whole, fraction, suffix: rest })
}

fn interpret(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "" => Scale::Ten(0),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty())?;
            Scale::Ten(digits.parse::<i32>().ok()?.into())
        }
    })
}

fn parse_amount(text: &str) -> Result<Amount, &'static str> {
    if text.is_empty() {
        return Err(FORMAT);
    }
    let parts = split(text)?;
    let scale = interpret(parts.suffix).ok_or(SUFFIX)?;
    if let Some(small) = small_amount(&parts, &scale)? {
        return Ok(small);
    }
    let mut amount = Decimal::parse(parts.number).ok_or(NUMERIC)?;
    match scale {
        Scale::Ten(exponent) => amount = amount.shifted(exponent),
        Scale::Two(bits) => {
            amount = amount.times(1_u64 << bits);
            amount = amount.capped(i64::MAX);
        }
    }
    Ok(Amount::Large(amount.rounded_up(NANO)))
}

/// The amount as a 64-bit number, if there are few enough digits.
fn small_amount(parts: &Parts<'_>, scale: &Scale) -> Result<Option<Amount>, &'static str> {
    let (factor, exponent, fits) = match scale {
        Scale::Ten(exponent) => {
            let fits = parts.whole.len() + parts.fraction.len() <= DIGITS;
            (1, *exponent, fits)
        }
        Scale::Two(bits) if parts.fraction.is_empty() && !parts.number.contains('.') => {
            let used =
                i64::try_from(parts.whole.len()).unwrap_or(i64::MAX).saturating_add(i64::from(bits * 3 / 10) + 1);
            (1_i64 << bits, 0, used <= 15)
        }
        Scale::Two(_) => (1, 0, false),
    };
    let exponent = exponent - number::size(parts.fraction.len());
    if !fits || exponent < NANO {
        return Ok(None);
    }
    let value: i64 = format!("{}{}", parts.whole, parts.fraction).parse().map_err(|_| NUMERIC)?;
    let value = value.checked_mul(factor).map(|value| if parts.negative { -value } else { value });
    Ok(value.map(|value| Amount::Small(value, exponent)))
}

pub(super) fn add(all: &mut Functions) {
    let quantity = || Type::object(NAME);
    all.add("quantity", [global("string_to_quantity", &[Type::String], quantity(), read)]);
    all.add(
        "isQuantity",
        [global("is_quantity_string", &[Type::String], Type::Bool, |_, args| {
            Ok(Value::Bool(Quantity::parse(text(args, 0)?).is_ok()))
        })],
    );
    all.add("sign", [global("quantity_sign", &[quantity()], Type::Int, sign)]);
    let pair = [quantity(), quantity()];
    let comparisons: [(&str, &str, Type, Native); 3] = [
        ("isGreaterThan", "quantity_is_greater_than", Type::Bool, |_, args| Ok(Value::Bool(order(args)?.is_gt()))),
        ("isLessThan", "quantity_is_less_than", Type::Bool, |_, args| Ok(Value::Bool(order(args)?.is_lt()))),
        ("compareTo", "quantity_compare_to", Type::Int, |_, args| Ok(Value::Int(order(args)? as i64))),
    ];
    for (name, id, result, code) in comparisons {
        all.add(name, [member(id, &pair, result, code)]);
    }
    all.add(
        "asApproximateFloat",
        [member("quantity_get_float", &[quantity()], Type::Double, |_, args| {
            Ok(Value::Double(of(args, 0)?.as_float()))
        })],
    );
    all.add("asInteger", [member("quantity_get_int", &[quantity()], Type::Int, as_integer)]);
    all.add(
        "isInteger",
        [member("quantity_is_integer", &[quantity()], Type::Bool, |_, args| {
            Ok(Value::Bool(of(args, 0)?.as_int().is_some()))
        })],
    );
    let sums: [(&str, &str, &str, Native); 2] = [
        ("add", "quantity_add", "quantity_add_int", |_, args| sum(args, false)),
        ("sub", "quantity_sub", "quantity_sub_int", |_, args| sum(args, true)),
    ];
    for (name, id, with_int, code) in sums {
        let overloads =
            [member(id, &pair, quantity(), code), member(with_int, &[quantity(), Type::Int], quantity(), code)];
        all.add(name, overloads);
    }
}

fn of<'v>(args: &'v [Value<'_>], index: usize) -> Result<&'v Quantity, Stop> {
    match any(args, index)? {
        Value::Quantity(quantity) => Ok(quantity),
        _ => Err(Stop::no_such_overload()),
    }
}

fn read<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Quantity(Arc::new(Quantity::parse(text(args, 0)?)?)))
}

fn sign<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let zero = Quantity { amount: Amount::Small(0, 0), computed: false };
    Ok(Value::Int(of(args, 0)?.order(&zero) as i64))
}

fn order(args: &[Value<'_>]) -> Result<Ordering, Stop> {
    Ok(of(args, 0)?.order(of(args, 1)?))
}

fn as_integer<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    of(args, 0)?.as_int().map(Value::Int).ok_or_else(|| "cannot convert value to integer".into())
}

fn sum<'a>(args: &[Value<'a>], negative: bool) -> Result<Value<'a>, Stop> {
    let left = of(args, 0)?;
    let sum = match any(args, 1)? {
        Value::Int(value) => left.plus(&Quantity { amount: Amount::Small(*value, 0), computed: false }, negative)?,
        _ => left.plus(of(args, 1)?, negative)?,
    };
    Ok(Value::Quantity(Arc::new(sum)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).expect("a quantity")
    }

    #[test]
    fn quantities_are_read_and_compared() {
        for (left, right, wanted) in [
            ("200M", "0.2G", Ordering::Equal),
            ("50M", "50Mi", Ordering::Less),
            ("1Ki", "1024", Ordering::Equal),
            ("1.5Gi", "1610612736", Ordering::Equal),
            ("0.1n", "1n", Ordering::Equal),
            ("-1", "1", Ordering::Less),
            ("1e3", "1k", Ordering::Equal),
            ("9999999999999999999999999999G", "1E", Ordering::Greater),
            ("1e2000000000", "1e1999999999", Ordering::Greater),
            ("9223372036854775807Ki", "9223372036854775807", Ordering::Equal),
        ] {
            assert_eq!(quantity(left).order(&quantity(right)), wanted, "{left} {right}");
        }
        for (text, wanted) in
            [("", FORMAT), ("1,3", FORMAT), ("200K", SUFFIX), ("Three", FORMAT), ("Mi", ""), ("1e", SUFFIX)]
        {
            assert_eq!(Quantity::parse(text).err().unwrap_or(""), wanted, "{text}");
        }
    }

    #[test]
    fn integers_depend_on_how_a_quantity_is_written() {
        assert_eq!(quantity("50k").as_int(), Some(50_000));
        assert_eq!(quantity("1000m").as_int(), None);
        assert_eq!(quantity("1.0").as_int(), None);
        assert_eq!(quantity("9999999999999999999999999999999999999G").as_int(), None);
        assert!((quantity("1500m").as_float() - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn sums_too_far_apart_are_refused() {
        let sum = quantity("1e2000000000").plus(&quantity("1"), false);
        assert!(sum.is_err());
        let sum = quantity("50k").plus(&quantity("20"), true).expect("a sum");
        assert_eq!(sum.order(&quantity("49980")), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[0-9.+eEinumkKMGTPi-]{0,24}", other in "[0-9.+eEinumkKMGTPi-]{0,24}") {
            if let (Ok(left), Ok(right)) = (Quantity::parse(&text), Quantity::parse(&other)) {
                prop_assert_eq!(left.order(&right), right.order(&left).reverse());
                let _ = (left.plus(&right, true), left.as_float(), left.as_int());
            }
        }
    }
}
