//! What a request that fails is answered with: a Kubernetes `Status`.
//!
//! In: error conditions (not found, conflict, field errors …). Out: code, reason, message and details with the exact
//! messages clients match on. This is the only error type that reaches the wire; everything else is mapped to it
//! once.

use serde_json::{Map, Value, json};

use crate::field::{Errors, FieldError};

/// A failure, ready to be serialised.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason; some failures of kube-apiserver have none.
    pub reason: Option<&'static str>,
    /// The message.
    pub message: String,
    /// `details`, when there are any; an empty object is not the same as none.
    pub details: Option<Value>,
    /// A continue token with which an expired list may go on.
    pub continue_token: Option<String>,
}

/// What a request is about: enough to name it in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource<'a> {
    /// The API group, empty for core.
    pub group: &'a str,
    /// The plural (`services`).
    pub plural: &'a str,
    /// The kind (`Service`).
    pub kind: &'a str,
}

impl Resource<'_> {
    /// `services` or `endpointslices.discovery.k8s.io`.
    #[must_use]
    pub fn plural_group(&self) -> String {
        with_group(self.plural, self.group)
    }

    /// `Service` or `EndpointSlice.discovery.k8s.io`.
    #[must_use]
    pub fn kind_group(&self) -> String {
        with_group(self.kind, self.group)
    }
}

fn with_group(word: &str, group: &str) -> String {
    if group.is_empty() { word.to_owned() } else { format!("{word}.{group}") }
}

fn causes(errors: &Errors) -> Vec<Value> {
    let cause = |error: &FieldError| json!({"reason": error.reason, "message": error.body, "field": error.field});
    errors.0.iter().map(cause).collect()
}

fn details(name: &str, group: &str, kind: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, text) in [("name", name), ("group", group), ("kind", kind)] {
        if !text.is_empty() {
            out.insert(key.to_owned(), text.into());
        }
    }
    out
}

impl Status {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason: Some(reason), message, details: None, continue_token: None }
    }

    fn about(mut self, resource: Resource<'_>, name: &str) -> Self {
        self.details = Some(Value::Object(details(name, resource.group, resource.plural)));
        self
    }

    fn empty_details(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    /// Adds a cause to the details.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = Map::new();
        for (key, text) in [("reason", reason), ("message", message), ("field", field)] {
            if !text.is_empty() {
                cause.insert(key.to_owned(), text.into());
            }
        }
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(causes) = details.get_mut("causes").and_then(Value::as_array_mut) {
            causes.push(Value::Object(cause));
        } else if let Some(map) = details.as_object_mut() {
            map.insert("causes".to_owned(), json!([cause]));
        }
        self
    }

    /// Sets the seconds after which the client should retry (`Retry-After`).
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Some(map) = self.details.get_or_insert_with(|| json!({})).as_object_mut() {
            map.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        self
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized".to_owned())
    }

    /// 403 on a resource.
    #[must_use]
    pub fn forbidden(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.plural_group())
        } else {
            format!("{} \"{name}\" is forbidden: {why}", resource.plural_group())
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 404 of an object.
    #[must_use]
    pub fn not_found(resource: Resource<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.plural_group())).about(resource, name)
    }

    /// 404 of a path inside a known group.
    #[must_use]
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource".to_owned()).empty_details()
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::new(405, "MethodNotAllowed", message).empty_details()
    }

    /// 406, with this message.
    #[must_use]
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message.into())
    }

    /// 406 when no served type was named.
    #[must_use]
    pub fn nothing_acceptable(available: &str) -> Self {
        Self::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {available}")).empty_details()
    }

    /// 409 on create.
    #[must_use]
    pub fn already_exists(resource: Resource<'_>, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.plural_group()))
            .about(resource, name)
    }

    /// 409 on update.
    #[must_use]
    pub fn conflict(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.plural_group());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409 because the object is not the one that was read.
    #[must_use]
    pub fn modified(resource: Resource<'_>, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of a server-side apply, without details on the object.
    #[must_use]
    pub fn apply_conflict(message: String) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 410 of a resource version that has been forgotten.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into())
    }

    /// 413.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415 of a body in an unknown format.
    #[must_use]
    pub fn unsupported_media_type() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Self::new(415, "UnsupportedMediaType", message.to_owned())
    }

    /// 415 of a patch in an unknown format.
    #[must_use]
    pub fn unsupported_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned()).empty_details()
    }

    /// 415 for a patch of a custom resource in another format.
    #[must_use]
    pub fn unsupported_custom_patch_type() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        Self::new(415, "UnsupportedMediaType", message.to_owned())
    }

    /// 405 for a verb that a custom resource does not have.
    #[must_use]
    pub fn verb_not_supported(verb: &str, resource: Resource<'_>) -> Self {
        let Resource { group, plural, .. } = resource;
        let message = format!("{verb} is not supported on resources of kind \"{}\"", with_group(plural, group));
        let mut status = Self::new(405, "MethodNotAllowed", message);
        status.details = Some(Value::Object(details("", group, plural)));
        status
    }

    /// 422 with field errors; `kind` as in `Service` or `EndpointSlice.discovery.k8s.io`.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> Self {
        let mut causes = causes(errors);
        let mut seen: Vec<Value> = Vec::with_capacity(causes.len());
        causes.retain(|cause| {
            let is_new = !seen.contains(cause);
            seen.push(cause.clone());
            is_new
        });
        Self::with_causes(group, kind, name, errors, causes)
    }

    /// 422 with the field errors of a custom resource. An error that was found twice is two causes there.
    #[must_use]
    pub fn invalid_custom(group: &str, kind: &str, name: &str, errors: &Errors) -> Self {
        Self::with_causes(group, kind, name, errors, causes(errors))
    }

    fn with_causes(group: &str, kind: &str, name: &str, errors: &Errors, causes: Vec<Value>) -> Self {
        let message = format!("{} \"{name}\" is invalid: {}", with_group(kind, group), errors.summary());
        let mut map = details(name, group, kind);
        map.insert("causes".to_owned(), causes.into());
        Self { details: Some(Value::Object(map)), ..Self::new(422, "Invalid", message) }
    }

    /// 422 of a patch that could not be carried out.
    #[must_use]
    pub fn unprocessable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self::new(422, "Invalid", message).empty_details()
    }

    /// 429.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message.into()).retry_after(1)
    }

    /// 500 with the usual prefix.
    #[must_use]
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {error}")).with_cause(
            "",
            &error.to_string(),
            "",
        )
    }

    /// 500 as kube-apiserver returns for an error that has no Status: the raw message, no reason.
    #[must_use]
    pub fn raw(message: impl Into<String>) -> Self {
        Self { code: 500, reason: None, message: message.into(), details: None, continue_token: None }
    }

    /// 503.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message.into())
    }

    /// 504 of a resource version that has not happened yet.
    #[must_use]
    pub fn future_revision(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message).retry_after(1).with_cause(
            "ResourceVersionTooLarge",
            "Too large resource version",
            "",
        )
    }

    /// 504 of a request that took too long.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message.into())
    }

    /// The object on the wire.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), token.as_str().into());
        }
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(reason) = self.reason {
            out["reason"] = reason.into();
        }
        if let Some(details) = &self.details {
            out["details"] = details.clone();
        }
        out
    }
}
