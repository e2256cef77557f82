//! The page: its files, the way in, and what a visitor may ask.
//!
//! In: requests below `/page/`, and requests to the API that carry the cookie of a visit. Out: files; a link for somebody who has shown who they
//! are; a visit for whoever opens that link within a minute; and that user, for requests that read what the page shows and nothing else.
//! What the user may see is decided as for any request of theirs; what is here only ever takes rights away.

mod files;
mod visits;

use std::sync::Arc;

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

pub(crate) use visits::Visits;

const JSON: &str = "application/json";
/// Whether the browser thinks that a page of ours asks.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The longest body that has a word in it.
const BODY: usize = 1024;
/// The kinds that the page reads.
const KINDS: [(&str, &str); 8] = [
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
];
/// What the page asks of nodes.
const REPORTS: [&str; 2] = ["waypost/report", "waypost/rules"];

/// Answers a request below `/page`; `rest` is what follows `/page/`, if that is there.
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
        (&Method::POST, "session") => enter(shared, parts, body, now).await,
        (&Method::DELETE, "session") => leave(shared, parts),
        (&Method::GET, "session") => session(shared, parts, now),
        (_, "links" | "session") => Err(Status::method_not_allowed()),
        (&Method::GET | &Method::HEAD, name) => {
            let have = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
            files::file(name, have).ok_or_else(Status::no_such_resource)
        }
        _ => Err(Status::method_not_allowed()),
    };
    let plain = View { form: PLAIN, include: Include::default(), now };
    done.unwrap_or_else(|status| files::guarded(failed(&plain, &status)))
}

/// A link for whoever asks, when it is known who that is.
fn link(shared: &Shared, certificate: Option<&[u8]>, headers: &HeaderMap, now: Timestamp) -> Result<Reply, Status> {
    let (user, credential) = shared.authn.identify(headers, certificate, now)?;
    let credential = credential.filter(|_| !user.is_in(crate::auth::UNAUTHENTICATED));
    let credential = credential.ok_or_else(Status::unauthorized)?;
    // Behind the mark of a fragment the word reaches no log, no proxy and no other site.
    let path = format!("/page/#login={}", shared.visits.link(&user.name, credential, now));
    let document = json!({"path": path, "user": user.name, "seconds": visits::LINK.as_secs()});
    Ok(Reply::bytes(201, JSON, document.to_string()).with(header::CACHE_CONTROL, "no-store"))
}

/// Begins a visit with the word of a link.
async fn enter(shared: &Shared, parts: &request::Parts, body: Incoming, now: Timestamp) -> Result<Reply, Status> {
    is_from_here(parts)?;
    let read = tokio::time::timeout(shared.request_timeout, Limited::new(body, BODY).collect()).await;
    let read = read.map_err(|_| Status::timeout("Timeout: the word of the link did not come"))?;
    let body = read.map_err(|_| Status::too_large(BODY))?.to_bytes();
    let word: Value = serde_json::from_slice(&body).map_err(|_| Status::bad_request("the body is no JSON"))?;
    let word = word.get("link").and_then(Value::as_str).unwrap_or_default();
    let entered = shared.visits.enter(word, |credential| shared.authn.renew(credential, now), now);
    let (cookie, user) = entered.ok_or_else(|| Status {
        message:
            "this link was used already, is older than a minute, or its user is gone; type `waypost page` for a new one"
                .to_owned(),
        ..Status::unauthorized()
    })?;
    tracing::info!(user = user.name, "a visit of the page begins");
    let set = format!("{}={cookie}; Path=/; Secure; HttpOnly; SameSite=Strict", cookie_name(shared));
    Ok(described(shared, &user).with(header::SET_COOKIE, set))
}

/// Ends a visit; whoever has none has left already.
fn leave(shared: &Shared, parts: &request::Parts) -> Result<Reply, Status> {
    is_from_here(parts)?;
    if let Some(word) = cookie(shared, &parts.headers) {
        shared.visits.leave(word);
    }
    let set = format!("{}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0", cookie_name(shared));
    Ok(Reply::bytes(200, JSON, "{}").with(header::SET_COOKIE, set))
}

/// Says who visits. The page also asks this to learn whether the server is there.
fn session(shared: &Shared, parts: &request::Parts, now: Timestamp) -> Result<Reply, Status> {
    is_from_here(parts)?;
    let user = user(shared, &parts.headers, now).ok_or_else(Status::unauthorized)?;
    Ok(described(shared, &user))
}

/// Who visits, and what the page shows that no object says.
fn described(shared: &Shared, user: &User) -> Reply {
    let ports = &shared.registry.ranges.ports;
    let document = json!({
        "user": user.name, "version": env!("CARGO_PKG_VERSION"), "nodePorts": {"first": ports.start(), "last": ports.end()},
    });
    Reply::bytes(200, JSON, document.to_string()).with(header::CACHE_CONTROL, "no-store")
}

/// The visitor who sends a request to the API, if one does: the user, or why this is not for visitors.
pub(crate) fn visitor(
    shared: &Shared,
    parts: &request::Parts,
    path: &str,
    route: &Route<'_>,
    now: Timestamp,
) -> Option<Result<User, Status>> {
    cookie(shared, &parts.headers)?;
    // Like any invalid credential: 401, not an anonymous request.
    let Some(user) = user(shared, &parts.headers, now) else { return Some(Err(Status::unauthorized())) };
    let allowed = is_from_here(parts).and_then(|()| reads(&parts.method, path, parts.uri.path(), route));
    Some(allowed.map(|()| user))
}

/// Whether a request only reads what the page shows.
fn reads(method: &Method, path: &str, raw: &str, route: &Route<'_>) -> Result<(), Status> {
    let Route::Resource(Target { kind, subresource, .. }) = route else {
        return Err(refused("the page has no use for this path"));
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(refused("the page only reads; type the command for what you want to change"));
    }
    let known = KINDS.contains(&(kind.group, kind.plural));
    let allowed = match subresource.map(|part| part.name) {
        None => known,
        // As it stands and not by another spelling: what is compared here is what the node gets.
        Some("proxy") => {
            let asked = path.split_once("/proxy/").map_or("", |(_, asked)| asked);
            kind.plural == "nodes" && path == raw && REPORTS.contains(&asked)
        }
        Some(_) => false,
    };
    if allowed { Ok(()) } else { Err(refused("the page does not show this; use kubectl")) }
}

/// Refuses what another site made the browser ask, as far as the browser says so. Another port of this host is another site, too.
fn is_from_here(parts: &request::Parts) -> Result<(), Status> {
    let text = |name: &HeaderName| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(refused("another site asks for this"));
    }
    // HTTP/2 says in the address which host is meant.
    let host = parts.uri.authority().map(http::uri::Authority::as_str).or_else(|| text(&header::HOST));
    match (text(&header::ORIGIN), host) {
        (Some(origin), Some(host)) if origin != format!("https://{host}") => Err(refused("another site asks for this")),
        _ => Ok(()),
    }
}

fn refused(why: &str) -> Status {
    Status { code: 403, reason: Some("Forbidden"), message: why.to_owned(), details: None, continue_token: None }
}

/// The user of the visit whose cookie a request carries, as long as the credential is good that the visit began with.
fn user(shared: &Shared, headers: &HeaderMap, now: Timestamp) -> Option<User> {
    let word = cookie(shared, headers)?;
    let user = shared.authn.renew(&shared.visits.credential(word, now)?, now);
    if user.is_none() {
        shared.visits.leave(word);
    }
    user
}

/// Cookies do not tell ports apart: two servers of one host must not take each other's.
fn cookie_name(shared: &Shared) -> String {
    format!("__Host-waypost-{}", shared.address.rsplit(':').next().unwrap_or_default())
}

fn cookie<'a>(shared: &Shared, headers: &'a HeaderMap) -> Option<&'a str> {
    let name = cookie_name(shared);
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::route;

    fn allowed(method: &Method, path: &str) -> bool {
        reads(method, path, path, &route::parse(path)).is_ok()
    }

    #[test]
    fn visitors_read_what_the_page_shows_and_nothing_else() {
        for path in [
            "/api/v1/services",
            "/api/v1/namespaces/a/services/web",
            "/apis/discovery.k8s.io/v1/endpointslices",
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
        assert!(reads(&Method::GET, path, spelled, &route::parse(path)).is_err());
    }

    #[test]
    fn other_sites_are_refused() {
        let told = |pairs: &[(&HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).clone(), HeaderValue::from_static(value)));
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.headers = pairs.collect();
            is_from_here(&parts).is_ok()
        };
        assert!(told(&[]) && told(&[(&FETCH_SITE, "same-origin")]) && told(&[(&FETCH_SITE, "none")]));
        assert!(told(&[(&header::ORIGIN, "https://h:1"), (&header::HOST, "h:1")]));
        for pairs in [
            &[(&FETCH_SITE, "cross-site")][..],
            &[(&FETCH_SITE, "same-site")],
            &[(&header::ORIGIN, "https://h:2"), (&header::HOST, "h:1")],
            &[(&header::ORIGIN, "http://h:1"), (&header::HOST, "h:1")],
            &[(&header::ORIGIN, "null"), (&header::HOST, "h:1")],
        ] {
            assert!(!told(pairs), "{pairs:?}");
        }
    }
}
