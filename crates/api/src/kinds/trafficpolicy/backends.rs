//! Checks of the fields that decide which endpoint gets a request.

use serde_json::Value;

use super::super::common::{one_of, report};
use super::spec::{validate_duration, validate_number, validate_token};
use crate::field::{Errors, Path};
use crate::gateway_duration;
use crate::names;
use crate::value::ValueExt as _;

const BALANCING: &[&str] = &["ConsistentHash", "LeastRequest", "Random", "RoundRobin"];
const HASHES: &[&str] = &["Cookie", "Header", "Path", "QueryParam", "SourceIP"];
/// Those of them that need a name.
const NAMED_HASHES: &[&str] = &["Cookie", "Header", "QueryParam"];
const SITES: &[&str] = &["Lax", "None", "Strict"];

pub(super) fn validate(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    if spec.has("loadBalancing") {
        validate_balancing(&path.child("loadBalancing"), spec.at("loadBalancing"), errors);
    }
    if spec.has("outlierDetection") {
        validate_detection(&path.child("outlierDetection"), spec.at("outlierDetection"), errors);
    }
    if spec.has("slowStart") {
        let path = path.child("slowStart");
        match spec.text("slowStart.window") {
            "" => errors.required(&path.child("window"), "how long a new endpoint gets fewer requests"),
            window => validate_duration(&path.child("window"), window, errors),
        }
    }
    if spec.has("session") {
        validate_cookie(&path.child("session").child("cookie"), spec.at("session.cookie"), errors);
    }
}

fn validate_balancing(path: &Path<'_>, balancing: &Value, errors: &mut Errors) {
    let kind = balancing.text("type");
    one_of(&path.child("type"), kind, BALANCING, errors);
    let path = path.child("consistentHash");
    match (kind == "ConsistentHash", balancing.has("consistentHash")) {
        (true, false) => errors.required(&path, "what the endpoint depends on"),
        (false, true) => errors.forbidden(&path, "may be set only when type is ConsistentHash"),
        (false, false) => {}
        (true, true) => {
            let (kind, name) = (balancing.text("consistentHash.type"), balancing.text("consistentHash.name"));
            one_of(&path.child("type"), kind, HASHES, errors);
            if kind == "Header" || kind == "Cookie" {
                validate_token(&path.child("name"), name, "a header or a cookie", errors);
            } else if kind == "QueryParam"
                && (name.is_empty() || name.len() > 256 || name.chars().any(char::is_control))
            {
                errors.invalid(&path.child("name"), name, "must be the name of a parameter, of at most 256 bytes");
            } else if !NAMED_HASHES.contains(&kind) && !name.is_empty() {
                errors.forbidden(
                    &path.child("name"),
                    &format!("may be set only when type is one of {}", NAMED_HASHES.join(", ")),
                );
            }
        }
    }
}

fn validate_detection(path: &Path<'_>, detection: &Value, errors: &mut Errors) {
    validate_number(&path.child("consecutiveErrors"), detection.int("consecutiveErrors"), (1, 1000), errors);
    validate_number(&path.child("maxEjectionPercent"), detection.int("maxEjectionPercent"), (1, 100), errors);
    let (base, most) = (detection.text("baseEjectionTime"), detection.text("maxEjectionTime"));
    validate_duration(&path.child("baseEjectionTime"), base, errors);
    validate_duration(&path.child("maxEjectionTime"), most, errors);
    if let (Some(shortest), Some(longest)) = (gateway_duration::parse(base), gateway_duration::parse(most))
        && shortest > longest
    {
        errors.invalid(&path.child("maxEjectionTime"), most, "must not be shorter than baseEjectionTime");
    }
}

fn validate_cookie(path: &Path<'_>, cookie: &Value, errors: &mut Errors) {
    validate_token(&path.child("name"), cookie.text("name"), "a cookie", errors);
    let (route, domain, age) = (cookie.text("path"), cookie.text("domain"), cookie.text("maxAge"));
    let is_path = route.starts_with('/') && route.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b';');
    if !route.is_empty() && (!is_path || route.len() > 1024) {
        errors.invalid(&path.child("path"), route, "must be a path of at most 1024 bytes: printable ASCII without ;");
    }
    if !domain.is_empty() {
        report(&path.child("domain"), domain, names::dns_subdomain(domain), errors);
    }
    if !age.is_empty() && gateway_duration::parse(age).is_none_or(|age| age.as_secs() == 0) {
        errors.invalid(&path.child("maxAge"), age, "must be a duration of at least 1s, such as 1h");
    }
    let site = cookie.text("sameSite");
    if !site.is_empty() {
        one_of(&path.child("sameSite"), site, SITES, errors);
    }
    if site == "None" && !cookie.flag("secure") {
        errors.invalid(
            &path.child("sameSite"),
            site,
            "may be None only when secure is true: browsers refuse it otherwise",
        );
    }
}
