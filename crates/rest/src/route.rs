//! Routing: a path in, a [`Route`] out. No I/O.
//!
//! Kubernetes paths have a grammar (group, version, namespace, resource, name, subresource), so they are parsed against the table of
//! kinds instead of matched against patterns.

use api::custom::Kinds;
use api::kind::{Kind, Subresource};

/// The target of a path.
#[derive(Clone, Copy)]
pub(crate) enum Route<'a> {
    /// `/`
    Root,
    /// `/healthz`, `/livez`, `/readyz`, and one check below them.
    Health { page: &'static str, check: Option<&'a str> },
    /// `/version`
    Version,
    /// `/metrics`
    Metrics,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/{group}`
    Group(&'a str),
    /// `/api/v1`, `/apis/{group}/{version}`
    Resources { group: &'a str, version: &'a str },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3,
    /// `/openapi/v3/{group version}`
    OpenApiV3Document(&'a str),
    /// `/.well-known/openid-configuration`
    OpenIdConfiguration,
    /// `/openid/v1/jwks`
    JsonWebKeys,
    /// `/page`, and what follows `/page/`: the web UI.
    Ui(Option<&'a str>),
    /// An object, a collection, or a subresource.
    Resource(Target<'a>),
    /// A subresource that a custom resource does not have.
    NoSuchSubresource { kind: &'static Kind, name: &'a str },
    /// Unknown, but inside an existing group version.
    NoSuchResource,
    /// Unknown.
    NotFound,
}

/// An object, a collection, or a subresource.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The kind.
    pub(crate) kind: &'static Kind,
    /// The namespace, empty for cluster-scoped kinds and for lists across namespaces.
    pub(crate) namespace: &'a str,
    /// The name; `None` for a collection.
    pub(crate) name: Option<&'a str>,
    /// The subresource.
    pub(crate) subresource: Option<&'static Subresource>,
    /// The deprecated `/watch/` prefix.
    pub(crate) watch: bool,
}

/// Parses a path, which the caller has percent-decoded.
pub(crate) fn parse<'a>(path: &'a str, kinds: &Kinds) -> Route<'a> {
    if path == "/page" || path.starts_with("/page/") {
        return Route::Ui(path.strip_prefix("/page/"));
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    for page in ["healthz", "livez", "readyz"] {
        if let Some(rest) = trimmed.strip_prefix('/').and_then(|path| path.strip_prefix(page)) {
            match rest.strip_prefix('/') {
                Some(check) => return Route::Health { page, check: Some(check) },
                None if rest.is_empty() => return Route::Health { page, check: None },
                None => {}
            }
        }
    }
    match trimmed {
        "" => return Route::Root,
        "/version" => return Route::Version,
        "/metrics" => return Route::Metrics,
        "/api" => return Route::CoreVersions,
        "/apis" => return Route::Groups,
        "/.well-known/openid-configuration" => return Route::OpenIdConfiguration,
        "/openid/v1/jwks" => return Route::JsonWebKeys,
        "/openapi/v2" => return Route::OpenApiV2,
        "/openapi/v3" => return Route::OpenApiV3,
        _ => {}
    }
    if let Some(document) = trimmed.strip_prefix("/openapi/v3/") {
        return Route::OpenApiV3Document(document);
    }
    let (group, rest) = if let Some(rest) = trimmed.strip_prefix("/api/") {
        ("", rest)
    } else if let Some(rest) = trimmed.strip_prefix("/apis/") {
        rest.split_once('/').unwrap_or((rest, ""))
    } else {
        return Route::NotFound;
    };
    if !kinds.has_group(group) {
        return Route::NotFound;
    }
    if rest.is_empty() {
        return if group.is_empty() { Route::CoreVersions } else { Route::Group(group) };
    }
    let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if !kinds.has_version(group, version) {
        return if kinds.is_custom_group(group) { Route::NotFound } else { Route::NoSuchResource };
    }
    if rest.is_empty() {
        return Route::Resources { group, version };
    }
    match resource(kinds, group, version, rest) {
        Some(Ok(target)) => Route::Resource(target),
        Some(Err((kind, name))) => Route::NoSuchSubresource { kind, name },
        None if kinds.is_custom_group(group) => Route::NotFound,
        None => Route::NoSuchResource,
    }
}

/// Parses the part of a path behind its group version; the error is a subresource that a custom resource does not have.
fn resource<'a>(
    kinds: &Kinds,
    group: &str,
    version: &str,
    rest: &'a str,
) -> Option<Result<Target<'a>, (&'static Kind, &'a str)>> {
    let (watch, rest) = match rest.strip_prefix("watch/") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let whole = rest;
    let mut parts = rest.splitn(3, '/');
    let first = parts.next()?;
    let (namespace, rest) = match (first, parts.next(), parts.next()) {
        // `namespaces/{ns}/{resource}…`, unless what follows is a subresource of the Namespace itself.
        ("namespaces", Some(namespace), Some(inner)) if !is_namespace_part(inner) => (namespace, inner),
        _ => ("", rest),
    };
    let mut parts = rest.splitn(4, '/');
    let plural = parts.next()?;
    let name = parts.next();
    let part = parts.next();
    let kind = kinds.find(group, version, plural)?;
    let empty_namespace = namespace.is_empty() && rest.len() < whole.len();
    if empty_namespace || name.is_some_and(str::is_empty) || kind.namespaced && name.is_some() && namespace.is_empty() {
        return None;
    }
    if !kind.namespaced && !namespace.is_empty() {
        return None;
    }
    let subresource = match part {
        Some(part) => match (kind.subresource(part), name) {
            (Some(part), _) => Some(part),
            (None, Some(name)) if kind.is_custom() => return Some(Err((kind, name))),
            (None, _) => return None,
        },
        None => None,
    };
    let rest = parts.next().unwrap_or_default();
    if !rest.is_empty() && subresource.is_none_or(|sub| sub.name != "proxy") {
        return None;
    }
    Some(Ok(Target { kind, namespace, name, subresource, watch }))
}

fn is_namespace_part(path: &str) -> bool {
    matches!(path, "status" | "finalize")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Route<'_> {
        super::parse(path, Kinds::fixed())
    }

    fn target(path: &str) -> Option<(String, String, Option<String>, Option<&'static str>)> {
        match parse(path) {
            Route::Resource(target) => Some((
                target.kind.plural.to_owned(),
                target.namespace.to_owned(),
                target.name.map(str::to_owned),
                target.subresource.map(|sub| sub.name),
            )),
            _ => None,
        }
    }

    #[test]
    fn paths_of_objects_collections_and_parts() {
        let ns = || "a".to_owned();
        assert_eq!(target("/api/v1/services"), Some(("services".into(), String::new(), None, None)));
        assert_eq!(target("/api/v1/namespaces/a/services"), Some(("services".into(), ns(), None, None)));
        assert_eq!(
            target("/api/v1/namespaces/a/services/web/status"),
            Some(("services".into(), ns(), Some("web".into()), Some("status")))
        );
        assert_eq!(target("/api/v1/namespaces/a"), Some(("namespaces".into(), String::new(), Some(ns()), None)));
        assert_eq!(
            target("/api/v1/namespaces/a/finalize"),
            Some(("namespaces".into(), String::new(), Some(ns()), Some("finalize")))
        );
        assert_eq!(target("/api/v1/services/web"), None);
        assert_eq!(target("/api/v1/namespaces/a/nodes"), None);
    }

    #[test]
    fn unknown_paths_and_unknown_resources_differ() {
        assert!(matches!(parse("/api/v1/namespaces/a/frobs"), Route::NoSuchResource));
        assert!(matches!(parse("/api/v1/namespaces/a/services/web/frob"), Route::NoSuchResource));
        assert!(matches!(parse("/apis/frob.example.com/v1/things"), Route::NotFound));
        assert!(matches!(parse("/api/v2"), Route::NoSuchResource));
        assert!(matches!(parse("/api/v1/namespaces//services"), Route::NoSuchResource));
        assert!(matches!(parse("/healthzx"), Route::NotFound));
        assert!(matches!(parse("/readyz/store"), Route::Health { page: "readyz", check: Some("store") }));
    }

    #[test]
    fn the_deprecated_watch_prefix() {
        assert!(
            matches!(parse("/api/v1/watch/namespaces/a/services"), Route::Resource(t) if t.watch && t.namespace == "a")
        );
    }
}
