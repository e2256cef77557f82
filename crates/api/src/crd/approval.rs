//! Groups of the Kubernetes project (`*.k8s.io`, `*.kubernetes.io`): definitions there name their approval.

use serde_json::Value;

use super::condition::{API_APPROVED, Condition};
use crate::dynamic_admission::url;
use crate::field::{Errors, Path, quote};
use crate::value::ValueExt as _;

/// The annotation with the URL of the approval, or with the reason why there is none.
pub const ANNOTATION: &str = "api-approved.kubernetes.io";

const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The value of the annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

/// Whether definitions of a group need an approval.
#[must_use]
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn state(definition: &Value) -> (State, String) {
    let text = annotation(definition);
    let name = quote(ANNOTATION);
    let is_url = || {
        let parsed = url::parse(text).ok().filter(|_| text.starts_with('/') || text.contains("://"));
        parsed.is_some_and(|url| !url.scheme.is_empty() && !url.host.is_empty())
    };
    if text.is_empty() {
        (State::Missing, format!("protected groups must have approval annotation {name}, {SEE}"))
    } else if text.starts_with("unapproved") {
        (State::Bypassed, format!("not approved: {}", quote(text)))
    } else if is_url() {
        (State::Approved, format!("approved in {text}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation {name} with either a URL or a reason starting with \
             \"unapproved\", {SEE}"
        );
        (State::Invalid, why)
    }
}

fn annotation(definition: &Value) -> &str {
    let annotations = definition.at("metadata.annotations");
    annotations.get(ANNOTATION).and_then(Value::as_str).unwrap_or_default()
}

/// Checks the annotation of a definition in a protected group. One that was wrong before may stay so.
pub fn validate(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    if !is_protected(definition.text("spec.group")) {
        return;
    }
    let (now, why) = state(definition);
    if old.is_some_and(|old| state(old).0 == now) {
        return;
    }
    let annotations = Path::Root("metadata.annotations");
    match now {
        State::Invalid => errors.invalid(&annotations.key(ANNOTATION), annotation(definition), &why),
        State::Missing => errors.required(&annotations.key(ANNOTATION), &why),
        State::Approved | State::Bypassed => {}
    }
}

/// The condition of a definition in a protected group.
#[must_use]
pub fn condition(definition: &Value) -> Option<Condition> {
    if !is_protected(definition.text("spec.group")) {
        return None;
    }
    let (state, message) = state(definition);
    let (status, reason) = match state {
        State::Invalid => ("False", "InvalidAnnotation"),
        State::Missing => ("False", "MissingAnnotation"),
        State::Approved => ("True", "ApprovedAnnotation"),
        State::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    Some(Condition { kind: API_APPROVED, status, reason, message })
}
