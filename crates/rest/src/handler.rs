//! The handler of one request: routing, authentication, authorization, limits, verb.
//!
//! In: a request. Out: its response. Every error becomes a Status in the media type that the client accepts.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::custom::Kinds;
use api::kind::SCALE;
use api::status::Status;
use futures_util::FutureExt as _;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument as _, field};

use crate::audit::{AUDIT_ID, Audit, Recorder};
use crate::auth::impersonate::Impersonation;
use crate::auth::{Authenticator, UNAUTHENTICATED, User};
use crate::authz::node::NODES;
use crate::authz::{Attributes, refused};
use crate::dial::DialPolicy;
use crate::download::Downloads;
use crate::fairness::{self, Fairness, Permit};
use crate::forward::ClientBody;
use crate::metrics::Metrics;
use crate::negotiate::{self, PLAIN};
use crate::offload::Offload;
use crate::openapi::OpenApiCache;
use crate::pki::Live;
use crate::registry::Registry;
use crate::reply::{Body, Reply};
use crate::request::RequestInfo;
use crate::route::{self, Route, Target};
use crate::service_backends::ServiceBackends;
use crate::upload::Uploads;
use crate::view::{Include, View};
use crate::{compress, non_resource, query, ui, verbs};

/// Bodies or queues that take longer than this: credentials may have expired meanwhile, so the request is authenticated again.
const REAUTHENTICATE_AFTER: Duration = Duration::from_secs(1);

/// State that all requests share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) authn: Authenticator,
    pub(crate) impersonation: Impersonation,
    /// Sessions of the web UI.
    pub(crate) sessions: ui::Sessions,
    /// The latest findings of the web UI.
    pub(crate) documents: ui::Documents,
    pub(crate) metrics: Arc<Metrics>,
    /// The audit log, if there is one.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) openapi: OpenApiCache,
    /// `host:port`, as discovery reports it.
    pub(crate) address: String,
    /// The server's identity towards agents of nodes, if there may be any.
    pub(crate) agents: Option<Live>,
    /// Limits of request bodies.
    pub(crate) uploads: Uploads,
    /// Limits of response bodies.
    pub(crate) downloads: Downloads,
    /// Threads for expensive work.
    pub(crate) offload: Offload,
    /// Which addresses may be dialed for clients.
    pub(crate) dial: Arc<DialPolicy>,
    /// Priority and fairness: which requests run, and which are queued.
    pub(crate) fairness: Arc<Fairness>,
    /// The timeout of requests other than watches.
    pub(crate) request_timeout: Duration,
    /// True once the bootstrap objects exist.
    pub(crate) ready: watch::Receiver<bool>,
    /// True while the server shuts down.
    pub(crate) draining: watch::Receiver<bool>,
}

/// A parsed request.
pub(crate) struct RequestContext<'a> {
    pub(crate) method: &'a Method,
    /// As the client sent it.
    pub(crate) uri: &'a Uri,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a User,
    /// The request as authorization sees it.
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) view: View,
    pub(crate) now: Timestamp,
    /// Records audit annotations.
    pub(crate) audit: &'a Recorder<'a>,
}

impl Shared {
    /// The Pods of Services.
    pub(crate) fn backends(&self) -> ServiceBackends<'_> {
        ServiceBackends { store: &*self.registry.store, ranges: &self.registry.ranges, dial: &self.dial }
    }
}

impl RequestContext<'_> {
    /// The first value of a query parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        query::first(&self.query, name)
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// The client of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The certificate that the handshake verified.
    pub(crate) certificate: Option<Arc<[u8]>>,
    /// Whether it uses the local socket, which has authenticated it.
    pub(crate) is_local: bool,
}

/// Handles a request. All log lines of it have its audit id.
pub(crate) async fn handle(shared: Arc<Shared>, peer: Peer, mut request: Request<Incoming>) -> Response<Body> {
    let received = Timestamp::now();
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let audit = Recorder::new(shared.audit.as_ref(), &parts, peer.address, received);
    let sent = ClientBody { body, upgrade, audit: None };
    // A span at the level of errors, so that no log filter removes the id from a line.
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let span = tracing::error_span!("request", audit_id = audit.id(), method, path, code = field::Empty);
    let reply = respond(&shared, &peer, &parts, sent, &audit).instrument(span.clone()).await;
    span.record("code", reply.code);
    let mut response = reply.into_response();
    if let Ok(id) = HeaderValue::from_str(audit.id()) {
        response.headers_mut().insert(AUDIT_ID, id);
    }
    response
}

async fn respond(
    shared: &Arc<Shared>,
    peer: &Peer,
    parts: &http::request::Parts,
    sent: ClientBody,
    audit: &Recorder<'_>,
) -> Reply {
    let started = Instant::now();
    let path = query::decode_path(parts.uri.path());
    // Most requests are for kinds of the static table.
    let route = match route::parse(&path, Kinds::fixed()) {
        Route::NotFound | Route::NoSuchResource => route::parse(&path, &shared.registry.kinds()),
        route => route,
    };
    let (verb, kind, part) = describe(&parts.method, &parts.uri, &route);
    let answer = AssertUnwindSafe(answer(shared, peer, parts, &path, route, sent, audit));
    let mut reply = match answer.catch_unwind().await {
        Ok(reply) => audit.responded(reply),
        Err(panic) => audit.panicked(&*panic),
    };
    if parts.method == Method::HEAD {
        reply.body = Body::Whole(None);
    }
    if accepts_gzip(&parts.headers) {
        reply = compress::large(reply).await;
    }
    reply = reply.counted();
    let took = started.elapsed();
    shared.metrics.answered(verb, kind, part, reply.code, took);
    tracing::debug!(%verb, path = %path, code = reply.code, ?took, "answered");
    reply
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|text| text.split(',').any(|clause| clause.trim().split(';').next() == Some("gzip")))
}

async fn answer(
    shared: &Arc<Shared>,
    peer: &Peer,
    parts: &http::request::Parts,
    path: &str,
    route: Route<'_>,
    sent: ClientBody,
    audit: &Recorder<'_>,
) -> Reply {
    let now = Timestamp::now();
    let plain = View { form: PLAIN, include: Include::default(), now };
    let query = query::parse(parts.uri.query().unwrap_or_default());
    let info = RequestInfo::of(&parts.method, path, &query);
    if let Route::Ui(rest) = route {
        if audit.is_enabled() {
            let user = shared.authn.authenticate(&parts.headers, peer.certificate.as_deref(), now);
            let user = Arc::new(user.unwrap_or_else(|_| User::anonymous()));
            if let Err(reply) = audit.begin(&info, Some(&user)).await {
                return reply;
            }
        }
        return ui::answer(shared, peer.certificate.as_deref(), parts, rest, sent.body, now).await;
    }
    let sender_now = || identify(shared, peer, parts, path, &route, Timestamp::now());
    let acting_as = |sender: &User| {
        shared.impersonation.resolve(&shared.registry.authorizer, &parts.headers, &info.attributes(sender))
    };
    let sender = sender_now().map(Arc::new);
    if let Err(reply) = audit.begin(&info, sender.as_ref().ok()).await {
        return reply;
    }
    let user = match sender.and_then(|sender| Ok((acting_as(&sender)?, sender))) {
        Ok((None, sender)) => sender,
        Ok((Some((user, mode)), _)) => {
            let user = Arc::new(user);
            audit.impersonates(&user, mode);
            user
        }
        Err(status) => return failed(&plain, &status),
    };
    let user_now = || {
        let sender = sender_now()?;
        Ok(acting_as(&sender)?.map_or(sender, |(user, _)| user))
    };
    let context = RequestContext {
        method: &parts.method,
        uri: &parts.uri,
        query,
        headers: &parts.headers,
        user: &user,
        info: &info,
        view: plain,
        now,
        audit,
    };
    if let Route::Resource(target) = route {
        return resource(shared, &user_now, context, target, sent).await;
    }
    if let Err(status) = authorize(shared, &info.attributes(&user), audit) {
        return failed(&plain, &status);
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    match route {
        Route::Health { .. } | Route::Version if !reads => failed(&plain, &Status::method_not_allowed()),
        Route::Health { page, check } => {
            non_resource::health(shared, page, check, parts.uri.query().unwrap_or_default())
        }
        Route::Version => non_resource::version(),
        Route::NoSuchSubresource { kind, name } => failed(&plain, &Status::not_found(kind.resource(), name)),
        Route::NoSuchResource => failed(&plain, &Status::no_such_resource()),
        Route::NotFound => Reply::bytes(404, "text/plain; charset=utf-8", "404 page not found\n"),
        other => non_resource::get(shared, &context, other),
    }
}

/// Authenticates a request: the user of its credentials, or of a session of the web UI.
fn identify(
    shared: &Shared,
    peer: &Peer,
    parts: &http::request::Parts,
    path: &str,
    route: &Route<'_>,
    now: Timestamp,
) -> Result<User, Status> {
    if peer.is_local {
        return Ok(User::local());
    }
    let known = shared.authn.authenticate(&parts.headers, peer.certificate.as_deref(), now);
    let is_anonymous = known.as_ref().map_or(true, |user| user.is_in(UNAUTHENTICATED));
    let session_user = if is_anonymous { ui::session_user(shared, parts, path, route, now) } else { None };
    session_user.unwrap_or(known)
}

/// Authorizes a request, and records the decision.
fn authorize(shared: &Shared, attributes: &Attributes<'_>, audit: &Recorder<'_>) -> Result<(), Status> {
    let decision = shared.registry.authorizer.authorize(attributes);
    audit.decided(&decision);
    if decision.allowed { Ok(()) } else { Err(refused(attributes, &decision.reason)) }
}

/// Handles a request for a resource.
async fn resource(
    shared: &Arc<Shared>,
    user_now: &(dyn Fn() -> Result<User, Status> + Sync),
    mut context: RequestContext<'_>,
    target: Target<'_>,
    mut sent: ClientBody,
) -> Reply {
    let mut warnings = Vec::new();
    let plain = context.view;
    let done = async {
        let allowed = || authorize(shared, &context.info.attributes(context.user), context.audit);
        let version = shared.registry.authorizer.version();
        allowed()?;
        if target.kind.plural == "endpoints" {
            warnings.push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
            context.audit.annotate("k8s.io/deprecated", "true");
        }
        if let Some(warning) = target.kind.rules.definition().and_then(|definition| definition.deprecation.clone()) {
            warnings.push(warning);
        }
        let Some(verb) = verbs::verb(&context, &target) else { return Err(verbs::not_allowed(&context, &target)) };
        if verbs::is_long_running(&target) {
            // The backend determines form and duration of the response.
            sent.audit = context.audit.trail();
            return verbs::connect(shared, &context, &target, sent).await;
        }
        let account = shared.downloads.admit(context.user)?;
        let started = Instant::now();
        let body = match verb {
            "get" | "list" | "watch" => None,
            _ => Some(shared.uploads.read(context.user, sent.body, shared.request_timeout).await?),
        };
        // The request must still be allowed after its body was read.
        let check_again = |took: Duration| {
            if took >= REAUTHENTICATE_AFTER && user_now()? != *context.user {
                return Err(Status::unauthorized());
            }
            allowed()
        };
        let is_unchanged = || !context.user.is_in(NODES) && shared.registry.authorizer.version() == version;
        if body.is_some() && !(started.elapsed() < REAUTHENTICATE_AFTER && is_unchanged()) {
            check_again(started.elapsed())?;
        }
        let bytes = body.as_ref().map(|body| body.bytes.clone()).unwrap_or_default();
        let accept = context.header(header::ACCEPT);
        // A Scale is not a custom resource.
        let is_custom = target.kind.is_custom() && target.subresource.is_none_or(|sub| sub.name != SCALE);
        context.view.form = match is_custom {
            true => negotiate::choose_custom(accept)?,
            false => negotiate::choose(accept, target.name.is_none())?,
        };
        context.view.form.pretty |= matches!(context.param("pretty"), Some("true" | "1"));
        context.view.include = Include::parse(context.param("includeObject").unwrap_or_default())?;
        let size = || shared.registry.store.size(store::Table::named(target.kind.table));
        let permit = shared
            .fairness
            .admit(context.info, context.user, || fairness::width(context.info, &context.query, size))
            .await?;
        if !permit.waited().is_zero() {
            check_again(permit.waited())?;
        }
        let work = async {
            context.audit.body(&target, verb, &bytes);
            verbs::run(shared, &context, &target, verb, &bytes, &mut warnings).await
        };
        let reply = limited(shared, verb, permit, work).await?;
        Ok(Reply { account: Some(account), ..reply })
    };
    let done = done.await;
    let view = if context.view.form == PLAIN { plain } else { context.view };
    let mut reply = done.unwrap_or_else(|status| failed(&view, &status));
    warnings.append(&mut reply.warnings);
    reply.warnings = warnings;
    reply
}

/// Applies the request timeout, which includes the time in the queue. A watch must start within it and then continues without a
/// permit.
async fn limited(
    shared: &Arc<Shared>,
    verb: &str,
    permit: Permit,
    work: impl Future<Output = Result<Reply, Status>>,
) -> Result<Reply, Status> {
    let _counted = shared.metrics.in_flight();
    match tokio::time::timeout(shared.request_timeout.saturating_sub(permit.waited()), work).await {
        Ok(done) => done,
        Err(_) => Err(Status::timeout(format!(
            "Timeout: the {verb} was not finished within {} seconds",
            shared.request_timeout.as_secs()
        ))),
    }
}

/// The response to a failed request.
pub(crate) fn failed(view: &View, status: &Status) -> Reply {
    let reply = Reply::document(status.code, view.status(status));
    let seconds = status.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    match seconds.filter(|_| status.code == 429) {
        // An eviction that a budget refuses has no time: the client chooses when to try again.
        None => reply,
        Some(seconds) => reply.with(header::RETRY_AFTER, seconds.to_string()),
    }
}

/// The metric labels of a request.
fn describe(
    method: &Method,
    uri: &Uri,
    route: &Route<'_>,
) -> (&'static str, Option<&'static api::kind::Kind>, &'static str) {
    let Route::Resource(target) = route else {
        return (if *method == Method::GET { "GET" } else { "OTHER" }, None, "");
    };
    let part = target.subresource.map_or("", |sub| sub.name);
    let query = uri.query().unwrap_or_default();
    let verb = match *method {
        Method::GET if target.name.is_some() => "GET",
        Method::GET if target.watch || query::wants_watch(&query::parse(query)) => "WATCH",
        Method::GET => "LIST",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE if target.name.is_some() => "DELETE",
        Method::DELETE => "DELETECOLLECTION",
        _ => "OTHER",
    };
    (verb, Some(target.kind), part)
}
