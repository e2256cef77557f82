//! Reviews that webhooks respond to (`AdmissionReview`, `ConversionReview`): what parsing their responses has in common. Pure.

use serde_json::Value;

use crate::decode;
use crate::field::quote;
use crate::value::ValueExt as _;

/// A kind of review, in the version that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Review<'a> {
    /// `admission.k8s.io`.
    pub group: &'a str,
    /// `v1`.
    pub version: &'a str,
    /// `AdmissionReview`.
    pub kind: &'a str,
}

impl Review<'_> {
    /// Parses a response. Without a type, that of the review is assumed.
    ///
    /// # Errors
    /// The message of Go's decoder.
    pub fn parse(&self, bytes: &[u8]) -> Result<Value, String> {
        let Self { group, version, kind } = *self;
        let syntax = |error| format!("couldn't get version/kind; json parse error: {error}");
        let found = decode::find_kind(bytes).map_err(syntax)?;
        let is_ours = found.api_version.is_empty() || found.api_version.starts_with(group);
        if !(found.kind.is_empty() || found.kind == kind) || !is_ours {
            let (kind, version) = (quote(&shorten(&found.kind)), quote(&shorten(&found.api_version)));
            return Err(format!("no kind {kind} is registered for version {version}"));
        }
        if !found.api_version.is_empty() && found.api_version != format!("{group}/{version}") {
            let other = found.api_version.rsplit('/').next().unwrap_or_default();
            return Err(format!("converting ({}.{kind}) to ({version}.{kind}): unknown conversion", shorten(other)));
        }
        decode::parse_json(bytes).map(|(review, _)| review).map_err(syntax)
    }

    /// Checks that a parsed response names its type.
    ///
    /// # Errors
    /// The expected type and the type that was found.
    pub fn check_type(&self, review: &Value) -> Result<(), String> {
        let expected = format!("{}/{}, Kind={}", self.group, self.version, self.kind);
        let found = group_version_kind(review.text("apiVersion"), review.text("kind"));
        if found == expected { Ok(()) } else { Err(format!("expected webhook response of {expected}, got {found}")) }
    }
}

/// `example.com/v1, Kind=Widget`, as Go prints it.
#[must_use]
pub fn group_version_kind(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{}/{}, Kind={}", shorten(group), shorten(version), shorten(kind))
}

/// The term of Go's JSON decoder for a value of the wrong type.
#[must_use]
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Null | Value::Object(_) => "object",
    }
}

/// A text of a response as it may be used in a message: what a webhook sends can have any length.
#[must_use]
pub fn shorten(text: &str) -> String {
    const MAX: usize = 1024;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
