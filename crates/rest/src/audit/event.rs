//! The `audit.k8s.io/v1` Event as it is written: field order and omission of empty fields as in Go's encoding of that type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::{self, append_text};
use super::level::{Level, Stage};
use crate::auth::User;

/// What components that take part in a request note about it; keys are qualified names.
pub(super) type Annotations = BTreeMap<Cow<'static, str>, String>;

/// The fields that all events of a request have in common, rendered once.
pub(super) struct Common {
    /// From `requestURI` to `user`; then `sourceIPs` and `userAgent`; then `requestReceivedTimestamp`.
    text: Vec<u8>,
    user_end: usize,
    origin_end: usize,
}

impl Common {
    pub(super) fn new(
        (uri, verb): (&str, &str),
        user: Option<&User>,
        (source_ips, user_agent): (&[IpAddr], &str),
        received: Timestamp,
    ) -> serde_json::Result<Self> {
        let mut text = Vec::with_capacity(512);
        text.extend_from_slice(b"\"requestURI\":");
        append_text(&mut text, uri);
        put_text(&mut text, "verb", verb);
        put(&mut text, "user", &user.map(UserInfo::from).unwrap_or_default())?;
        let user_end = text.len();
        if !source_ips.is_empty() {
            put(&mut text, "sourceIPs", &source_ips)?;
        }
        if !user_agent.is_empty() {
            put_text(&mut text, "userAgent", user_agent);
        }
        let origin_end = text.len();
        put_time(&mut text, "requestReceivedTimestamp", received);
        Ok(Self { text, user_end, origin_end })
    }

    fn parts(&self) -> [&[u8]; 3] {
        let part = |from: usize, to: usize| self.text.get(from..to).unwrap_or_default();
        [part(0, self.user_end), part(self.user_end, self.origin_end), part(self.origin_end, self.text.len())]
    }
}

/// An event.
pub(super) struct Event<'a> {
    pub(super) level: Level,
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    pub(super) common: &'a Common,
    /// As whom the request acts, and the mode of constrained impersonation that allowed it.
    pub(super) impersonated: Option<(&'a User, Option<&'static str>)>,
    pub(super) object_ref: Option<ObjectReference<'a>>,
    pub(super) response_status: Option<ResponseStatus>,
    pub(super) request_object: Option<Box<RawValue>>,
    pub(super) response_object: Option<Box<RawValue>>,
    pub(super) stage_timestamp: Timestamp,
    pub(super) annotations: &'a Annotations,
}

impl<'a> Event<'a> {
    /// An event with everything that every event has.
    pub(super) fn new(level: Level, audit_id: &'a str, stage: Stage, common: &'a Common, at: Timestamp) -> Self {
        static NONE: Annotations = BTreeMap::new();
        Self {
            level,
            audit_id,
            stage,
            common,
            impersonated: None,
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            stage_timestamp: at,
            annotations: &NONE,
        }
    }

    /// Appends the event as one line, with its line feed.
    pub(super) fn append_line(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let [request, origin, received] = self.common.parts();
        out.extend_from_slice(b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\"");
        put_text(out, "level", self.level.name());
        put_text(out, "auditID", self.audit_id);
        put_text(out, "stage", self.stage.name());
        out.push(b',');
        out.extend_from_slice(request);
        if let Some((user, mode)) = self.impersonated {
            put(out, "impersonatedUser", &UserInfo::from(user))?;
            if let Some(mode) = mode {
                let impersonation_constraint = format!("impersonate:{mode}");
                put(out, "authenticationMetadata", &AuthenticationMetadata { impersonation_constraint })?;
            }
        }
        out.extend_from_slice(origin);
        if let Some(object) = &self.object_ref {
            object.append(out);
        }
        match &self.response_status {
            Some(status) if status.is_code() => {
                let _ = write!(out, ",\"responseStatus\":{{\"metadata\":{{}},\"code\":{}}}", status.code);
            }
            Some(status) => put(out, "responseStatus", status)?,
            None => {}
        }
        for (name, object) in [("requestObject", &self.request_object), ("responseObject", &self.response_object)] {
            if let Some(object) = object {
                put(out, name, object)?;
            }
        }
        out.extend_from_slice(received);
        put_time(out, "stageTimestamp", self.stage_timestamp);
        append_annotations(out, self.annotations);
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}

fn append_annotations(out: &mut Vec<u8>, annotations: &Annotations) {
    let mut separator: &[u8] = b",\"annotations\":{";
    for (key, value) in annotations {
        out.extend_from_slice(separator);
        append_text(out, key);
        out.push(b':');
        append_text(out, value);
        separator = b",";
    }
    if !annotations.is_empty() {
        out.push(b'}');
    }
}

/// Appends a member that follows another.
fn put(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
    put_name(out, name);
    json::append(out, value)
}

fn put_text(out: &mut Vec<u8>, name: &str, value: &str) {
    put_name(out, name);
    append_text(out, value);
}

/// RFC 3339 in UTC with six digits after the point.
fn put_time(out: &mut Vec<u8>, name: &str, time: Timestamp) {
    put_name(out, name);
    // Writing to memory does not fail.
    let _ = write!(out, "\"{time:.6}\"");
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A user; without any field for a request that could not be authenticated.
#[derive(Serialize, Default)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl<'a> From<&'a User> for UserInfo<'a> {
    fn from(user: &'a User) -> Self {
        let extra = (!user.extra.is_empty()).then_some(&user.extra);
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra }
    }
}

/// How the request was authenticated.
#[derive(Serialize)]
struct AuthenticationMetadata {
    /// The verb of the mode of constrained impersonation that allowed it.
    #[serde(rename = "impersonationConstraint")]
    impersonation_constraint: String,
}

/// The object that a request is about.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct ObjectReference<'a> {
    pub(super) resource: Cow<'a, str>,
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) api_group: Cow<'a, str>,
    pub(super) api_version: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) subresource: Cow<'a, str>,
}

impl ObjectReference<'_> {
    /// The same, without a copy of its text.
    pub(super) fn borrowed(&self) -> ObjectReference<'_> {
        let Self { resource, namespace, name, uid, api_group, api_version, resource_version, subresource } = self;
        ObjectReference {
            resource: (&**resource).into(),
            namespace: (&**namespace).into(),
            name: (&**name).into(),
            uid: (&**uid).into(),
            api_group: (&**api_group).into(),
            api_version: (&**api_version).into(),
            resource_version: (&**resource_version).into(),
            subresource: (&**subresource).into(),
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        let Self { resource, namespace, name, uid, api_group, api_version, resource_version, subresource } = self;
        let members = [
            ("resource", resource),
            ("namespace", namespace),
            ("name", name),
            ("uid", uid),
            ("apiGroup", api_group),
            ("apiVersion", api_version),
            ("resourceVersion", resource_version),
            ("subresource", subresource),
        ];
        put_name(out, "objectRef");
        let begin = out.len();
        for (name, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            put_text(out, name, value);
        }
        // The comma before the first member is the place of the brace.
        match out.get_mut(begin) {
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
    }
}

/// The bounded part of a `Status`. Kubernetes writes its `metadata` always, and always empty.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub(super) struct ResponseStatus {
    #[serde(skip_deserializing)]
    pub(super) metadata: Empty,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<StatusDetails>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) code: u16,
}

impl ResponseStatus {
    /// Whether it has nothing but its code.
    fn is_code(&self) -> bool {
        let Self { metadata: Empty {}, status, message, reason, details, code } = self;
        status.is_empty() && message.is_empty() && reason.is_empty() && details.is_none() && *code > 0
    }
}

#[derive(Clone, Serialize, PartialEq, Eq, Debug, Default)]
pub(super) struct Empty {}

/// The `details` of a Status.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub(super) struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<StatusCause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    retry_after_seconds: u32,
}

/// One of the `causes` of a Status.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug, Default)]
#[serde(default)]
struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

fn is_zero<T: PartialEq + Default>(number: &T) -> bool {
    *number == T::default()
}

#[cfg(test)]
mod tests;
