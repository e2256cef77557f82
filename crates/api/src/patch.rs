//! PATCH: a body and an object flow in, the patched object flows out.
//!
//! Three formats share this interface: JSON patch ([`json`]), merge patch ([`merge`]) and strategic merge patch
//! ([`strategic`]). A [`Patch`] is read once and may be applied again when a write conflicts. What comes out is only a
//! value: decoding, defaults and validation are done by the caller. When that fails, [`Patch::refuse`] makes
//! the answer, because it shows the patch (or the patched object) as kube-apiserver shows it.

mod body;
mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;
mod text;
mod unfit;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::options::FieldValidation;
use crate::schema::TypeId;
use crate::status::Status;

/// The format of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// RFC 6902: a list of operations.
    Json,
    /// RFC 7386: a partial object, null removes.
    Merge,
    /// A partial object with directives; lists merge by their keys.
    Strategic,
}

/// A patch that was read.
#[derive(Clone, Debug)]
pub struct Patch {
    kind: PatchKind,
    body: Value,
    /// Whether the body is held against its type, as kube-apiserver does unless unknown fields are to be ignored.
    checked: bool,
    strict: Vec<String>,
}

/// Why a patch could not be carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatchError {
    /// The body is not JSON.
    #[error("invalid JSON patch")]
    NotJson,
    /// The body is not a patch of this format.
    #[error("{0}")]
    Malformed(String),
    /// A JSON patch of more than [`json::MAX_OPERATIONS`] operations.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {0}", limit = json::MAX_OPERATIONS)]
    TooManyOperations(usize),
    /// The patch does not fit the object; clients do not get the reason.
    #[error("{0}")]
    Unprocessable(&'static str),
    /// A strategic merge patch of a custom resource: only types of the schema tables have merge keys.
    #[error("strategic merge patch is not supported for custom resources")]
    NotStrategic,
    /// An error for which kube-apiserver has no Status: its message, without a reason.
    #[error("{0}")]
    Raw(String),
}

impl PatchKind {
    /// The format that a `Content-Type` names; parameters do not matter.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next()? {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

// === impl Patch ===

impl Patch {
    /// Reads a body. That it is a patch of its format is only found out by [`Patch::apply`]: Kubernetes looks for the
    /// object in between.
    ///
    /// # Errors
    /// [`PatchError::NotJson`].
    pub fn parse(kind: PatchKind, body: &[u8], validation: FieldValidation) -> Result<Self, PatchError> {
        let checked = validation != FieldValidation::Ignore;
        if !checked {
            let body = serde_json::from_slice(body).map_err(|_| PatchError::NotJson)?;
            return Ok(Self { kind, body, checked, strict: Vec::new() });
        }
        let (body, strict) = body::read(body, kind == PatchKind::Json).map_err(|_| PatchError::NotJson)?;
        Ok(Self { kind, body, checked, strict })
    }

    /// What strict decoding of the body itself complains of (`duplicate field "spec.type"`): warnings, or with
    /// `fieldValidation=Strict` a reason to refuse. They come before those of the patched object.
    #[must_use]
    pub fn strict_errors(&self) -> &[String] {
        &self.strict
    }

    /// The object with the patch applied. `ty` is its type in the schema tables, if it has one there.
    ///
    /// # Errors
    /// When the body is no patch of its format, or does not fit the object.
    pub fn apply(&self, ty: impl Into<Option<TypeId>>, object: &Value) -> Result<Value, PatchError> {
        match self.kind {
            PatchKind::Json => json::apply(object, &self.body, self.checked),
            PatchKind::Merge => merge::apply(object, &self.body, self.checked),
            PatchKind::Strategic => match ty.into() {
                Some(ty) => strategic::apply(ty, object, &mut self.body.clone()),
                None => Err(PatchError::NotStrategic),
            },
        }
    }

    /// 422 because the patched object does not decode (`detail` is the reason). `object` is what the patch was applied
    /// to: the message shows the result, or the patch, so it is computed again in this rare case.
    #[must_use]
    pub fn refuse(&self, ty: impl Into<Option<TypeId>>, object: &Value, detail: &str) -> Status {
        let ty = ty.into();
        let shown = if let (PatchKind::Strategic, Some(ty)) = (self.kind, ty) {
            // kube-apiserver prints the patch after merging has removed the directives.
            let mut patch = self.body.clone();
            let _ = strategic::apply(ty, object, &mut patch);
            if patch.is_null() { "map[]".to_owned() } else { text::plain(&patch) }
        } else {
            self.apply(ty, object).map_or_else(|_| String::new(), |patched| patched.to_string())
        };
        let converted = match (self.kind, ty, self.apply(ty, object)) {
            (PatchKind::Strategic, Some(ty), Ok(patched)) => unfit::first(ty, &patched, detail),
            _ => None,
        };
        let mut errors = Errors::default();
        errors.invalid(&Path::Root("patch"), shown, converted.as_deref().unwrap_or(detail));
        Status::invalid("", "", "", &errors)
    }
}

// === impl PatchError ===

impl PatchError {
    /// The answer.
    #[must_use]
    pub fn into_status(self) -> Status {
        let words = self.to_string();
        match self {
            Self::NotJson | Self::Malformed(_) => Status::bad_request(words),
            Self::TooManyOperations(_) => {
                let message = format!("Request entity too large: {words}");
                Status { code: 413, reason: Some("RequestEntityTooLarge"), ..Status::raw(message) }
            }
            Self::Unprocessable(_) => Status::unprocessable_patch(),
            Self::NotStrategic => Status::unsupported_custom_patch_type(),
            Self::Raw(_) => Status::raw(words),
        }
    }
}

/// The error message of Go's JSON decoder for a value that does not fit its type.
pub(crate) fn mismatch(value: &Value, target: &str) -> String {
    let word = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {word} into Go {target}")
}
