//! Calls of functions of Kubernetes' libraries and of the extensions of CEL; without the cost of their arguments.

use super::calls::{Estimated, PATTERN, STRING, literal_int, pattern_cost};
use super::{Estimator, ITEMS, LIST, Operand, Range, STRUCT};
use crate::syntax::ast::op;
use crate::types::Type;

/// Cost of one authorization check.
const CHECK: u64 = 350_000;
/// The longest pattern behind a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// The longest name of a named format.
const FORMAT_NAME: u64 = 64;
/// Bytes of an IP address.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// The sets and the lists extension.
pub(super) fn extension(
    estimator: &Estimator<'_>,
    id: &str,
    target: Option<&Operand<'_>>,
    args: &[Operand<'_>],
) -> Option<Estimated> {
    let number = |operand: &Operand<'_>, otherwise: u64| {
        literal_int(operand).map_or(otherwise, |value| u64::try_from(value).unwrap_or(0))
    };
    Some(match (id, target, args) {
        ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", _, [left, right]) => {
            let factor = if id == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            let product = estimator.size_of(left).multiply(estimator.size_of(right));
            (product.scale(factor).add(Range::fixed(1)), None)
        }
        ("list_slice", Some(list), [start, end]) => {
            let (start, end) = (number(start, 0), number(end, estimator.size_of(list).max));
            allocating(1.0, Range::fixed(end.wrapping_sub(start)))
        }
        ("lists_range", None, [count]) => allocating(1.0, Range::fixed(number(count, u64::MAX))),
        ("list_reverse", Some(list), []) | ("list_flatten", Some(list), []) => allocating(1.0, estimator.size_of(list)),
        ("list_flatten_int", Some(list), [depth]) => {
            allocating(crate::value::number::from_uint(number(depth, u64::MAX)), estimator.size_of(list))
        }
        ("list_distinct", Some(list), []) => square(2.0, estimator.size_of(list)),
        (_, Some(list), []) if id.ends_with("_sort") => square(sort_factor(id), estimator.size_of(list)),
        (_, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => {
            square(sort_factor(id), estimator.size_of(keys))
        }
        _ => return None,
    })
}

fn sort_factor(id: &str) -> f64 {
    if id.starts_with("list_string_") || id.starts_with("list_bytes_") { 2.0 + STRING } else { 2.0 }
}

fn square(factor: f64, size: Range) -> Estimated {
    allocating(factor, size.multiply(size))
}

/// A call that makes a list.
fn allocating(factor: f64, size: Range) -> Estimated {
    (size.scale(factor).add(Range::fixed(1 + LIST)), Some(size))
}

/// Functions of Kubernetes' libraries.
pub(super) fn kubernetes(
    estimator: &Estimator<'_>,
    function: &str,
    id: &str,
    target: Option<&Operand<'_>>,
    args: &[Operand<'_>],
) -> Option<Estimated> {
    let of = |operand: &Operand<'_>| estimator.size_of(operand);
    let plain = |cost: Range| Some((cost, None));
    match (function, target, args) {
        ("check", ..) => plain(Range::fixed(CHECK)),
        ("fieldSelector" | "labelSelector", _, [selector]) => {
            let length = of(selector);
            let requirements = length.scale(0.5).scale(crate::value::number::from_uint(LIST + STRUCT));
            plain(Range::fixed(LIST).add(length.scale(STRING)).add(requirements))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes", Some(target), _) => {
            plain(traversal(estimator, function, target))
        }
        ("url", _, [text]) => Some((of(text).scale(STRING), Some(of(text)))),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
            Some((of(text).scale(STRING), Some(of(text))))
        }
        ("replace", Some(text), [from, to, ..]) => {
            Some((of(text).scale(2.0 * STRING), Some(replaced(of(text), of(from), of(to)))))
        }
        ("split", Some(text), _) => {
            let limit = args.get(1).and_then(literal_int).map(i64::cast_unsigned);
            let size = Range { min: 0, max: limit.unwrap_or(of(text).max) };
            Some((of(text).scale(2.0 * STRING), Some(size)))
        }
        ("join", Some(list), _) => {
            let size = joined(estimator, list, args.first());
            Some((size.scale(STRING), Some(size)))
        }
        ("find" | "findAll", Some(text), [pattern, ..]) => {
            Some((pattern_cost(of(text), of(pattern)), Some(Range { min: 0, max: of(text).max })))
        }
        ("ip", ..) if id == "cidr_ip" => plain(Range::fixed(1)),
        ("ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver", _, [text, ..]) => {
            plain(of(text).scale(STRING))
        }
        ("ip.isCanonical", _, [text, ..]) => plain(of(text).scale(2.0 * STRING)),
        ("containsIP" | "containsCIDR", _, [other, ..]) => {
            let mut cost = ADDRESS.add(ADDRESS).scale(STRING);
            if function == "containsCIDR" {
                cost = cost.add(ADDRESS.scale(STRING)).add(Range::fixed(1));
            }
            if matches!(id, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                cost = cost.add(of(other).scale(STRING));
            }
            plain(cost)
        }
        ("validate", _, [text, ..]) => plain(of(text).scale(STRING).scale(FORMAT_PATTERN * PATTERN)),
        (op::EQUALS, _, [left, right]) if left.kind == right.kind => equality(right),
        _ => is_nominal(function).then_some((Range::fixed(1), None)),
    }
}

/// Accessors, whose cost does not depend on anything.
fn is_nominal(function: &str) -> bool {
    matches!(
        function,
        "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
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
            | "getQuery"
    )
}

/// Comparing two values of a type of Kubernetes.
fn equality(right: &Operand<'_>) -> Option<Estimated> {
    let (Type::Opaque(name) | Type::Object(name)) = &right.kind else { return None };
    let cost = match &**name {
        "kubernetes.NamedFormat" => Range { min: 1, max: FORMAT_NAME }.scale(STRING),
        "kubernetes.URL" => Range { min: 1, max: right.size.map_or(1, |size| size.max) }.scale(STRING),
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Range::fixed(1),
        name if name.starts_with("kubernetes.authorization.") => Range::fixed(1),
        _ => return None,
    };
    Some((cost, None))
}

/// The element of a list, as far as its type and its place in the schema are known.
fn element<'e>(list: &Operand<'e>) -> Option<Operand<'e>> {
    let kind = (*list.kind.params().first()?).clone();
    let mut path = list.path.clone();
    if !path.is_empty() {
        path.push(ITEMS);
    }
    Some(Operand { expr: None, path, kind, size: None })
}

/// Looking at every element of a list, or at every character of a string.
fn traversal(estimator: &Estimator<'_>, function: &str, target: &Operand<'_>) -> Range {
    let size = estimator.size_of(target);
    match element(target) {
        Some(element) => {
            let mut cost = Range::fixed(1);
            if matches!(element.kind, Type::String | Type::Bytes) {
                cost = cost.add(estimator.size_of(&element).scale(STRING));
            }
            size.multiply(cost)
        }
        None if function == "includes" => size,
        None => size.scale(STRING),
    }
}

/// The size of what `join` makes.
fn joined(estimator: &Estimator<'_>, list: &Operand<'_>, separator: Option<&Operand<'_>>) -> Range {
    let count = estimator.size_of(list);
    let text = element(list).map_or(Range::fixed(0), |element| count.multiply(estimator.size_of(&element)));
    separator.map_or(text, |separator| {
        let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
        text.add(estimator.size_of(separator).multiply(gaps))
    })
}

/// The size of a string in which parts are replaced.
fn replaced(text: Range, from: Range, to: Range) -> Range {
    let mut count = Range::fixed(0);
    let mut kept = Range::fixed(0);
    if from.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = parts(text.max, from.min);
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = parts(text.min, from.max);
    }
    count.multiply(to).add(kept)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are computed in floating point as the reference does, and conversions saturate"
)]
fn parts(size: u64, part: u64) -> u64 {
    (crate::value::number::from_uint(size) / crate::value::number::from_uint(part)).ceil() as u64
}
