//! RequestInfo: a request as authorization, audit and metrics see it: a verb on a resource, or a method on a path.
//!
//! In: method, path and query. Out: a [`RequestInfo`]. Paths are parsed by the rules of kube-apiserver, whether or not this server has
//! the resource: authorization comes before the error for an unknown resource.

use std::borrow::Cow;

use api::selector::{Terms, field_terms};
use http::Method;

use crate::auth::User;
use crate::authz::Attributes;
use crate::query;

/// The verb, resource and name of a request, or its path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestInfo<'a> {
    /// `get`, `list`, …; the method in lower case for paths.
    pub(crate) verb: Cow<'a, str>,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    /// The object, also when a list or watch selects it by name.
    pub(crate) name: String,
    pub(crate) namespace: &'a str,
    /// The terms of the field selector.
    pub(crate) fields: Terms,
    /// Set for non-resource requests.
    pub(crate) path: Option<&'a str>,
}

impl<'a> RequestInfo<'a> {
    /// Parses a request.
    pub(crate) fn of(method: &Method, path: &'a str, query: &[(String, String)]) -> Self {
        Self::resource(method, path, query).unwrap_or_else(|| Self {
            verb: method.as_str().to_ascii_lowercase().into(),
            path: Some(path),
            ..Self::default()
        })
    }

    fn resource(method: &Method, path: &'a str, query: &[(String, String)]) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts[..] {
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return None,
        };
        let (old_watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match *rest {
            [] => return None,
            // A Namespace counts as an object in itself, so that a Role there can grant reading it.
            ["namespaces", namespace, "status" | "finalize", ..] | ["namespaces", namespace] => (namespace, rest),
            ["namespaces", namespace, ref inner @ ..] => (namespace, inner),
            _ => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        let mut info = Self {
            verb: verb(method).into(),
            group,
            version,
            resource: part(0),
            subresource: part(2),
            name: part(1).to_owned(),
            namespace,
            fields: field_terms(query::first(query, "fieldSelector").unwrap_or_default()),
            path: None,
        };
        match (&*info.verb, info.name.is_empty()) {
            ("get", _) if old_watch => info.verb = "watch".into(),
            ("get", true) => {
                info.verb = if query::wants_watch(query) { "watch" } else { "list" }.into();
                info.name = selected(&info.fields).to_owned();
            }
            ("delete", true) => info.verb = "deletecollection".into(),
            _ => {}
        }
        Some(info)
    }

    /// The authorization attributes of the request for a user.
    pub(crate) fn attributes<'b>(&'b self, user: &'b User) -> Attributes<'b> {
        Attributes {
            user,
            verb: &self.verb,
            group: self.group,
            resource: self.resource,
            subresource: self.subresource,
            name: &self.name,
            namespace: self.namespace,
            fields: &self.fields,
            path: self.path,
        }
    }
}

const fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The name that a field selector requires; empty if none.
fn selected(fields: &Terms) -> &str {
    let found = fields.iter().find(|(field, equal, _)| *equal && field == "metadata.name");
    let name = found.map_or("", |(_, _, value)| value.as_str());
    if api::names::name_is_path_segment(name, false).is_empty() { name } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `VERB GROUP RESOURCE SUBRESOURCE NAME NAMESPACE`, or `VERB PATH`.
    fn read(method: &str, whole: &str) -> String {
        let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::of(&method, path, &query::parse(query));
        match info.path {
            Some(path) => format!("{} {path}", info.verb),
            None => format!(
                "{} {:?} {} {:?} {:?} {:?}",
                info.verb, info.group, info.resource, info.subresource, info.name, info.namespace
            ),
        }
    }

    #[test]
    fn paths_are_resources_or_not() {
        for (method, path, wanted) in [
            ("GET", "/api/v1/services", r#"list "" services "" "" """#),
            ("GET", "/api/v1/namespaces/a/services?watch=true", r#"watch "" services "" "" "a""#),
            ("GET", "/api/v1/watch/namespaces/a/services/web", r#"watch "" services "" "web" "a""#),
            ("HEAD", "/api/v1/namespaces/a/services/web", r#"get "" services "" "web" "a""#),
            ("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale", r#"update "apps" deployments "scale" "d" "a""#),
            ("GET", "/api/v1/namespaces/a/services/web/proxy/x/y", r#"get "" services "proxy" "web" "a""#),
            ("GET", "/api/v1/namespaces/a", r#"get "" namespaces "" "a" "a""#),
            ("PUT", "/api/v1/namespaces/a/finalize", r#"update "" namespaces "finalize" "a" "a""#),
            ("POST", "/api/v1/namespaces", r#"create "" namespaces "" "" """#),
            ("DELETE", "/api/v1/namespaces/a/pods", r#"deletecollection "" pods "" "" "a""#),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", r#"list "" pods "" "x" """#),
            ("GET", "/apis/frob.example.com/v1/namespaces/a/frobs", r#"list "frob.example.com" frobs "" "" "a""#),
            ("GET", "/api", "get /api"),
            ("GET", "/api/v1", "get /api/v1"),
            ("GET", "/apis/apps/v1/", "get /apis/apps/v1/"),
            ("POST", "/healthz", "post /healthz"),
        ] {
            assert_eq!(read(method, path), wanted, "{method} {path}");
        }
    }
}
