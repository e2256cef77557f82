//! What becomes known of a request or a connection while it is served.
//!
//! In: notes of whatever takes part. Out: a line in the log, when the last holder drops the trail. A request without a
//! response, when that happens, is one whose client went away.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use jiff::Timestamp;
use parking_lot::Mutex;
use routing::model::{ListenerConfig, ListenerId, RouteId, Rule};
use rustls::{ProtocolVersion, ServerConnection};

use super::format::Record;
use super::{AccessLog, LoggedBody};
use crate::body::ResponseBody;
use crate::cause::Cause;
use crate::clients::Source;
use crate::headers::REQUEST_ID;
use crate::upstream::Upstream;

/// Limits of values in bytes; the rest is not logged.
const MAX_METHOD: usize = 32;
const MAX_HOST: usize = 255;
const MAX_PATH: usize = 2048;
const MAX_USER: usize = 128;
const MAX_USER_AGENT: usize = 512;
const MAX_REFERER: usize = 1024;
const MAX_REQUEST_ID: usize = 128;

/// The header of gRPC with its status.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The status of a request whose client went away before the response.
const CLIENT_CLOSED: u16 = 499;

/// What the lines of a connection have in common.
pub(crate) struct LoggedConnection {
    log: Arc<AccessLog>,
    client: SocketAddr,
    port: u16,
    gateway: Option<Arc<str>>,
    /// The Service at layer 7 that it is to.
    parent_service: Option<Arc<str>>,
    /// `namespace/name` of the Pod that it is from.
    client_pod: Option<Box<str>>,
    tls_version: Option<&'static str>,
    server_name: Option<Box<str>>,
}

/// A rule, by name.
pub(crate) struct RulePlace {
    /// Kind, namespace and name of its route.
    pub(super) route: Box<str>,
    /// Its name, or its number in the route; none where a route has one rule.
    pub(super) rule: Option<Box<str>>,
}

/// What a request says; values are limited in length.
pub(super) struct RequestHead {
    pub(super) method: Box<[u8]>,
    /// `http` or `https`.
    pub(super) scheme: HeaderValue,
    /// Without credentials, like the referer.
    pub(super) host: Box<[u8]>,
    /// With the query.
    pub(super) path: Box<[u8]>,
    pub(super) user_agent: Option<Box<[u8]>>,
    pub(super) referer: Option<Box<[u8]>>,
}

/// What becomes known of a request, or of a connection whose bytes are forwarded.
pub(crate) struct Trail {
    connection: Arc<LoggedConnection>,
    protocol: &'static str,
    /// None for a connection.
    request: Option<RequestHead>,
    time: Timestamp,
    began: Instant,
    received: Arc<AtomicU64>,
    sent: AtomicU64,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    listener: Option<Arc<ListenerConfig>>,
    place: Option<Arc<RulePlace>>,
    upstream: Option<Arc<Upstream>>,
    endpoint: Option<SocketAddr>,
    user: Option<Box<[u8]>>,
    request_id: Option<Box<[u8]>>,
    status: Option<StatusCode>,
    grpc_status: Option<u16>,
    cause: Option<Cause>,
    is_aborted: bool,
}

impl LoggedConnection {
    /// A connection to a port of a Service or of a Gateway.
    pub(crate) const fn new(log: Arc<AccessLog>, client: SocketAddr, port: u16, gateway: Option<Arc<str>>) -> Self {
        Self {
            log,
            client,
            port,
            gateway,
            parent_service: None,
            client_pod: None,
            tls_version: None,
            server_name: None,
        }
    }

    /// The same connection, to a Service at layer 7.
    pub(crate) fn to_service(self, service: Arc<str>) -> Self {
        Self { parent_service: Some(service), ..self }
    }

    /// Notes where it is from.
    pub(crate) fn source(&mut self, source: &Source) {
        self.client_pod = source.pod().map(Into::into);
    }

    /// Notes the TLS that ends here.
    pub(crate) fn tls(&mut self, tls: &ServerConnection) {
        self.server_name = tls.server_name().map(Into::into);
        self.tls_version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2"),
            Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3"),
            _ => None,
        };
    }

    /// Notes the TLS of QUIC, which ends here.
    pub(crate) fn quic(&mut self, server_name: Option<&str>) {
        (self.server_name, self.tls_version) = (server_name.map(Into::into), Some("TLSv1.3"));
    }

    /// Notes the server name of TLS that ends elsewhere.
    pub(crate) fn server_name(&mut self, name: Option<&str>) {
        self.server_name = name.map(Into::into);
    }
}

impl RulePlace {
    /// A rule of an HTTPRoute, a GRPCRoute or an Ingress.
    pub(crate) fn of_rule(rule: &Rule) -> Arc<Self> {
        let name = rule.name.clone().unwrap_or_else(|| rule.index.to_string().into());
        Arc::new(Self { route: route(&rule.route), rule: Some(name) })
    }

    /// The endpoints of a Service itself, without a route.
    pub(crate) fn of_service(key: &str) -> Arc<Self> {
        Arc::new(Self { route: format!("Service/{key}").into(), rule: None })
    }

    /// The rule of a route that has only one.
    pub(crate) fn of_route(id: &RouteId) -> Arc<Self> {
        Arc::new(Self { route: route(id), rule: None })
    }
}

fn route(id: &RouteId) -> Box<str> {
    format!("{}/{}", id.kind.name(), id.key).into()
}

impl RequestHead {
    fn of<B>(request: &Request<B>, scheme: &HeaderValue) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let host = uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = host.or_else(|| headers.get(HOST).map(HeaderValue::as_bytes)).unwrap_or_default();
        let header = |name, limit| headers.get(name).map(|value| limited(value.as_bytes(), limit));
        let referer = headers.get(REFERER).map(|value| without_credentials(value.as_bytes()));
        Self {
            method: limited(request.method().as_str().as_bytes(), MAX_METHOD),
            scheme: scheme.clone(),
            host: limited(without_user(host), MAX_HOST),
            path: limited(uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes(), MAX_PATH),
            user_agent: header(USER_AGENT, MAX_USER_AGENT),
            referer: referer.map(|value| limited(&value, MAX_REFERER)),
        }
    }
}

fn limited(value: &[u8], limit: usize) -> Box<[u8]> {
    value.get(..limit).unwrap_or(value).into()
}

/// An authority without user and password.
fn without_user(authority: &[u8]) -> &[u8] {
    authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default()
}

/// A URL without user and password.
fn without_credentials(url: &[u8]) -> Cow<'_, [u8]> {
    let Some(colon) = url.windows(3).position(|part| part == b"://") else { return url.into() };
    let (scheme, rest) = url.split_at(colon + 3);
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.contains(&b'@') {
        true => [scheme, without_user(authority), path].concat().into(),
        false => url.into(),
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

impl Trail {
    /// The trail of a request.
    pub(crate) fn of_request<B>(
        connection: &Arc<LoggedConnection>,
        scheme: &HeaderValue,
        request: &Request<B>,
    ) -> Arc<Self> {
        let head = RequestHead::of(request, scheme);
        let trail = Self::new(Arc::clone(connection), protocol(request.version()), Some(head));
        trail.identified(request.headers());
        Arc::new(trail)
    }

    /// The trail of a connection whose bytes are forwarded.
    pub(crate) fn of_connection(connection: LoggedConnection, protocol: &'static str) -> Arc<Self> {
        Arc::new(Self::new(Arc::new(connection), protocol, None))
    }

    fn new(connection: Arc<LoggedConnection>, protocol: &'static str, request: Option<RequestHead>) -> Self {
        Self {
            connection,
            protocol,
            request,
            time: Timestamp::now(),
            began: Instant::now(),
            received: Arc::default(),
            sent: AtomicU64::new(0),
            found: Mutex::default(),
        }
    }

    /// Notes the request ID.
    pub(crate) fn identified(&self, headers: &HeaderMap) {
        let id = headers.get(REQUEST_ID).map(|id| limited(id.as_bytes(), MAX_REQUEST_ID));
        self.found.lock().request_id = id;
    }

    /// Notes which listener took it.
    pub(crate) fn accepted(&self, listener: &Arc<ListenerConfig>) {
        self.found.lock().listener = Some(Arc::clone(listener));
    }

    /// Notes which rule took it.
    pub(crate) fn matched(&self, place: &Arc<RulePlace>) {
        self.found.lock().place = Some(Arc::clone(place));
    }

    /// Notes who asks, if that is known.
    pub(crate) fn authenticated(&self, user: Option<&str>) {
        self.found.lock().user = user.map(|user| limited(user.as_bytes(), MAX_USER));
    }

    /// Notes the Service that is to get it.
    pub(crate) fn forwarded(&self, upstream: &Arc<Upstream>) {
        self.found.lock().upstream = Some(Arc::clone(upstream));
    }

    /// Notes the endpoint that is to get it.
    pub(crate) fn sent_to(&self, endpoint: SocketAddr) {
        self.found.lock().endpoint = Some(endpoint);
    }

    /// Notes why it is not forwarded.
    pub(crate) fn failed(&self, cause: Cause) {
        self.found.lock().cause = Some(cause);
    }

    /// Notes that the client did not wait for the end.
    pub(super) fn aborted(&self) {
        self.found.lock().is_aborted = true;
    }

    /// Counts the bytes that are received of the request.
    pub(crate) fn meter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Counts bytes of the response.
    pub(super) fn responded(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that were copied from and to the client.
    pub(crate) fn transferred(&self, (received, sent): (u64, u64)) {
        self.received.fetch_add(received, Relaxed);
        self.sent.fetch_add(sent, Relaxed);
    }

    /// Notes the status of a gRPC call.
    pub(super) fn ended(&self, headers: &HeaderMap) {
        if let Some(status) = headers.get(GRPC_STATUS).and_then(|status| status.to_str().ok()?.parse().ok()) {
            self.found.lock().grpc_status = Some(status);
        }
    }

    /// Notes the response head, and follows the response body to its end.
    pub(crate) fn follow(self: Arc<Self>, answer: Response<ResponseBody>) -> Response<ResponseBody> {
        self.ended(answer.headers());
        let status = answer.status();
        {
            let mut found = self.found.lock();
            (found.status, found.cause) = (Some(status), answer.body().cause());
        }
        let is_head = self.request.as_ref().is_some_and(|head| *head.method == *Method::HEAD.as_str().as_bytes());
        let has_body = !is_head
            && !status.is_informational()
            && ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        answer.map(|body| ResponseBody::Logged(Box::new(LoggedBody::new(body, self, has_body))))
    }

    fn status(&self, found: &Found) -> u16 {
        match (&self.request, found.cause) {
            (Some(_), _) => found.status.map_or(CLIENT_CLOSED, |status| status.as_u16()),
            (None, None) => 200,
            (None, Some(Cause::Refused(_))) => 403,
            (None, Some(_)) => 502,
        }
    }
}

/// The name of a listener; that of a ListenerSet has its set in front.
fn name(listener: &ListenerId) -> Cow<'_, str> {
    match &listener.set {
        Some(set) => format!("{set}/{}", listener.name).into(),
        None => (&*listener.name).into(),
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let (found, connection) = (self.found.lock(), &self.connection);
        let listener = found.listener.as_ref().map(|listener| name(&listener.id));
        connection.log.write(&Record {
            time: self.time,
            duration: self.began.elapsed(),
            client: connection.client,
            port: connection.port,
            protocol: self.protocol,
            request: self.request.as_ref(),
            status: self.status(&found),
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            gateway: connection.gateway.as_deref(),
            parent_service: connection.parent_service.as_deref(),
            client_pod: connection.client_pod.as_deref(),
            listener: listener.as_deref(),
            place: found.place.as_deref(),
            service: found.upstream.as_ref().map(|upstream| &*upstream.service),
            endpoint: found.endpoint,
            user: found.user.as_deref(),
            request_id: found.request_id.as_deref(),
            tls_version: connection.tls_version,
            server_name: connection.server_name.as_deref(),
            grpc_status: found.grpc_status,
            reason: found.cause.map(Cause::name),
            is_aborted: found.is_aborted || (self.request.is_some() && found.status.is_none()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_urls_are_left_out() {
        for (url, expected) in [
            ("https://ann:secret@web.example/a@b", "https://web.example/a@b"),
            ("https://a@b@web.example?x=y@z", "https://web.example?x=y@z"),
            ("https://web.example/a@b", "https://web.example/a@b"),
            ("android-app://x", "android-app://x"),
            ("no url @ all", "no url @ all"),
        ] {
            assert_eq!(&*without_credentials(url.as_bytes()), expected.as_bytes());
        }
        let head = |request: http::request::Builder| {
            RequestHead::of(&request.body(()).expect("a request"), &HeaderValue::from_static("http"))
        };
        let absolute = head(Request::get("http://ann:secret@web.example:8080/x?y"));
        assert_eq!((&*absolute.host, &*absolute.path), (&b"web.example:8080"[..], &b"/x?y"[..]));
        let by_header = head(Request::get("/").header("host", "ann:secret@web.example"));
        assert_eq!((&*by_header.host, &*by_header.path), (&b"web.example"[..], &b"/"[..]));
    }

    #[test]
    fn values_are_limited_in_length() {
        let long = "x".repeat(5000);
        let request =
            Request::get(format!("http://{long}/{long}")).header("user-agent", &long).header("referer", &long);
        let request = request.method(&*long).body(()).expect("a request");
        let head = RequestHead::of(&request, &HeaderValue::from_static("http"));
        let lengths = [&head.method, &head.host, &head.path].map(|value| value.len());
        assert_eq!(lengths, [MAX_METHOD, MAX_HOST, MAX_PATH]);
        assert_eq!(head.user_agent.map(|value| value.len()), Some(MAX_USER_AGENT));
        assert_eq!(head.referer.map(|value| value.len()), Some(MAX_REFERER));
    }
}
