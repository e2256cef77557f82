//! Answers HTTP requests to a Gateway: the listener of the host, its rule, filters, a backend.
//!
//! In: a request of a client. Out: a response from a backend, a redirect, an answer to a CORS preflight, or an error: 404
//! without a rule, 421 for another listener's host, 500 for a rule or backend that is invalid. gRPC calls get their status in a trailer.

use std::sync::Arc;
use std::time::Instant;

use http::header::{HOST, ORIGIN};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use routing::filters::{Filters, RedirectRequest};
use routing::hosts::{HostMap, host_of};
use routing::http_table::RequestView;
use routing::model::ListenerProtocol;

use super::mirror;
use super::rule::CompiledRule;
use super::tables::{PortTable, RoutedListener, RoutedPort};
use crate::body::{RequestBody, ResponseBody};
use crate::error_pages;
use crate::forward::{Exchange, forward};
use crate::headers::{self, UpstreamProtocol};
use crate::http_proxy::{ClientConnection, ClientRequest};

/// Bytes of a request body that are kept for a retry.
const REPLAY: usize = 64 * 1024;
/// Host of requests without one.
pub(super) const NO_HOST: &str = "localhost";

/// The rule of a request.
struct Found {
    listener: Arc<RoutedListener>,
    rule: Arc<CompiledRule>,
    /// The path prefix that matched.
    prefix: Option<Box<str>>,
}

/// Answers a request.
pub(crate) async fn answer(
    client: &Arc<ClientConnection>,
    port: &RoutedPort,
    request: ClientRequest,
) -> Response<ResponseBody> {
    let (start, is_grpc) = (Instant::now(), headers::is_grpc(&request.parts));
    let found = match find(client, port, &request, is_grpc) {
        Ok(found) => found,
        Err(status) => return failed(status, is_grpc),
    };
    // Boxed: the future is large, and that of requests to Services must stay small.
    let answer = Box::pin(apply(client, &found, request)).await;
    found.rule.metrics.answered(answer.status(), start.elapsed());
    match &answer.body() {
        ResponseBody::Text(_) if is_grpc && answer.status().is_server_error() => failed(answer.status(), true),
        _ => answer,
    }
}

/// The answer when there is no response.
fn failed(status: StatusCode, is_grpc: bool) -> Response<ResponseBody> {
    match (is_grpc, status) {
        (true, StatusCode::NOT_FOUND) => error_pages::grpc(12, "no rule of a route matches the call"),
        (true, status) if status.is_server_error() => error_pages::grpc(14, "no backend can serve the call"),
        (_, StatusCode::NOT_FOUND) => error_pages::page(status, "No rule of a route matches the request."),
        (_, StatusCode::MISDIRECTED_REQUEST) => {
            error_pages::page(status, "This connection is for another host; open a new one.")
        }
        _ => error_pages::page(status, "The route that matches the request cannot be applied."),
    }
}

/// Finds the listener and the rule of a request.
fn find(client: &ClientConnection, port: &RoutedPort, request: &ClientRequest, is_grpc: bool) -> Result<Found, StatusCode> {
    let parts = &request.parts;
    let authority = match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    };
    let host = host_of(authority);
    let table = port.table.load();
    let listener = match (&**table, &client.listener) {
        (PortTable::Http(hosts), None) => hosts.find(&host).ok_or(StatusCode::NOT_FOUND)?,
        (PortTable::Tls(hosts), Some(own)) => {
            let listener = https_listener(hosts, &host).ok_or(StatusCode::NOT_FOUND)?;
            if listener.config.id != *own {
                return Err(StatusCode::MISDIRECTED_REQUEST);
            }
            listener
        }
        _ => return Err(StatusCode::NOT_FOUND),
    };
    let view = RequestView {
        method: &parts.method,
        host: &host,
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers: &parts.headers,
    };
    let tables = listener.tables.load();
    let selected = match is_grpc {
        true => tables.grpc.find(&view).or_else(|| tables.http.find(&view)),
        false => tables.http.find(&view),
    };
    let selected = selected.ok_or(StatusCode::NOT_FOUND)?;
    let (rule, prefix) = (Arc::clone(selected.rule), selected.prefix.map(Into::into));
    Ok(Found { listener: Arc::clone(listener), rule, prefix })
}

/// The HTTPS listener that a host would choose.
fn https_listener<'a>(hosts: &'a HostMap<Arc<RoutedListener>>, host: &'a str) -> Option<&'a Arc<RoutedListener>> {
    hosts.candidates(host).find(|listener| listener.config.protocol == ListenerProtocol::Https)
}

/// Applies a rule to a request.
async fn apply(client: &Arc<ClientConnection>, found: &Found, mut request: ClientRequest) -> Response<ResponseBody> {
    let Found { listener, rule, prefix } = found;
    if rule.broken.is_some() {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, false);
    }
    let origin = request.parts.headers.get(ORIGIN).cloned();
    if let Some(answer) = own_answer(&rule.filters, client, (listener, prefix.as_deref()), &request) {
        return answer;
    }
    let backend = rule.next();
    let mut answer = match backend.map(|backend| (backend, &backend.upstream)) {
        Some((backend, Some(upstream))) => {
            if let Some(answer) = own_answer(&backend.filters, client, (listener, prefix.as_deref()), &request) {
                return answer;
            }
            let filters = [&rule.filters, &backend.filters];
            filters.iter().for_each(|filters| rewrite(filters, &mut request, prefix.as_deref()));
            let modify = |headers: &mut http::HeaderMap| filters.iter().for_each(|one| one.modify_request(headers));
            let copies = mirror::Copies::of(rule.receivers(backend), &request.parts);
            let idle = client.port_config.idle();
            let is_h2 = request.is_h2(upstream);
            let ClientRequest { mut parts, body, wanted, upgrade } = request;
            let protocol = UpstreamProtocol { h2: is_h2, tls: upstream.tls.load().is_some() };
            if let Err(rejection) = headers::prepare(&mut parts, &client.client, protocol, wanted, NO_HOST) {
                return error_pages::rejected(rejection);
            }
            modify(&mut parts.headers);
            let mut body = RequestBody::new(body, idle);
            if rule.retries() {
                body = match body.buffered(REPLAY, idle).await {
                    Ok(body) => body,
                    Err(_) => return error_pages::request_timeout(),
                };
            }
            copies.send(client, &mut body, &modify);
            let exchange = Exchange { request: Request::from_parts(parts, body), is_h2, upgrade };
            let mut answer = forward(client, upstream, exchange, rule.policy(idle)).await;
            backend.filters.modify_response(answer.headers_mut());
            answer
        }
        _ => failed(StatusCode::INTERNAL_SERVER_ERROR, false),
    };
    rule.filters.modify_response(answer.headers_mut());
    let cors = rule.filters.cors.as_ref().or_else(|| backend.and_then(|backend| backend.filters.cors.as_ref()));
    if let Some(cors) = cors {
        cors.decorate(origin.as_ref(), answer.headers_mut());
    }
    answer
}

/// The answer of filters that need no backend: to a CORS preflight, or a redirect.
fn own_answer(
    filters: &Filters,
    client: &ClientConnection,
    (listener, prefix): (&RoutedListener, Option<&str>),
    request: &ClientRequest,
) -> Option<Response<ResponseBody>> {
    let parts = &request.parts;
    if let Some(cors) = &filters.cors
        && let Some(headers) = cors.preflight(&parts.method, &parts.headers)
    {
        let mut answer = Response::new(ResponseBody::Text(None));
        *answer.status_mut() = StatusCode::NO_CONTENT;
        *answer.headers_mut() = headers;
        return Some(answer);
    }
    let redirect = filters.redirect.as_ref()?;
    let scheme = client.client.proto.to_str().unwrap_or("http");
    let host = match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    };
    let (status, location) = redirect.location(&RedirectRequest {
        scheme,
        host: &host_of(host),
        path: parts.uri.path(),
        query: parts.uri.query(),
        listener_port: listener.config.port,
        prefix,
    });
    let mut answer = Response::new(ResponseBody::Text(None));
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
