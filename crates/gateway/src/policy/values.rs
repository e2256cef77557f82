//! The values of a request that templates of a policy use.

use http::header::HOST;
use http::request::Parts;
use routing::policy::RequestValues;

use super::Asked;

/// The host of a request, possibly with its port; empty if it has none.
pub(super) fn authority(parts: &Parts) -> &str {
    match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    }
}

/// Path and query.
pub(super) fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", |target| target.as_str())
}

/// All values.
pub(super) fn values<'a>(asked: &Asked<'a>, parts: &'a Parts) -> RequestValues<'a> {
    RequestValues {
        scheme: asked.scheme(),
        authority: authority(parts),
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers: &parts.headers,
        client: asked.client.address,
        port: asked.port,
        captures: &[],
    }
}
