//! The `audit.k8s.io/v1` Event as it is written: field order and omission of empty fields as in Go's encoding of that type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::level::{Level, Stage};
use crate::auth::User;

/// What components that take part in a request note about it; keys are qualified names.
pub(super) type Annotations = BTreeMap<Cow<'static, str>, String>;

/// An event.
#[derive(Serialize)]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: &'static str,
    #[serde(serialize_with = "level_name")]
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    #[serde(serialize_with = "stage_name")]
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: UserInfo<'a>,
    #[serde(rename = "impersonatedUser", skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "authenticationMetadata", skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    pub(super) source_ips: &'a [IpAddr],
    #[serde(rename = "userAgent", skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(rename = "objectRef", skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference<'a>>,
    #[serde(rename = "responseStatus", skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(rename = "requestObject", skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Box<RawValue>>,
    #[serde(rename = "responseObject", skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Box<RawValue>>,
    #[serde(rename = "requestReceivedTimestamp", serialize_with = "micro_time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(rename = "stageTimestamp", serialize_with = "micro_time")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a Annotations,
}

impl<'a> Event<'a> {
    /// An event with everything that every event has.
    pub(super) fn new(level: Level, audit_id: &'a str, stage: Stage, received: Timestamp, at: Timestamp) -> Self {
        static NONE: Annotations = BTreeMap::new();
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id,
            stage,
            request_uri: "",
            verb: "",
            user: UserInfo::default(),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: &[],
            user_agent: "",
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: at,
            annotations: &NONE,
        }
    }
}

/// A user; without any field for a request that could not be authenticated.
#[derive(Serialize, Default)]
pub(super) struct UserInfo<'a> {
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
pub(super) struct AuthenticationMetadata {
    /// The verb of the mode of constrained impersonation that allowed it.
    #[serde(rename = "impersonationConstraint")]
    pub(super) impersonation_constraint: String,
}

/// The object that a request is about.
#[derive(Serialize, PartialEq, Eq, Debug, Default)]
pub(super) struct ObjectReference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) resource: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) uid: Cow<'a, str>,
    #[serde(rename = "apiGroup", skip_serializing_if = "str::is_empty")]
    pub(super) api_group: Cow<'a, str>,
    #[serde(rename = "apiVersion", skip_serializing_if = "str::is_empty")]
    pub(super) api_version: Cow<'a, str>,
    #[serde(rename = "resourceVersion", skip_serializing_if = "str::is_empty")]
    pub(super) resource_version: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
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

fn level_name<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.name())
}

fn stage_name<S: Serializer>(stage: &Stage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(stage.name())
}

/// RFC 3339 in UTC with six digits after the point.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

#[cfg(test)]
mod tests;
