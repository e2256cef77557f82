//! Records one request, from its headers to the end of its response.
//!
//! In: the state of the request, as the handler determines it. Out: its events. A [`Recorder`] exists while the handler processes the
//! request; its [`Trail`] is kept by the body of a streamed response, or by a connection that left HTTP, and the event `ResponseComplete` is
//! generated when the last of them is dropped, also when the client closes the connection early.

use std::any::Any;
use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use api::field::quote;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use http::{Uri, header, request};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::event::{Common, ObjectReference, ResponseStatus};
use super::level::{Level, Stage};
use super::objects::{Content, RequestBody, Response};
use super::record::{Entry, Outcome, Request};
use super::{Audit, NotStored, origin, record};
use crate::auth::User;
use crate::authz::{Decision, defuse};
use crate::reply::{Body, Reply};
use crate::request::RequestInfo;
use crate::route::Target;

const TEXT: &str = "text/plain; charset=utf-8";
/// Larger documents that are not errors are no Status, in bytes: one of success has little more than two names. Others are not parsed.
const MAX_STATUS: usize = 1024;

/// Records one request.
pub(crate) struct Recorder<'a> {
    audit: Option<&'a Arc<Audit>>,
    parts: &'a request::Parts,
    peer: IpAddr,
    received: Timestamp,
    id: String,
    trail: OnceLock<Arc<Trail>>,
}

/// The events of a request that is recorded.
pub(crate) struct Trail {
    audit: Arc<Audit>,
    request: Arc<Request>,
    scope: Scope,
    outcome: Mutex<Outcome>,
    /// Whether there will be no more events.
    is_finished: AtomicBool,
}

/// Which stages a request goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// Received and completed.
    Short,
    /// Received, started and completed.
    Long,
    /// Only started: it was refused before its user was known.
    Unauthenticated,
}

impl<'a> Recorder<'a> {
    /// A request that has been received. Without a log it only has an id.
    pub(crate) fn new(
        audit: Option<&'a Arc<Audit>>,
        parts: &'a request::Parts,
        peer: IpAddr,
        received: Timestamp,
    ) -> Self {
        Self { audit, parts, peer, received, id: origin::audit_id(&parts.headers), trail: OnceLock::new() }
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether there is an audit log.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.audit.is_some()
    }

    /// Keeps the request from being complete for as long as it is held.
    pub(crate) fn trail(&self) -> Option<Arc<Trail>> {
        self.trail.get().cloned()
    }

    /// Evaluates the policy for the user who sends the request, and generates the event `RequestReceived`. `None` is a request that
    /// could not be authenticated.
    ///
    /// # Errors
    /// The response when the event cannot be stored; the request must not be handled then.
    pub(crate) async fn begin(&self, info: &RequestInfo<'_>, user: Option<&Arc<User>>) -> Result<(), Reply> {
        let Some(audit) = self.audit else { return Ok(()) };
        let nobody = User::default();
        let verdict = audit.policy.evaluate(&info.attributes(user.map_or(&nobody, |user| user)));
        audit.metrics.evaluated(verdict.level);
        if verdict.level == Level::None {
            return Ok(());
        }
        let scope = match user {
            None => Scope::Unauthenticated,
            Some(_) if is_long_running(info) => Scope::Long,
            Some(_) => Scope::Short,
        };
        let (uri, headers) = (&self.parts.uri, &self.parts.headers);
        let common = Common::new(
            (uri.path_and_query().map_or("/", |path| path.as_str()), &info.verb),
            user.map(|user| &**user),
            (
                &origin::source_ips(headers, self.peer),
                &headers.get(header::USER_AGENT).map(record::user_agent).unwrap_or_default(),
            ),
            self.received,
        );
        let Ok(common) = common else { return Err(not_stored(uri)) };
        let object = info.path.is_none().then(|| object_reference(info));
        let request = Arc::new(Request { id: self.id.clone(), verdict, uri: uri.clone(), common, object });
        let rejected = |_: NotStored| {
            audit.metrics.rejected();
            not_stored(&self.parts.uri)
        };
        audit.admit().await.map_err(rejected)?;
        let (audit, outcome, is_finished) = (audit.clone(), Mutex::default(), AtomicBool::new(false));
        let trail = self.trail.get_or_init(|| Arc::new(Trail { audit, request, scope, outcome, is_finished }));
        trail.receive(self.received).await.map_err(rejected)
    }

    /// As whom the request acts, and the mode of constrained impersonation that allowed it, if one did.
    pub(crate) fn impersonates(&self, user: &Arc<User>, mode: Option<&'static str>) {
        self.note(|outcome| outcome.impersonated = Some((user.clone(), mode)));
    }

    /// Whether the request is allowed. A later decision replaces an earlier one.
    pub(crate) fn decided(&self, decision: &Decision) {
        self.note(|outcome| {
            let word = if decision.allowed { "allow" } else { "forbid" };
            outcome.annotations.insert("authorization.k8s.io/decision".into(), word.to_owned());
            outcome.annotations.insert("authorization.k8s.io/reason".into(), decision.reason.clone());
        });
    }

    /// Adds an annotation. The first value of a key stays.
    pub(crate) fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.note(|outcome| {
            outcome.annotations.entry(key.into()).or_insert_with(|| value.into());
        });
    }

    /// The body of the request.
    pub(crate) fn body(&self, target: &Target<'_>, verb: &str, bytes: &Bytes) {
        self.note(|outcome| {
            let content_type = self.parts.headers.get(header::CONTENT_TYPE).cloned();
            let content = Content::of(target, verb);
            let is_needed = self.level() >= Level::Request || matches!(verb, "create" | "update");
            outcome.body =
                (is_needed && !bytes.is_empty()).then(|| RequestBody { content, content_type, bytes: bytes.clone() });
        });
    }

    /// The response that is about to be sent. A stream holds the trail until it ends.
    pub(crate) fn responded(&self, mut reply: Reply) -> Reply {
        let Some(trail) = self.trail.get() else { return reply };
        let wanted = |bytes: &Bytes| {
            let may_be_status = || bytes.len() <= MAX_STATUS && may_be_status(reply.content_type, bytes);
            self.level() >= Level::RequestResponse || reply.code >= 400 || may_be_status()
        };
        let bytes = match &reply.body {
            Body::Whole(Some(bytes)) if wanted(bytes) => bytes.clone(),
            _ => Bytes::new(),
        };
        let response = Response { code: reply.code, content_type: reply.content_type, bytes };
        self.note(|outcome| outcome.response = Some(response));
        if matches!(trail.scope, Scope::Long | Scope::Unauthenticated) {
            trail.generate(Stage::ResponseStarted, trail.outcome.lock().clone());
        }
        reply.body = match reply.body {
            Body::Stream(stream) => Body::Stream(Held { stream, _trail: trail.clone() }.boxed()),
            Body::Passed(stream) => Body::Passed(Held { stream, _trail: trail.clone() }.boxed()),
            whole @ (Body::Whole(_) | Body::Chunks(_)) => whole,
        };
        reply
    }

    /// The handler panicked: the event `Panic`, and the response.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) -> Reply {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
        tracing::error!(uri = %self.parts.uri, panic = text, "request handler panicked");
        self.note(|outcome| {
            outcome.response = None;
            outcome.status = Some(ResponseStatus {
                status: "Failure".into(),
                message: format!("APIServer panic'd: {text}"),
                reason: "InternalError".into(),
                code: 500,
                ..ResponseStatus::default()
            });
        });
        if let Some(trail) = self.trail.get() {
            trail.generate(Stage::Panic, trail.outcome.lock().clone());
            trail.is_finished.store(true, Ordering::Relaxed);
        }
        Reply::bytes(500, TEXT, "This request caused apiserver to panic. Look in the logs for details.\n")
    }

    fn level(&self) -> Level {
        self.trail.get().map_or(Level::None, |trail| trail.request.verdict.level)
    }

    fn note(&self, change: impl FnOnce(&mut Outcome)) {
        if let Some(trail) = self.trail.get() {
            change(&mut trail.outcome.lock());
        }
    }
}

impl Trail {
    /// Generates the event `RequestReceived`.
    async fn receive(&self, at: Timestamp) -> Result<(), NotStored> {
        let stage = Stage::RequestReceived;
        if self.scope == Scope::Unauthenticated || !self.request.verdict.records(stage) {
            return Ok(());
        }
        let entry = Entry { request: self.request.clone(), stage, at, outcome: Outcome::default() };
        let stored = self.audit.receive(entry).await;
        self.is_finished.store(stored.is_err(), Ordering::Relaxed);
        stored
    }

    /// Generates an event unless the policy omits its stage, or there are to be no more.
    fn generate(&self, stage: Stage, outcome: Outcome) {
        if self.request.verdict.records(stage) && !self.is_finished.load(Ordering::Relaxed) {
            let (request, at) = (self.request.clone(), Timestamp::now());
            self.audit.store(Entry { request, stage, at, outcome }, None);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if self.scope == Scope::Unauthenticated {
            return;
        }
        let mut outcome = std::mem::take(self.outcome.get_mut());
        if outcome.response.is_none() {
            outcome.status = Some(ResponseStatus {
                status: "Success".into(),
                message: "Connection closed early".into(),
                code: 200,
                ..ResponseStatus::default()
            });
            if self.scope == Scope::Long {
                self.generate(Stage::ResponseStarted, outcome.clone());
            }
        }
        self.generate(Stage::ResponseComplete, outcome);
    }
}

/// A stream that keeps its request from being complete.
struct Held<T> {
    stream: BoxStream<'static, T>,
    _trail: Arc<Trail>,
}

impl<T> Stream for Held<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.get_mut().stream.as_mut().poll_next(context)
    }
}

/// Watches, and subresources that are connections to a backend.
fn is_long_running(info: &RequestInfo<'_>) -> bool {
    let by_subresource = matches!(info.subresource, "attach" | "exec" | "log" | "portforward" | "proxy");
    info.path.is_none() && (by_subresource || matches!(&*info.verb, "watch" | "proxy"))
}

fn object_reference(info: &RequestInfo<'_>) -> ObjectReference<'static> {
    let owned = |text: &str| Cow::Owned(text.to_owned());
    ObjectReference {
        resource: owned(info.resource),
        namespace: owned(info.namespace),
        name: owned(&info.name),
        api_group: owned(info.group),
        api_version: owned(info.version),
        subresource: owned(info.subresource),
        ..ObjectReference::default()
    }
}

/// Whether a document may be a Status; most are not, and a search is faster than decoding them. Others than JSON have to be decoded.
fn may_be_status(content_type: &str, bytes: &[u8]) -> bool {
    content_type != "application/json" || std::str::from_utf8(bytes).is_ok_and(|text| text.contains("\"Status\""))
}

/// The response to a request that cannot be recorded.
fn not_stored(uri: &Uri) -> Reply {
    let uri = quote(uri.path_and_query().map_or("/", |path| path.as_str()));
    let text = format!("Internal Server Error: {}: failed to store audit event\n", defuse(&uri));
    Reply::bytes(500, TEXT, text)
}
