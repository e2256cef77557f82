//! Answers HTTP requests to a Gateway, or to a Service at layer 7: the listener of the host or the routes for the client, a
//! rule, filters, a backend.
//!
//! In: a request of a client. Out: a response from a backend, a redirect, an answer to a CORS preflight, or an error: 404
//! without a rule, 421 for another listener's host, 500 for a rule or backend that is invalid, those of the rule's policy. gRPC calls
//! get their status in a trailer.

use std::sync::Arc;
use std::time::Instant;

use api::acme;
use http::header::{ALT_SVC, CACHE_CONTROL, CONTENT_TYPE, EXPECT, HOST, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use routing::filters::{Filters, RedirectRequest};
use routing::hosts::{HostMap, host_of};
use routing::http_table::RequestView;
use routing::model::{ListenerConfig, ListenerProtocol};

use super::ingresses::headers as ingress_headers;
use super::mirror;
use super::rule::CompiledRule;
use super::tables::{PortTable, RoutedListener, RoutedPort};
use crate::access_log::Trail;
use crate::body::{BodyLimit, RequestBody, ResponseBody, linger};
use crate::cause::Cause;
use crate::error_pages;
use crate::forward::{Exchange, forward};
use crate::headers::{self, UpstreamProtocol};
use crate::http_proxy::{ClientConnection, ClientRequest};
use crate::policy::{Admitted, Asked, Enforced};
use crate::upstream::Upstream;

/// Bytes of a request body that are kept for a retry.
const REPLAY: usize = 64 * 1024;
/// Host of requests without one.
pub(super) const NO_HOST: &str = "localhost";

/// The rule of a request.
struct Found {
    /// None at a Service.
    listener: Option<Arc<ListenerConfig>>,
    /// The number of the port of the listener, or of the Service.
    port: u16,
    rule: Arc<CompiledRule>,
    /// The path prefix that matched.
    prefix: Option<Box<str>>,
}

/// Answers a request.
pub(crate) async fn answer(
    client: &Arc<ClientConnection>,
    port: &RoutedPort,
    mut request: ClientRequest,
) -> Response<ResponseBody> {
    if let Some(answer) = challenge(client, port, &request.parts) {
        return answer;
    }
    let (start, is_grpc) = (Instant::now(), headers::is_grpc(&request.parts));
    let (found, is_ingress) = find(client, port, &request, is_grpc);
    let mut answer = match found {
        Ok(found) => {
            headers::end_hop(&mut request.parts.headers);
            if is_ingress {
                headers::drop_underscores(&mut request.parts.headers);
                ingress_headers::describe(&mut request.parts, &client.client, || fastrand::u128(..));
            }
            if let Some(trail) = &request.trail {
                if let Some(listener) = &found.listener {
                    trail.accepted(listener);
                }
                trail.matched(&found.rule.place);
                trail.identified(&request.parts.headers);
            }
            let (method, mut backend) = (request.parts.method.clone(), None);
            // Boxed: the future is large, and that of requests to Services must stay small.
            let answer = Box::pin(apply(client, &found, is_grpc, request, &mut backend)).await;
            found.rule.metrics.answered(answer.status(), start.elapsed());
            count(client, port, (&method, answer.status()), backend.as_deref());
            match answer.body().cause() {
                Some(cause) if is_grpc && answer.status().is_server_error() => failed(cause, answer.status(), true),
                _ => answer,
            }
        }
        Err(cause) => {
            let answer = failed(cause, status_of(cause), is_grpc);
            count(client, port, (&request.parts.method, answer.status()), None);
            answer
        }
    };
    if is_ingress {
        ingress_headers::sign(answer.headers_mut());
    }
    if let Some(alt_svc) = port.alt_svc.load().as_deref().filter(|_| client.listener.is_some()) {
        answer.headers_mut().entry(ALT_SVC).or_insert_with(|| alt_svc.clone());
    }
    answer
}

/// Counts a response of a Service at layer 7, by what was asked and who did.
fn count(
    client: &ClientConnection,
    port: &RoutedPort,
    (method, status): (&Method, StatusCode),
    backend: Option<&Upstream>,
) {
    if let Some((service, source)) = port.service().zip(client.source.as_ref()) {
        service.requests.answered(backend.map(|upstream| &upstream.service), source.workload(), method, status);
    }
}

/// The answer to an HTTP-01 challenge, before any rule: redirects and authentication would prevent the validation. Requests with
/// other tokens go to the routes, where another ACME client may have its own.
fn challenge(client: &ClientConnection, port: &RoutedPort, parts: &Parts) -> Option<Response<ResponseBody>> {
    let token = parts.uri.path().strip_prefix(acme::PATH)?.strip_prefix('/')?;
    if client.listener.is_some() || !matches!(parts.method, Method::GET | Method::HEAD) {
        return None;
    }
    let text = port.challenges.http(port.gateway()?, &host_of(authority(parts)), token)?;
    let mut answer = Response::new(ResponseBody::own(Some(text), Cause::Challenge));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(answer)
}

/// Host and port that a request names.
fn authority(parts: &Parts) -> &str {
    match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    }
}

/// The status of a request without a response.
const fn status_of(cause: Cause) -> StatusCode {
    match cause {
        Cause::NoRoute => StatusCode::NOT_FOUND,
        Cause::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer when there is no response.
fn failed(cause: Cause, status: StatusCode, is_grpc: bool) -> Response<ResponseBody> {
    match (is_grpc, status) {
        (true, StatusCode::NOT_FOUND) => error_pages::grpc(cause, 12, "no rule of a route matches the call"),
        (true, status) if status.is_server_error() => error_pages::grpc(cause, 14, "no backend can serve the call"),
        (_, StatusCode::NOT_FOUND) => error_pages::page(cause, status, "No rule of a route matches the request."),
        (_, StatusCode::MISDIRECTED_REQUEST) => {
            error_pages::page(cause, status, "This connection is for another host; open a new one.")
        }
        _ => error_pages::page(cause, status, "The route that matches the request cannot be applied."),
    }
}

/// The answer to a request whose rule is invalid.
fn invalid() -> Response<ResponseBody> {
    failed(Cause::InvalidRule, status_of(Cause::InvalidRule), false)
}

/// Finds the listener and the rule of a request; whether the port is one of Ingresses.
fn find(
    client: &ClientConnection,
    port: &RoutedPort,
    request: &ClientRequest,
    is_grpc: bool,
) -> (Result<Found, Cause>, bool) {
    let parts = &request.parts;
    let host = host_of(authority(parts));
    let view = RequestView {
        method: &parts.method,
        host: &host,
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers: &parts.headers,
    };
    let table = port.table.load();
    if let PortTable::Ingress { listener, rules } = &**table {
        // All hosts of a class are served on all connections, whatever the server name was, as ingress-nginx does it.
        let rules = rules.load();
        let found = rules.find(&view).map(|rule| Found {
            listener: Some(Arc::clone(&listener.config)),
            port: listener.config.port,
            rule: Arc::clone(&rule.compiled),
            prefix: None,
        });
        return (found.ok_or(Cause::NoRoute), true);
    }
    if let PortTable::Mesh(mesh) = &**table {
        let found = client.source.as_ref().and_then(|source| mesh.http(source, &view, is_grpc));
        let found = found.map(|(rule, prefix)| Found { listener: None, port: mesh.number(), rule, prefix });
        return (found.ok_or(Cause::NoRoute), false);
    }
    (in_routes(client, &table, &view, is_grpc), false)
}

/// Finds the listener of a Gateway and the rule of a request.
fn in_routes(
    client: &ClientConnection,
    table: &PortTable,
    view: &RequestView<'_>,
    is_grpc: bool,
) -> Result<Found, Cause> {
    let listener = match (table, &client.listener) {
        (PortTable::Http(hosts), None) => hosts.find(view.host).ok_or(Cause::NoRoute)?,
        (PortTable::Tls(hosts), Some(own)) => {
            let listener = https_listener(hosts, view.host).ok_or(Cause::NoRoute)?;
            if listener.config.id != *own {
                return Err(Cause::Misdirected);
            }
            listener
        }
        _ => return Err(Cause::NoRoute),
    };
    let (rule, prefix) = listener.tables.load().find(view, is_grpc).ok_or(Cause::NoRoute)?;
    Ok(Found { listener: Some(Arc::clone(&listener.config)), port: listener.config.port, rule, prefix })
}

/// The HTTPS listener that a host would choose.
fn https_listener<'a>(hosts: &'a HostMap<Arc<RoutedListener>>, host: &'a str) -> Option<&'a Arc<RoutedListener>> {
    hosts.candidates(host).find(|listener| listener.config.protocol == ListenerProtocol::Https)
}

/// Applies a rule to a request. The backend that it goes to is noted.
async fn apply(
    client: &Arc<ClientConnection>,
    found: &Found,
    is_grpc: bool,
    mut request: ClientRequest,
    noted: &mut Option<Arc<Upstream>>,
) -> Response<ResponseBody> {
    let Found { listener: _, port, rule, prefix } = found;
    if rule.broken.is_some() {
        return invalid();
    }
    let origin = request.parts.headers.get(ORIGIN).cloned();
    let asked = Asked { client, port: *port, is_grpc, metrics: &rule.metrics };
    let (mut admitted, mut limit) = (Admitted::default(), None);
    if let Some(policy) = &rule.enforced {
        (request, admitted, limit) = match enforce(policy, &asked, &rule.filters, request).await {
            Ok(admitted) => admitted,
            Err(mut answer) => {
                // Scripts of other origins may see why they are refused.
                if let Some(cors) = rule.filters.cors.as_ref().filter(|_| answer.status().as_u16() >= 400) {
                    cors.decorate(origin.as_ref(), answer.headers_mut());
                }
                return answer;
            }
        };
    }
    if let Some(answer) = own_answer(&rule.filters, client, (*port, prefix.as_deref()), &request) {
        return answer;
    }
    let mut choice = rule.choose(client, &request.parts);
    let backend = choice.backend;
    let mut answer = match backend.map(|backend| (backend, &backend.upstream)) {
        Some((backend, Some(upstream))) => {
            *noted = Some(Arc::clone(upstream));
            if let Some(answer) = own_answer(&backend.filters, client, (*port, prefix.as_deref()), &request) {
                return answer;
            }
            let filters = [&rule.filters, &backend.filters];
            filters.iter().for_each(|filters| rewrite(filters, &mut request, prefix.as_deref()));
            if rule.enforced.as_ref().is_some_and(|policy| !policy.rewrite(&asked, &mut request.parts)) {
                return invalid();
            }
            let modify = |headers: &mut http::HeaderMap| filters.iter().for_each(|one| one.modify_request(headers));
            let copies = mirror::Copies::of(rule.receivers(backend), &request.parts);
            let idle = client.port_config.idle();
            let is_h2 = request.is_h2(upstream);
            let ClientRequest { mut parts, body, wanted, upgrade, trail } = request;
            let protocol = UpstreamProtocol { h2: is_h2, tls: upstream.tls.load().is_some() };
            if let Err(rejection) = headers::prepare(&mut parts, &client.client, protocol, wanted, NO_HOST) {
                return error_pages::rejected(rejection);
            }
            modify(&mut parts.headers);
            let meter = trail.as_deref().map(Trail::meter);
            let mut body = RequestBody::new(body, idle).limited(limit.as_ref()).metered(meter);
            if rule.retries() {
                body = match body.buffered(REPLAY, idle).await {
                    Ok(body) => body,
                    Err(_) => return error_pages::request_timeout(),
                };
            }
            copies.send(client, &mut body, &modify);
            let (request, in_use) = (Request::from_parts(parts, body), std::mem::take(&mut admitted.in_use));
            let exchange = Exchange { request, is_h2, upgrade, in_use, trail };
            let mut answer =
                forward(client, upstream, exchange, rule.policy(backend, idle), &mut choice.selection).await;
            // A response of the backend stands, whatever became of the request.
            if answer.body().cause().is_some() && limit.is_some_and(|limit| limit.is_exceeded()) {
                answer = asked.too_long();
            }
            backend.filters.modify_response(answer.headers_mut());
            answer
        }
        _ => invalid(),
    };
    rule.filters.modify_response(answer.headers_mut());
    let cors = rule.filters.cors.as_ref().or_else(|| backend.and_then(|backend| backend.filters.cors.as_ref()));
    if let Some(cors) = cors {
        cors.decorate(origin.as_ref(), answer.headers_mut());
    }
    choice.tell(client, answer.headers_mut());
    admitted.decorate(&mut answer);
    answer
}

/// Enforces the policy of a rule. Returns what accompanies the request, and the limit of a body whose length is unknown.
/// The error is an answer.
async fn enforce(
    policy: &Enforced,
    asked: &Asked<'_>,
    filters: &Filters,
    mut request: ClientRequest,
) -> Result<(ClientRequest, Admitted, Option<BodyLimit>), Response<ResponseBody>> {
    // Browsers send preflights without credentials: they are answered before access is checked, as by nginx.
    let early = policy.redirects(asked, &request.parts).or_else(|| preflight(filters, &request));
    if let Some(answer) = early {
        return Err(answer);
    }
    let admitted = policy.admit(asked, &mut request.parts).await?;
    if let Some(trail) = &request.trail {
        trail.authenticated(admitted.user.as_deref());
    }
    let is_h1 = request.parts.version <= Version::HTTP_11;
    let Some(limit) = policy.body_limit() else { return Ok((request, admitted, None)) };
    if request.body.size_hint().lower() > limit {
        // A client that waits for 100 Continue sends no body.
        if is_h1 && !request.parts.headers.contains_key(EXPECT) {
            linger(request.body);
        }
        return Err(asked.too_long());
    }
    let is_known = request.body.size_hint().exact().is_some();
    Ok((request, admitted, (!is_known).then(|| BodyLimit::new(limit, is_h1))))
}

/// The answer to a CORS preflight.
fn preflight(filters: &Filters, request: &ClientRequest) -> Option<Response<ResponseBody>> {
    let parts = &request.parts;
    let mut answer = Response::new(ResponseBody::own(None, Cause::Preflight));
    *answer.headers_mut() = filters.cors.as_ref()?.preflight(&parts.method, &parts.headers)?;
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Some(answer)
}

/// The answer of filters that need no backend: to a CORS preflight, or a redirect.
fn own_answer(
    filters: &Filters,
    client: &ClientConnection,
    (port, prefix): (u16, Option<&str>),
    request: &ClientRequest,
) -> Option<Response<ResponseBody>> {
    let parts = &request.parts;
    if let Some(answer) = preflight(filters, request) {
        return Some(answer);
    }
    let redirect = filters.redirect.as_ref()?;
    let scheme = client.client.proto.to_str().unwrap_or("http");
    let (status, location) = redirect.location(&RedirectRequest {
        scheme,
        host: &host_of(authority(parts)),
        path: parts.uri.path(),
        query: parts.uri.query(),
        listener_port: port,
        prefix,
    });
    let mut answer = Response::new(ResponseBody::own(None, Cause::Redirect));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::LOCATION, location);
    Some(answer)
}

/// Rewrites host and path.
fn rewrite(filters: &Filters, request: &mut ClientRequest, prefix: Option<&str>) {
    let Some(rewrite) = &filters.rewrite else { return };
    let parts = &mut request.parts;
    let path = rewrite.path(parts.uri.path(), prefix);
    let target = match parts.uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(&*path),
    };
    let target = target.unwrap_or_else(|_| PathAndQuery::from_static("/"));
    if let Some(host) = &rewrite.hostname
        && let Ok(host) = HeaderValue::from_str(host)
    {
        parts.headers.insert(HOST, host);
        parts.uri = Uri::from(target);
        return;
    }
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = Some(target);
    parts.uri = Uri::from_parts(uri).unwrap_or_default();
}
