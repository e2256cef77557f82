//! Checks of the spec of a TrafficPolicy: its targets, which fields are set, and values that several fields have.
//!
//! In: a spec whose shape the schema has checked. Out: field errors.

use std::time::Duration;

use serde_json::Value;

use super::super::common::{one_of, report};
use super::{access, backends};
use crate::field::{Errors, Path};
use crate::gateway_duration;
use crate::ip;
use crate::names;
use crate::quantity;
use crate::value::ValueExt as _;
use crate::view::gateway_api::GROUP;

const SPEC: Path<'static> = Path::Root("spec");

/// The kinds of targets, each with its group.
const TARGETS: &[(&str, &str)] =
    &[("GRPCRoute", GROUP), ("Gateway", GROUP), ("HTTPRoute", GROUP), ("ListenerSet", GROUP), ("Service", "")];
/// Their names.
const KINDS: &[&str] = &["GRPCRoute", "Gateway", "HTTPRoute", "ListenerSet", "Service"];
/// The most targets.
const MOST_TARGETS: usize = 16;
/// The most address ranges of a list.
const MOST_RANGES: usize = 256;
/// The longest duration.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The fields that say what holds.
pub(super) const FIELDS: &[&str] = &[
    "requestBody",
    "timeouts",
    "sourceRanges",
    "authentication",
    "rateLimits",
    "maxConcurrentRequests",
    "requireHTTPS",
    "loadBalancing",
    "outlierDetection",
    "slowStart",
    "session",
];
/// Those of them that restrict requests, which no Service can do: several routes lead to it.
const RESTRICTIONS: &[&str] =
    &["requestBody", "sourceRanges", "authentication", "rateLimits", "maxConcurrentRequests", "requireHTTPS"];

/// The group of a kind of targets.
pub(super) fn group_of(kind: &str) -> Option<&'static str> {
    TARGETS.iter().find(|(known, _)| *known == kind).map(|(_, group)| *group)
}

/// Whether a field is set: an empty list and `false` are not.
pub(super) fn sets(spec: &Value, field: &str) -> bool {
    match spec.at(field) {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

pub(super) fn validate(spec: &Value, errors: &mut Errors) {
    validate_targets(&SPEC.child("targetRefs"), spec.items("targetRefs"), errors);
    if !FIELDS.iter().any(|field| sets(spec, field)) {
        errors.required(&SPEC, &format!("at least one of {}", FIELDS.join(", ")));
    }
    if spec.items("targetRefs").iter().any(|target| target.text("kind") == "Service") {
        for field in RESTRICTIONS.iter().filter(|field| sets(spec, field)) {
            errors.forbidden(
                &SPEC.child(field),
                "may not be set when a target is a Service: attach it to the Gateway or to the routes",
            );
        }
    }
    if spec.has("requestBody") {
        validate_size(&SPEC.child("requestBody").child("maxSize"), spec.at("requestBody.maxSize"), errors);
    }
    if spec.has("timeouts") {
        validate_timeouts(&SPEC.child("timeouts"), spec.at("timeouts"), errors);
    }
    access::validate(&SPEC, spec, errors);
    backends::validate(&SPEC, spec, errors);
}

fn validate_targets(path: &Path<'_>, targets: &[Value], errors: &mut Errors) {
    if targets.is_empty() {
        errors.required(path, "at least one object of the namespace of the policy");
    }
    if targets.len() > MOST_TARGETS {
        errors.too_many(path, targets.len(), MOST_TARGETS);
    }
    let identity = |target: &Value| ["kind", "name", "sectionName"].map(|field| target.text(field).to_owned());
    for (index, target) in targets.iter().enumerate() {
        let path = path.index(index);
        let (kind, name, section) = (target.text("kind"), target.text("name"), target.text("sectionName"));
        one_of(&path.child("kind"), kind, KINDS, errors);
        if let Some(group) = group_of(kind).filter(|group| *group != target.text("group")) {
            errors.invalid(&path.child("group"), target.text("group"), &format!("must be \"{group}\" for a {kind}"));
        }
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            report(&path.child("name"), name, names::name_is_subdomain(name, false), errors);
        }
        if !section.is_empty() {
            let wrong = if kind == "Service" { names::port_name(section) } else { names::dns_subdomain(section) };
            report(&path.child("sectionName"), section, wrong, errors);
        }
        if targets.iter().take(index).any(|earlier| identity(earlier) == identity(target)) {
            errors.duplicate(&path, super::target(target));
        }
    }
}

fn validate_size(path: &Path<'_>, size: &Value, errors: &mut Errors) {
    let Some(text) = size.as_str() else { return errors.required(path, "the longest body, such as 8Mi") };
    if quantity::thousandths(text).is_none_or(|thousandths| thousandths < 1000) {
        errors.invalid(path, text, "must be at least 1");
    }
}

fn validate_timeouts(path: &Path<'_>, timeouts: &Value, errors: &mut Errors) {
    const NAMES: [&str; 3] = ["connect", "read", "send"];
    if NAMES.iter().all(|field| timeouts.text(field).is_empty()) {
        errors.required(path, "at least one of connect, read, send");
    }
    for field in NAMES.into_iter().filter(|field| !timeouts.text(field).is_empty()) {
        validate_duration(&path.child(field), timeouts.text(field), errors);
    }
}

/// A duration of the Gateway API that is longer than nothing.
pub(super) fn validate_duration(path: &Path<'_>, text: &str, errors: &mut Errors) {
    match gateway_duration::parse(text) {
        None => errors.invalid(path, text, "must be a duration such as 30s, 1h30m or 500ms"),
        Some(duration) if duration.is_zero() || duration > LONGEST => {
            errors.invalid(path, text, "must be longer than nothing and at most 24h");
        }
        Some(_) => {}
    }
}

/// A list of address ranges.
pub(super) fn validate_ranges(path: &Path<'_>, ranges: &[&str], errors: &mut Errors) {
    if ranges.len() > MOST_RANGES {
        errors.too_many(path, ranges.len(), MOST_RANGES);
    }
    for (index, range) in ranges.iter().enumerate() {
        ip::check_cidr(&path.index(index), range, &[], errors);
    }
    super::super::ippool::refuse_repeated(path, ranges, errors);
}

/// A number that must be given, between two others.
pub(super) fn validate_number(path: &Path<'_>, number: i64, (least, most): (i64, i64), errors: &mut Errors) {
    if !(least..=most).contains(&number) {
        errors.invalid(path, number, &format!("must be between {least} and {most}, inclusive"));
    }
}

/// The name of a header, a cookie or a method (`token` of RFC 9110).
pub(super) fn validate_token(path: &Path<'_>, text: &str, what: &str, errors: &mut Errors) {
    const LONGEST: usize = 128;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() {
        errors.required(path, &format!("the name of {what}"));
    } else if text.len() > LONGEST {
        errors.too_long(path, LONGEST);
    } else if !text.bytes().all(is_token) {
        errors.invalid(path, text, &format!("must be the name of {what}"));
    }
}
