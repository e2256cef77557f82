//! What a call costs, as Kubernetes counts it.
//!
//! An argument that failed counts like a value without a size.

use crate::budget::{Budget, Stop};
use crate::value::Value;

/// Cost of making a list, a map and a message.
pub(super) const LIST: u64 = 10;
pub(super) const MAP: u64 = 30;
pub(super) const STRUCT: u64 = 40;

/// Cost of one authorization check: two per expression are affordable.
const CHECK: u64 = 350_000;
/// Cost per character of looking at a string.
const STRING: f64 = 0.1;
/// Cost per character of a pattern, for each character that it is applied to.
const PATTERN: f64 = 0.25;

/// The cost of a call with these arguments and this result. `id` is empty if several overloads fitted.
pub(super) fn call(
    budget: &mut Budget,
    function: &str,
    id: &str,
    args: &[Option<Value<'_>>],
    result: Option<&Value<'_>>,
) -> Result<u64, Stop> {
    if let Some(cost) = extension(id, args, result)? {
        return Ok(cost);
    }
    if let Some(cost) = kubernetes(budget, function, id, args, result)? {
        return Ok(cost);
    }
    Ok(standard(id, args))
}

fn arg<'v, 'a>(args: &'v [Option<Value<'a>>], index: usize) -> Option<&'v Value<'a>> {
    args.get(index)?.as_ref()
}

fn size(value: Option<&Value<'_>>) -> u64 {
    let len = match value {
        Some(Value::String(text)) => text.len_chars(),
        Some(Value::Bytes(bytes)) => bytes.len(),
        Some(Value::List(list)) => list.len(),
        Some(Value::Map(map)) => map.len(),
        Some(Value::Ip(ip)) => {
            if ip.is_ipv4() {
                4
            } else {
                16
            }
        }
        Some(Value::Cidr(cidr)) => return cidr.size(),
        _ => 1,
    };
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The size of a value, or of what an optional holds.
fn inner_size(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => inner_size(Some(inner)),
        other => size(other),
    }
}

/// The smaller of two sizes. Of a string that is much longer than the other only a part is counted.
fn smaller_size(left: Option<&Value<'_>>, right: Option<&Value<'_>>) -> u64 {
    let (Some(Value::String(left)), Some(Value::String(right))) = (left, right) else {
        return inner_size(left).min(inner_size(right));
    };
    let (left, right) = (left.as_str(), right.as_str());
    let (short, long) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    let count = short.chars().count();
    u64::try_from(long.chars().take(count).count()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "costs are computed in floating point and are not negative"
)]
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "costs are computed in floating point and are not negative"
)]
fn scaled_down(size: u64, factor: f64) -> u64 {
    (size as f64 * factor) as u64
}

/// Applying a pattern to a text. One more character keeps the product from being nothing.
fn pattern_cost(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), STRING).saturating_mul(scaled(pattern, PATTERN))
}

/// Overloads of extensions with a cost of their own.
fn extension(id: &str, args: &[Option<Value<'_>>], result: Option<&Value<'_>>) -> Result<Option<u64>, Stop> {
    let allocating = |factor: f64, size: u64| {
        let factor = if factor < 0.0 { 1.0 } else { factor };
        Some(scaled_down(size, factor).saturating_add(1 + LIST))
    };
    Ok(match id {
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let product = size(arg(args, 0)).saturating_mul(size(arg(args, 1)));
            let factor = if id == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            Some(scaled_down(product, factor).saturating_add(1))
        }
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, size(result)),
        "list_flatten" => allocating(1.0, size(arg(args, 0))),
        "list_flatten_int" => match arg(args, 1) {
            Some(Value::Int(depth)) => allocating(crate::value::number::from_int(*depth), size(arg(args, 0))),
            _ => return Err(internal("types.Int", "")),
        },
        "list_distinct" => allocating_square(arg(args, 0))?,
        _ if id.ends_with("_sort") => allocating_square(arg(args, 0))?,
        _ if id.ends_with("_sortByAssociatedKeys") => allocating_square(arg(args, 1))?,
        _ => None,
    })
}

/// Comparing all elements of a list with each other.
fn allocating_square(list: Option<&Value<'_>>) -> Result<Option<u64>, Stop> {
    let Some(Value::List(list)) = list else {
        return Err(internal("traits.Lister", ": missing method Add"));
    };
    let factor = match list.get(0) {
        Some(Value::String(_) | Value::Bytes(_)) => 2.0 + STRING,
        _ => 2.0,
    };
    let len = u64::try_from(list.len()).unwrap_or(u64::MAX);
    Ok(Some(scaled_down(len.saturating_mul(len), factor).saturating_add(1 + LIST)))
}

/// The reference implementation fails like this when an argument of such a function fails.
fn internal(wanted: &str, missing: &str) -> Stop {
    let verb = if missing.is_empty() { "is *types.Err, not" } else { "*types.Err is not" };
    let subject = if missing.is_empty() { "interface conversion: ref.Val" } else { "interface conversion:" };
    Stop::Fatal(format!("internal error: {subject} {verb} {wanted}{missing}"))
}

/// Functions of Kubernetes' libraries.
fn kubernetes(
    budget: &mut Budget,
    function: &str,
    id: &str,
    args: &[Option<Value<'_>>],
    result: Option<&Value<'_>>,
) -> Result<Option<u64>, Stop> {
    let string = |index| Some(scaled(size(arg(args, index)), STRING));
    Ok(match function {
        "check" => Some(CHECK),
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
        | "reason" | "error" | "errored" => Some(1),
        "fieldSelector" | "labelSelector" if args.len() >= 2 => {
            let len = size(arg(args, 1));
            let requirements = scaled(len, 0.5).saturating_mul(LIST + STRUCT);
            Some(LIST.saturating_add(scaled(len, STRING)).saturating_add(requirements))
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
            Some(traversal(budget, arg(args, 0))?)
        }
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => string(0),
        "replace" | "split" | "ip.isCanonical" => Some(scaled(size(arg(args, 0)).saturating_mul(2), STRING)),
        "join" => Some(scaled(size(result).saturating_mul(2), STRING)),
        "find" | "findAll" if args.len() >= 2 => Some(pattern_cost(size(arg(args, 0)), size(arg(args, 1)))),
        "ip" if id == "cidr_ip" => Some(1),
        "ip" => string(0),
        "containsIP" => {
            let compared = scaled(size(arg(args, 0)).saturating_mul(2), STRING);
            let parsed = if id == "cidr_contains_ip_string" { scaled(size(arg(args, 1)), STRING) } else { 0 };
            Some(compared + parsed)
        }
        "containsCIDR" => {
            let cidr = size(arg(args, 0));
            let compared = scaled(cidr.saturating_mul(2), STRING) + scaled(cidr, STRING) + 1;
            let parsed = if id == "cidr_contains_cidr_string" { scaled(size(arg(args, 1)), STRING) } else { 0 };
            Some(compared + parsed)
        }
        "validate" => match arg(args, 0) {
            Some(Value::Format(format)) => Some(pattern_cost(size(arg(args, 1)), format.pattern)),
            _ => None,
        },
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => Some(1),
        "_==_" => match arg(args, 0) {
            Some(
                Value::Quantity(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Format(_)
                | Value::Url(_)
                | Value::Semver(_)
                | Value::Check(_),
            ) => Some(1),
            _ => None,
        },
        _ => None,
    })
}

/// The cost of looking at every part of a value.
fn traversal(budget: &mut Budget, value: Option<&Value<'_>>) -> Result<u64, Stop> {
    budget.work(1)?;
    let bytes = |len: usize| scaled_down(u64::try_from(len).unwrap_or(u64::MAX), STRING);
    Ok(match value {
        Some(Value::String(text)) => bytes(text.as_str().len()),
        Some(Value::Bytes(data)) => bytes(data.len()),
        Some(Value::List(list)) => {
            let mut cost: u64 = 0;
            for element in list.iter() {
                cost = cost.saturating_add(traversal(budget, Some(&element))?);
            }
            cost
        }
        Some(Value::Map(map)) => {
            let mut cost: u64 = 0;
            for (key, value) in map.iter() {
                cost = cost.saturating_add(traversal(budget, Some(&key))?);
                cost = cost.saturating_add(traversal(budget, Some(&value))?);
            }
            cost
        }
        _ => 1,
    })
}

/// Standard functions.
fn standard(id: &str, args: &[Option<Value<'_>>]) -> u64 {
    let of = |index| inner_size(arg(args, index));
    match id {
        "starts_with_string" | "ends_with_string" => scaled(of(1), STRING),
        "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => scaled(of(0), STRING),
        "in_list" => of(1),
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => scaled(smaller_size(arg(args, 0), arg(args, 1)), STRING),
        "add_string" | "add_bytes" => scaled(of(0).saturating_add(of(1)), STRING),
        "matches" | "matches_string" => pattern_cost(of(0), of(1)),
        "contains_string" => scaled(of(0), STRING).saturating_mul(scaled(of(1), STRING)),
        _ => 1,
    }
}
