//! One JSON scalar becomes a value of its type.
//!
//! In: a string, number or boolean and the shape it must have. Out: the value in the form that is stored (times in UTC,
//! quantities in their canonical spelling), or what is wrong with it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value};

use crate::schema::Shape;
use crate::timestamp::{Moment, Precision};
use crate::{duration, quantity};

/// Padding is demanded and stray bits of the last character are ignored, as Go does.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// What is wrong with a scalar.
pub(super) enum Fault {
    /// It has another type: what it is (`number 80.5`). The type is the one of the field unless a parser behind the
    /// field had its own.
    Mismatch { found: String, wanted: Option<&'static str>, fatal: bool },
    /// With its own message.
    Other { message: String, fatal: bool },
}

/// What Go calls a JSON value.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value that is no scalar, or one of the wrong type.
pub(super) fn mismatch(shape: &Shape, found: &str) -> Fault {
    let (wanted, fatal) = match shape {
        Shape::Time | Shape::MicroTime | Shape::Duration => (Some("string"), true),
        Shape::IntOrString => (Some("int32"), true),
        Shape::Quantity => return fatal(quantity::canonical("?").err().unwrap_or_default()),
        Shape::Union(_, other) if **other == Shape::Bool => return fatal("boolean or JSON schema expected"),
        _ => (None, false),
    };
    Fault::Mismatch { found: found.to_owned(), wanted, fatal }
}

/// A string.
pub(super) fn string(shape: &Shape, text: String) -> Result<Value, Fault> {
    match shape {
        Shape::String | Shape::IntOrString | Shape::Raw | Shape::FieldsV1 | Shape::Json => Ok(text.into()),
        Shape::Bytes => bytes(text),
        Shape::Time => time(&text, Precision::Seconds),
        Shape::MicroTime => time(&text, Precision::Micros),
        Shape::Duration => duration::parse(&text).map(|nanos| duration::print(nanos).into()).map_err(fatal),
        Shape::Quantity => quantity::canonical(&text).map(Value::from).map_err(fatal),
        _ => Err(mismatch(shape, "string")),
    }
}

/// A number.
pub(super) fn number(shape: &Shape, number: Number) -> Result<Value, Fault> {
    let fits = match shape {
        Shape::Int32 | Shape::IntOrString => number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
        Shape::Int64 => number.is_i64(),
        Shape::Float64 => return Ok(float(number.as_f64().unwrap_or_default())),
        Shape::Raw | Shape::FieldsV1 | Shape::Json => true,
        Shape::Quantity => return quantity::canonical(&number.to_string()).map(Value::from).map_err(fatal),
        _ => return Err(mismatch(shape, "number")),
    };
    if fits { Ok(Value::Number(number)) } else { Err(mismatch(shape, &format!("number {number}"))) }
}

/// A floating-point number, without a fraction where it has none.
pub(crate) fn float(value: f64) -> Value {
    let whole = value as i64;
    if whole as f64 == value && whole.unsigned_abs() <= 1 << 53 { whole.into() } else { value.into() }
}

/// A boolean.
pub(super) fn boolean(shape: &Shape, value: bool) -> Result<Value, Fault> {
    match shape {
        Shape::Bool | Shape::Raw | Shape::FieldsV1 | Shape::Json => Ok(value.into()),
        Shape::Union(_, other) if **other == Shape::Bool => Ok(value.into()),
        _ => Err(mismatch(shape, "bool")),
    }
}

fn fatal(message: impl Into<String>) -> Fault {
    Fault::Other { message: message.into(), fatal: true }
}

fn time(text: &str, precision: Precision) -> Result<Value, Fault> {
    let moment = Moment::parse(text, precision).map_err(fatal)?;
    Ok(if moment.is_zero() { Value::Null } else { moment.print(precision).into() })
}

/// Base64, without the line breaks that kube-apiserver tolerates.
fn bytes(mut text: String) -> Result<Value, Fault> {
    text.retain(|c| c != '\n' && c != '\r');
    match LENIENT.decode(&text) {
        Ok(data) => {
            let canonical = base64::engine::general_purpose::STANDARD.encode(data);
            Ok(canonical.into())
        }
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len(),
            };
            Err(Fault::Other { message: format!("illegal base64 data at input byte {at}"), fatal: false })
        }
    }
}
