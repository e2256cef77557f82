//! What must hold of the filters of a rule that takes a request: what they make of it can be sent, and has one meaning.

use api::view::gateway_api::Filter;
use http::{HeaderMap, HeaderValue, Uri};
use routing::filters::{CorsPolicy, Filters, RedirectRequest, Rewrite};
use routing::http_table::RequestView;

/// Applies filters to a request; `prefix` is the one that matched. Whether they can be applied at all.
///
/// # Panics
/// When they make something of the request that cannot be sent.
pub fn check(filters: &[Filter], request: &RequestView<'_>, prefix: Option<&str>) -> bool {
    let Ok(filters) = Filters::compile(filters) else { return false };
    let mut changed = request.headers.clone();
    filters.modify_request(&mut changed);
    filters.modify_response(&mut changed);
    if let Some(rewrite) = &filters.rewrite {
        rewritten(rewrite, request, prefix);
    }
    if let Some(redirect) = &filters.redirect {
        let RequestView { host, path, query, .. } = *request;
        for (scheme, listener_port) in [("http", 80), ("http", 8080), ("https", 443)] {
            let known = RedirectRequest { scheme, host, path, query, listener_port, prefix };
            let (status, location) = redirect.location(&known);
            assert!(status.is_redirection());
            location_is_safe(&location);
        }
    }
    if let Some(cors) = &filters.cors {
        shared(cors, request, &mut changed);
    }
    for mirror in &filters.mirrors {
        mirror.takes_next();
    }
    true
}

fn rewritten(rewrite: &Rewrite, request: &RequestView<'_>, prefix: Option<&str>) {
    let path = rewrite.path(request.path, prefix);
    assert!(path.starts_with('/') || path == request.path, "{path}");
    assert!(path.parse::<Uri>().is_ok(), "{path}");
    assert!(!path.contains(['?', '#']) || request.path.contains(['?', '#']), "{path} has more than a path");
    if let Some(host) = &rewrite.hostname {
        assert!(HeaderValue::from_str(host).is_ok(), "{host}");
    }
}

/// A URL with a scheme of HTTP, or a path that cannot be taken for a host.
fn location_is_safe(location: &HeaderValue) {
    let text = location.as_bytes();
    let is_url = text.starts_with(b"http://") || text.starts_with(b"https://");
    assert!(is_url || text.starts_with(b"/") && !text.starts_with(b"//"), "{location:?}");
}

/// Only one origin, or `*` without credentials, and to preflight requests the same.
fn shared(cors: &CorsPolicy, request: &RequestView<'_>, response: &mut HeaderMap) {
    let origin = request.headers.get("origin");
    cors.decorate(origin, response);
    let is_shared = |headers: &HeaderMap| {
        let all: Vec<&HeaderValue> = headers.get_all("access-control-allow-origin").iter().collect();
        assert!(all.len() <= 1, "{all:?}");
        let with_credentials = headers.contains_key("access-control-allow-credentials");
        assert!(!with_credentials || all.len() == 1, "credentials without an origin");
        for one in &all {
            assert!(*one == "*" && !with_credentials || Some(*one) == origin, "{one:?} for {origin:?}");
        }
        assert!(origin.is_some() || all.is_empty(), "no origin");
        all.first().map(|one| (*one).clone())
    };
    let ordinary = is_shared(response);
    if let Some(preflight) = cors.preflight(request.method, request.headers) {
        assert_eq!(is_shared(&preflight), ordinary, "to a preflight request");
    }
}
