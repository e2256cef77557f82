//! What the request path hands to the writer: one [`Entry`] for each event, rendered to a line in the writer's thread.
//!
//! Events of one request share its [`Request`]. Nothing here is copied from a body: bytes are reference counted.

use std::sync::Arc;

use http::{HeaderValue, Uri};
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::event::{Annotations, AuthenticationMetadata, Event, ObjectReference, ResponseStatus};
use super::json;
use super::level::Stage;
use super::objects::{Metadata, RequestBody, Response};
use super::policy::Verdict;
use crate::auth::User;

/// A longer `User-Agent` is truncated to this many bytes.
const MAX_USER_AGENT: usize = 1024;
/// What an entry costs in memory besides bodies, in bytes: an estimate.
const BASE_COST: usize = 1024;

/// What is known of a request when the policy has been evaluated.
pub(super) struct Request {
    pub(super) id: String,
    pub(super) verdict: Verdict,
    pub(super) received: Timestamp,
    pub(super) uri: Uri,
    pub(super) verb: String,
    /// None when the request could not be authenticated.
    pub(super) user: Option<Arc<User>>,
    pub(super) source_ips: Vec<std::net::IpAddr>,
    pub(super) user_agent: Option<HeaderValue>,
    /// None for requests that are not about a resource.
    pub(super) object: Option<ObjectReference>,
}

/// What becomes known while a request is handled.
#[derive(Clone, Default)]
pub(super) struct Outcome {
    /// As whom the request acts, and the mode of constrained impersonation that allowed it.
    pub(super) impersonated: Option<(Arc<User>, Option<&'static str>)>,
    pub(super) annotations: Annotations,
    pub(super) body: Option<RequestBody>,
    pub(super) response: Option<Response>,
    /// The status to report when there is no response.
    pub(super) status: Option<ResponseStatus>,
}

impl Outcome {
    /// Forgets the objects of request and response.
    pub(super) fn drop_objects(&mut self) {
        self.body = None;
        if let Some(response) = &mut self.response {
            response.bytes.clear();
        }
    }
}

/// One event on its way to the log.
pub(super) struct Entry {
    pub(super) request: Arc<Request>,
    pub(super) stage: Stage,
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
    /// Receives whether the event was written, if somebody waits for that.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

impl Entry {
    /// How much memory it holds, in bytes.
    pub(super) fn cost(&self) -> usize {
        let body = self.outcome.body.as_ref().map_or(0, |body| body.bytes.len());
        let response = self.outcome.response.as_ref().map_or(0, |response| response.bytes.len());
        BASE_COST + body + response
    }

    /// Tells whoever waits whether the event was written.
    pub(super) fn resolve(&mut self, written: bool) {
        if let Some(waiting) = self.written.take() {
            let _ = waiting.send(written);
        }
    }

    /// Appends the event as one line.
    pub(super) fn render(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let Request { verdict, .. } = *self.request;
        let (request, outcome) = (&*self.request, &self.outcome);
        let uri_query = request.uri.query().unwrap_or_default();
        let omit = verdict.omit_managed_fields;
        let (metadata, request_object) =
            outcome.body.as_ref().map_or((None, None), |body| body.read(verdict.level, omit, uri_query));
        let (status, response_object) = match &outcome.response {
            Some(response) => {
                let (status, object) = response.read(verdict.level, omit);
                (Some(status), object)
            }
            None => (outcome.status.clone(), None),
        };
        let user_agent = request.user_agent.as_ref().map(user_agent).unwrap_or_default();
        let impersonated = outcome.impersonated.as_ref();
        let constraint = impersonated.and_then(|(_, mode)| *mode).map(|mode| format!("impersonate:{mode}"));
        let event = Event {
            request_uri: request.uri.path_and_query().map_or("/", |path| path.as_str()),
            verb: &request.verb,
            user: request.user.as_deref().map(Into::into).unwrap_or_default(),
            impersonated_user: impersonated.map(|(user, _)| (&**user).into()),
            authentication_metadata: constraint
                .map(|impersonation_constraint| AuthenticationMetadata { impersonation_constraint }),
            source_ips: &request.source_ips,
            user_agent: &user_agent,
            object_ref: completed(request.object.clone(), metadata),
            response_status: status,
            request_object,
            response_object,
            annotations: &outcome.annotations,
            ..Event::new(verdict.level, &request.id, self.stage, request.received, self.at)
        };
        json::append_line(out, &event)
    }
}

/// What the URL does not say about the object, its body may.
fn completed(object: Option<ObjectReference>, metadata: Option<Metadata>) -> Option<ObjectReference> {
    let mut object = object?;
    let Metadata { name, namespace, uid, resource_version } = metadata.unwrap_or_default();
    let fields = [
        (&mut object.name, name),
        (&mut object.namespace, namespace),
        (&mut object.uid, uid),
        (&mut object.resource_version, resource_version),
    ];
    for (field, value) in fields.into_iter().filter(|(field, _)| field.is_empty()) {
        *field = value;
    }
    Some(object)
}

fn user_agent(value: &HeaderValue) -> String {
    let bytes = value.as_bytes();
    match bytes.get(..MAX_USER_AGENT) {
        Some(first) if bytes.len() > MAX_USER_AGENT => String::from_utf8_lossy(first).into_owned() + "...TRUNCATED",
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
