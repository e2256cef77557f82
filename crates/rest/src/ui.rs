//! The web UI ("the page"): its files, its sessions, and which requests a session may send.
//!
//! In: requests below `/page/`, and requests to the API with the cookie of a session. Out: files; a login link for an authenticated
//! user; a session for the first client that opens the link within a minute; findings; and the user of the session, for requests that read
//! what the UI shows. Requests are authorized as any other of that user; this module only removes permissions.

mod documents;
mod files;
mod findings;
mod layer7;
mod rights;
mod sessions;

use std::sync::Arc;

use api::kind::Kind;
use api::status::Status;
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::auth::User;
use crate::handler::{Shared, failed};
use crate::negotiate::PLAIN;
use crate::reply::Reply;
use crate::route::{Route, Target};
use crate::view::{Include, View};

pub(crate) use documents::Documents;
pub(crate) use sessions::Sessions;

const JSON: &str = "application/json";
/// How the browser classifies the site that caused a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The longest body of a login, in bytes.
const MAX_LOGIN_BODY: usize = 1024;
/// The kinds that a session may read.
const KINDS: [(&str, &str); 21] = [
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
    ("gateway.networking.k8s.io", "backendtlspolicies"),
    ("gateway.networking.k8s.io", "gatewayclasses"),
    ("gateway.networking.k8s.io", "gateways"),
    ("gateway.networking.k8s.io", "grpcroutes"),
    ("gateway.networking.k8s.io", "httproutes"),
    ("gateway.networking.k8s.io", "listenersets"),
    ("gateway.networking.k8s.io", "referencegrants"),
    ("gateway.networking.k8s.io", "tcproutes"),
    ("gateway.networking.k8s.io", "tlsroutes"),
    ("gateway.networking.k8s.io", "udproutes"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
    ("waypost.dev", "trafficpolicies"),
];
/// The paths of nodes that a session may read.
const REPORTS: [&str; 2] = ["waypost/report", "waypost/rules"];

/// Handles a request below `/page`; `rest` is what follows `/page/`, if anything.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    certificate: Option<&[u8]>,
    parts: &request::Parts,
    rest: Option<&str>,
    body: Incoming,
    now: Timestamp,
) -> Reply {
    let Some(rest) = rest else {
        return Reply::bytes(308, "text/plain; charset=utf-8", "").with(header::LOCATION, "/page/");
    };
    let done = match (&parts.method, rest) {
        (&Method::POST, "links") => link(shared, certificate, &parts.headers, now),
        (&Method::POST, "session") => login(shared, parts, body, now).await,
        (&Method::DELETE, "session") => logout(shared, parts),
        (&Method::GET, "session") => session(shared, parts, now),
        (&Method::GET, "findings") => findings::answer(shared, parts, now).await,
        (_, "findings" | "links" | "session") => Err(Status::method_not_allowed()),
        (&Method::GET | &Method::HEAD, name) => {
            let have = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
            files::file(name, have).ok_or_else(Status::no_such_resource)
        }
        _ => Err(Status::method_not_allowed()),
    };
    let plain = View { form: PLAIN, include: Include::default(), now };
    done.unwrap_or_else(|status| files::guarded(failed(&plain, &status)))
}

/// A login link for an authenticated user.
fn link(shared: &Shared, certificate: Option<&[u8]>, headers: &HeaderMap, now: Timestamp) -> Result<Reply, Status> {
    let (user, credential) = shared.authn.identify(headers, certificate, now)?;
    let credential = credential.filter(|_| !user.is_in(crate::auth::UNAUTHENTICATED));
    let credential = credential.ok_or_else(Status::unauthorized)?;
    // A fragment is not sent to servers: the token reaches no log, no proxy and no other site.
    let path = format!("/page/#login={}", shared.sessions.link(&user.name, credential, now));
    let document = json!({"path": path, "user": user.name, "seconds": sessions::LINK_LIFETIME.as_secs()});
    Ok(Reply::bytes(201, JSON, document.to_string()).with(header::CACHE_CONTROL, "no-store"))
}

/// Starts a session with the token of a link.
async fn login(shared: &Shared, parts: &request::Parts, body: Incoming, now: Timestamp) -> Result<Reply, Status> {
    check_same_origin(parts)?;
    let read = tokio::time::timeout(shared.request_timeout, Limited::new(body, MAX_LOGIN_BODY).collect()).await;
    let read = read.map_err(|_| Status::timeout("Timeout: the token of the link did not arrive"))?;
    let body = read.map_err(|_| Status::too_large(MAX_LOGIN_BODY))?.to_bytes();
    let token: Value = serde_json::from_slice(&body).map_err(|_| Status::bad_request("the body is not JSON"))?;
    let token = token.get("link").and_then(Value::as_str).unwrap_or_default();
    let session = shared.sessions.login(token, |credential| shared.authn.renew(credential, now), now);
    let (cookie, user) = session.ok_or_else(|| Status {
        message:
            "this link was used already, is older than a minute, or its user is gone; type `waypost page` for a new one"
                .to_owned(),
        ..Status::unauthorized()
    })?;
    tracing::info!(user = user.name, "started session of the web UI");
    let set = format!("{}={cookie}; Path=/; Secure; HttpOnly; SameSite=Strict", cookie_name(shared));
    Ok(described(shared, &user).with(header::SET_COOKIE, set))
}

/// Ends the session, if there is one.
fn logout(shared: &Shared, parts: &request::Parts) -> Result<Reply, Status> {
    check_same_origin(parts)?;
    if let Some(token) = cookie(shared, &parts.headers) {
        shared.sessions.logout(token);
    }
    let set = format!("{}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0", cookie_name(shared));
    Ok(Reply::bytes(200, JSON, "{}").with(header::SET_COOKIE, set))
}

/// Describes the session; also the heartbeat of the UI.
fn session(shared: &Shared, parts: &request::Parts, now: Timestamp) -> Result<Reply, Status> {
    check_same_origin(parts)?;
    let user = user(shared, &parts.headers, now).ok_or_else(Status::unauthorized)?;
    Ok(described(shared, &user))
}

/// The kinds of layer 7 that the server has at this moment.
fn layer7_kinds(shared: &Shared) -> Vec<&'static Kind> {
    let kinds = shared.registry.kinds();
    let resources = diagnose::layer7::Kind::ALL.into_iter().map(diagnose::layer7::Kind::resource);
    resources.filter_map(|(group, version, plural)| kinds.find(group, version, plural)).collect()
}

/// The user of the session, and settings that are in no object.
fn described(shared: &Shared, user: &User) -> Reply {
    let ports = &shared.registry.ranges.ports;
    // Those of the Gateway API come and go with its definitions.
    let kinds: Vec<&str> = layer7_kinds(shared).into_iter().map(|kind| kind.plural).collect();
    let document = json!({
        "user": user.name, "version": env!("CARGO_PKG_VERSION"), "kinds": kinds,
        "nodePorts": {"first": ports.start(), "last": ports.end()},
    });
    Reply::bytes(200, JSON, document.to_string()).with(header::CACHE_CONTROL, "no-store")
}

/// The user of the session whose cookie a request to the API has; an error for requests that sessions may not send.
pub(crate) fn session_user(
    shared: &Shared,
    parts: &request::Parts,
    path: &str,
    route: &Route<'_>,
    now: Timestamp,
) -> Option<Result<User, Status>> {
    cookie(shared, &parts.headers)?;
    // Like any invalid credential: 401, not an anonymous request.
    let Some(user) = user(shared, &parts.headers, now) else { return Some(Err(Status::unauthorized())) };
    let allowed = check_same_origin(parts).and_then(|()| reads(&parts.method, path, parts.uri.path(), route));
    Some(allowed.map(|()| user))
}

/// Whether a request only reads what the UI shows.
fn reads(method: &Method, path: &str, raw: &str, route: &Route<'_>) -> Result<(), Status> {
    let Route::Resource(Target { kind, subresource, .. }) = route else {
        return Err(refused("page sessions may not use this path"));
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(refused("the page only reads; use kubectl to change objects"));
    }
    let known = KINDS.contains(&(kind.group, kind.plural));
    let allowed = match subresource.map(|part| part.name) {
        None => known,
        // Compared without percent-encoding, because the node gets the raw path.
        Some("proxy") => {
            let asked = path.split_once("/proxy/").map_or("", |(_, asked)| asked);
            kind.plural == "nodes" && path == raw && REPORTS.contains(&asked)
        }
        Some(_) => false,
    };
    if allowed { Ok(()) } else { Err(refused("page sessions may not read this; use kubectl")) }
}

/// Refuses cross-site requests, as far as the browser marks them. Another port of this host is another site.
fn check_same_origin(parts: &request::Parts) -> Result<(), Status> {
    let text = |name: &HeaderName| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(refused("cross-site request"));
    }
    // HTTP/2 has the host in the request target.
    let host = parts.uri.authority().map(http::uri::Authority::as_str).or_else(|| text(&header::HOST));
    match (text(&header::ORIGIN), host) {
        (Some(origin), Some(host)) if origin != format!("https://{host}") => Err(refused("cross-site request")),
        _ => Ok(()),
    }
}

fn refused(why: &str) -> Status {
    Status { code: 403, reason: Some("Forbidden"), message: why.to_owned(), details: None, continue_token: None }
}

/// The user of the session whose cookie a request carries, while the credential of the session is valid.
fn user(shared: &Shared, headers: &HeaderMap, now: Timestamp) -> Option<User> {
    let token = cookie(shared, headers)?;
    let user = shared.authn.renew(&shared.sessions.credential(token, now)?, now);
    if user.is_none() {
        shared.sessions.logout(token);
    }
    user
}

/// Cookies are not bound to ports: two servers of one host need different names.
fn cookie_name(shared: &Shared) -> String {
    format!("__Host-waypost-{}", shared.address.rsplit(':').next().unwrap_or_default())
}

fn cookie<'a>(shared: &Shared, headers: &'a HeaderMap) -> Option<&'a str> {
    let name = cookie_name(shared);
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, token)| token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::route;

    fn allowed(method: &Method, path: &str) -> bool {
        reads(method, path, path, &route::parse(path, api::custom::Kinds::fixed())).is_ok()
    }

    #[test]
    fn sessions_read_only_what_the_ui_shows() {
        for path in [
            "/api/v1/services",
            "/api/v1/namespaces/a/services/web",
            "/apis/discovery.k8s.io/v1/endpointslices",
            "/apis/networking.k8s.io/v1/ingresses",
            "/apis/waypost.dev/v1/namespaces/a/trafficpolicies",
            "/api/v1/nodes/n1/proxy/waypost/report",
            "/api/v1/nodes/n1/proxy/waypost/rules",
        ] {
            assert!(allowed(&Method::GET, path), "{path}");
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
                assert!(!allowed(&method, path), "{method} {path}");
            }
        }
        for path in [
            "/api/v1/secrets",
            "/api/v1/namespaces/a/configmaps/b",
            "/api/v1/namespaces/a/pods/b/exec",
            "/api/v1/namespaces/a/pods/b/attach",
            "/api/v1/namespaces/a/pods/b/portforward",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a/pods/b/proxy",
            "/api/v1/namespaces/a/pods/b/proxy/waypost/report",
            "/api/v1/namespaces/a/services/b/proxy/waypost/report",
            "/api/v1/nodes/n1/proxy/pods",
            "/api/v1/nodes/n1/proxy/waypost/report/../../exec",
            "/api/v1/nodes/n1/proxy/exec/a/b/c",
            "/metrics",
            "/apis",
            "/nowhere",
        ] {
            assert!(!allowed(&Method::GET, path), "{path}");
        }
        let path = "/api/v1/nodes/n1/proxy/waypost/report";
        let spelled = "/api/v1/nodes/n1/proxy/waypost%2Freport";
        assert!(reads(&Method::GET, path, spelled, &route::parse(path, api::custom::Kinds::fixed())).is_err());
    }

    #[test]
    fn cross_site_requests_are_refused() {
        let accepted = |pairs: &[(&HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).clone(), HeaderValue::from_static(value)));
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.headers = pairs.collect();
            check_same_origin(&parts).is_ok()
        };
        assert!(accepted(&[]) && accepted(&[(&FETCH_SITE, "same-origin")]) && accepted(&[(&FETCH_SITE, "none")]));
        assert!(accepted(&[(&header::ORIGIN, "https://h:1"), (&header::HOST, "h:1")]));
        for pairs in [
            &[(&FETCH_SITE, "cross-site")][..],
            &[(&FETCH_SITE, "same-site")],
            &[(&header::ORIGIN, "https://h:2"), (&header::HOST, "h:1")],
            &[(&header::ORIGIN, "http://h:1"), (&header::HOST, "h:1")],
            &[(&header::ORIGIN, "null"), (&header::HOST, "h:1")],
        ] {
            assert!(!accepted(pairs), "{pairs:?}");
        }
    }
}
