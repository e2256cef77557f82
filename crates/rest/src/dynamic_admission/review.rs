//! AdmissionReviews: encoding requests, and parsing responses. Pure.
//!
//! In: a request, later the bytes of the response. Out: the review as JSON, later an [`Answer`], or an error with the message of
//! kube-apiserver. Versions `v1` and `v1beta1` differ in how strictly a response is checked.

use api::dynamic_admission::request::{Form, Request};
use api::field::quote;
use api::review::{Review, json_type};
use api::status::Status;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The response of a webhook.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    /// The Status of a refusal, or null.
    pub(super) result: Value,
    /// A JSON patch; empty without one.
    pub(super) patch: Vec<u8>,
    /// The type of the patch; empty without one.
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

/// Why a response is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Malformed {
    /// It is not a review.
    Unreadable(String),
    /// It does not match the review that was sent.
    Invalid(String),
}

/// The review of a request, in the form of the matching rule.
pub(super) fn request(request: &Request<'_>, form: &Form, uid: &str, version: &str) -> Value {
    let (object, old_object) = request.objects(form);
    let mut described = request.describe(form);
    described.put("uid", uid);
    described.put("object", object);
    described.put("oldObject", old_object);
    json!({"kind": KIND, "apiVersion": format!("{GROUP}/{version}"), "request": described})
}

/// Parses the response to the review of a uid and version.
pub(super) fn read(bytes: &[u8], uid: &str, version: &str, mutating: bool) -> Result<Answer, Malformed> {
    let sent = Review { group: GROUP, version, kind: KIND };
    let review = sent.parse(bytes).map_err(Malformed::Unreadable)?;
    let response = review.at("response");
    if response.is_null() {
        return Err(Malformed::Invalid("webhook response was absent".to_owned()));
    }
    let mut answer = fields(response).map_err(Malformed::Unreadable)?;
    if version == "v1" {
        verify(sent, &review, &answer, uid, mutating).map_err(Malformed::Invalid)?;
    } else if !mutating {
        (answer.patch, answer.patch_type) = Default::default();
    } else if !answer.patch.is_empty() {
        "JSONPatch".clone_into(&mut answer.patch_type);
    }
    Ok(answer)
}

/// The fields of a response, with type checks.
fn fields(response: &Value) -> Result<Answer, String> {
    let wrong = |field: &str, target: &str| {
        let word = json_type(response.at(field));
        format!(
            "json: cannot unmarshal {word} into Go struct field AdmissionResponse.response.{field} of type {target}"
        )
    };
    let text = |field: &str| match response.at(field) {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text.as_str()),
        _ => Err(wrong(field, "string")),
    };
    let allowed = match response.at("allowed") {
        Value::Null => false,
        Value::Bool(allowed) => *allowed,
        _ => return Err(wrong("allowed", "bool")),
    };
    let result = response.at("status");
    if !result.is_null() && !result.is_object() {
        return Err(wrong("status", "v1.Status"));
    }
    let texts = |value: &Value| value.as_str().map(str::to_owned);
    let warnings = match response.at("warnings") {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => list.iter().map(texts).collect(),
        _ => None,
    };
    let annotations = match response.at("auditAnnotations") {
        Value::Null => Some(Vec::new()),
        Value::Object(map) => map.iter().map(|(key, value)| Some((key.clone(), texts(value)?))).collect(),
        _ => None,
    };
    Ok(Answer {
        allowed,
        result: result.clone(),
        patch: BASE64_STANDARD.decode(text("patch")?).map_err(|error| format!("illegal base64 data: {error}"))?,
        patch_type: text("patchType")?.to_owned(),
        warnings: warnings.ok_or_else(|| wrong("warnings", "[]string"))?,
        annotations: annotations.ok_or_else(|| wrong("auditAnnotations", "map[string]string"))?,
    })
}

/// Checks a response against the review that was sent.
fn verify(sent: Review<'_>, review: &Value, answer: &Answer, uid: &str, mutating: bool) -> Result<(), String> {
    let found = review.text("response.uid");
    if found != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(found)));
    }
    sent.check_type(review)?;
    let (has_patch, has_type) = (!answer.patch.is_empty(), review.has("response.patchType"));
    let why = match (mutating, has_patch, has_type) {
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, true) => "validating webhook may not return response.patchType",
        (true, true, false) => "webhook returned response.patch but not response.patchType",
        (true, false, true) => "webhook returned response.patchType but not response.patch",
        (true, true, true) if answer.patch_type.is_empty() => "webhook returned invalid response.patchType of \"\"",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// The refusal of a webhook.
pub(super) fn denied(webhook: &str, result: &Value) -> Status {
    let (message, reason) = (result.text("message"), result.text("reason"));
    let by = format!("admission webhook {} denied the request", quote(webhook));
    let message = match (message, reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = match result.int("code") {
        ..400 => 400,
        code => u16::try_from(code).ok().filter(|code| *code < 600).unwrap_or(500),
    };
    let details = Some(result.at("details").clone()).filter(Value::is_object);
    Status { code, reason: REASONS.iter().copied().find(|known| *known == reason), details, ..Status::raw(message) }
}

/// The valid reasons of a Status.
const REASONS: &[&str] = &[
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

#[cfg(test)]
mod tests;
