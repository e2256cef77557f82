//! One [`Entry`] for each event, and how it becomes a line.
//!
//! Events of one request share its [`Request`]. Nothing here is copied from a body: bytes are reference counted.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{HeaderValue, Uri};
use jiff::Timestamp;

use super::event::{Annotations, Common, Event, ObjectReference, ResponseStatus};
use super::level::Stage;
use super::metrics::Metrics;
use super::objects::{Metadata, RequestBody, Response};
use super::policy::Verdict;
use crate::auth::User;

/// A longer `User-Agent` is truncated to this many bytes.
const MAX_USER_AGENT: usize = 1024;
/// What an entry costs in memory besides bodies, in bytes: an estimate.
const BASE_COST: usize = 1024;
/// An event whose bodies are larger than this together takes too long to render for the thread of a request.
const MAX_INLINE: usize = 32 << 10;

/// What is known of a request when the policy has been evaluated.
pub(super) struct Request {
    pub(super) id: String,
    pub(super) verdict: Verdict,
    pub(super) uri: Uri,
    pub(super) common: Common,
    /// None for requests that are not about a resource.
    pub(super) object: Option<ObjectReference<'static>>,
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
    /// Drops the objects of request and response.
    pub(super) fn drop_objects(&mut self) {
        self.body = None;
        if let Some(response) = &mut self.response {
            response.bytes.clear();
        }
    }
}

/// Why the objects of an event cannot be encoded.
#[derive(Debug, thiserror::Error)]
enum EncodeError {
    #[error(transparent)]
    Json(serde_json::Error),
    #[error("the decoder panicked")]
    Panic,
}

/// One event on its way to the log.
pub(super) struct Entry {
    pub(super) request: Arc<Request>,
    pub(super) stage: Stage,
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
}

impl Entry {
    /// How much memory it holds, in bytes.
    pub(super) fn cost(&self) -> usize {
        let body = self.outcome.body.as_ref().map_or(0, |body| body.bytes.len());
        let response = self.outcome.response.as_ref().map_or(0, |response| response.bytes.len());
        BASE_COST + body + response
    }

    /// Whether it is the writer that renders it.
    pub(super) fn is_large(&self) -> bool {
        self.cost() > BASE_COST + MAX_INLINE
    }

    /// Renders the event as one line, which replaces the content of `line`; false when it cannot be encoded. An object that cannot be decoded
    /// must not cause the loss of the event: it is then recorded without its objects.
    pub(super) fn encode(&mut self, line: &mut Vec<u8>, metrics: &Metrics) -> bool {
        let Err(error) = self.try_encode(line) else { return true };
        metrics.write_failed();
        tracing::error!(%error, audit_id = self.request.id, "failed to encode objects of audit event");
        self.outcome.drop_objects();
        self.try_encode(line).is_ok()
    }

    /// Objects are what clients sent: the caller survives all of them.
    fn try_encode(&self, line: &mut Vec<u8>) -> Result<(), EncodeError> {
        line.clear();
        let rendered = catch_unwind(AssertUnwindSafe(|| self.render(line)));
        rendered.map_err(|_| EncodeError::Panic)?.map_err(EncodeError::Json)
    }

    /// Appends the event as one line.
    fn render(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
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
        let event = Event {
            impersonated: outcome.impersonated.as_ref().map(|(user, mode)| (&**user, *mode)),
            object_ref: completed(request.object.as_ref(), metadata),
            response_status: status,
            request_object,
            response_object,
            annotations: &outcome.annotations,
            ..Event::new(verdict.level, &request.id, self.stage, &request.common, self.at)
        };
        event.append_line(out)
    }
}

/// Completes the object reference of the URL with the metadata of the body.
fn completed<'a>(
    object: Option<&'a ObjectReference<'static>>,
    metadata: Option<Metadata>,
) -> Option<ObjectReference<'a>> {
    let mut object = object?.borrowed();
    let Metadata { name, namespace, uid, resource_version } = metadata.unwrap_or_default();
    let fields = [
        (&mut object.name, name),
        (&mut object.namespace, namespace),
        (&mut object.uid, uid),
        (&mut object.resource_version, resource_version),
    ];
    for (field, value) in fields.into_iter().filter(|(field, _)| field.is_empty()) {
        *field = value.into();
    }
    Some(object)
}

/// The `User-Agent` as events show it.
pub(super) fn user_agent(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    match bytes.get(..MAX_USER_AGENT) {
        Some(first) if bytes.len() > MAX_USER_AGENT => String::from_utf8_lossy(first) + "...TRUNCATED",
        _ => String::from_utf8_lossy(bytes),
    }
}
