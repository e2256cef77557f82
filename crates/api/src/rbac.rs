//! Role-based access control: what a rule allows, and whether rules cover others.
//!
//! In: the `rules` of a Role or ClusterRole and a [`Request`]. Out: allowed or not. Patterns mean what they mean in
//! Kubernetes: `*` is everything, `services` the resource without its subresources, `services/status` one subresource, `*/status` that
//! subresource of every resource; a path that ends in `*` is a prefix. No I/O; who has which rules is found by the server.

pub mod cover;
pub mod defaults;

use serde_json::{Value, json};

use crate::value::ValueExt as _;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Matches everything, in every list.
const ALL: &str = "*";

/// One rule of a role.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyRule {
    /// `get`, `list`, …
    pub verbs: Vec<String>,
    /// API groups; the core group is empty.
    pub api_groups: Vec<String>,
    /// Resources, with their subresources where these are meant.
    pub resources: Vec<String>,
    /// Only objects of these names; none are all.
    pub resource_names: Vec<String>,
    /// Paths that are no resources.
    pub non_resource_urls: Vec<String>,
}

/// What a rule is held against.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// A verb on a resource.
    Resource {
        /// `get`, `list`, …
        verb: &'a str,
        /// The API group, empty for core.
        group: &'a str,
        /// The plural.
        resource: &'a str,
        /// Empty for the resource itself.
        subresource: &'a str,
        /// Empty where no single object is meant.
        name: &'a str,
    },
    /// A verb on a path.
    Path {
        /// The method in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl PolicyRule {
    /// Reads a rule of a role.
    #[must_use]
    pub fn read(rule: &Value) -> Self {
        let list = |name: &str| rule.texts(name).into_iter().map(str::to_owned).collect();
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// Reads the rules of a role.
    #[must_use]
    pub fn read_all(role: &Value) -> Vec<Self> {
        role.items("rules").iter().map(Self::read).collect()
    }

    /// The rule as roles and reviews show it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = json!({"verbs": self.verbs});
        for (name, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                out[name] = json!(list);
            }
        }
        out
    }

    /// Whether this rule allows a request.
    #[must_use]
    pub fn allows(&self, request: &Request<'_>) -> bool {
        match *request {
            Request::Resource { verb, group, resource, subresource, name } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.resources.iter().any(|pattern| resource_matches(pattern, resource, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.iter().any(|own| own == name))
            }
            Request::Path { verb, path } => {
                has(&self.verbs, verb) && self.non_resource_urls.iter().any(|pattern| path_matches(pattern, path))
            }
        }
    }
}

fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|own| own == ALL || own == word)
}

fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((own, part)) => !subresource.is_empty() && part == subresource && (own == resource || own == ALL),
    }
}

/// Whether a pattern of `nonResourceURLs` covers a path, or another pattern.
fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix(ALL) {
        Some(prefix) => path.starts_with(prefix.trim_end_matches(ALL)),
        None => path == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<'a>(verb: &'a str, group: &'a str, whole: &'a str, name: &'a str) -> Request<'a> {
        let (resource, subresource) = whole.split_once('/').unwrap_or((whole, ""));
        Request::Resource { verb, group, resource, subresource, name }
    }

    #[test]
    fn a_resource_does_not_include_its_subresources() {
        let rule =
            PolicyRule::read(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["services", "*/status"]}));
        for (whole, allowed) in [
            ("services", true),
            ("services/status", true),
            ("pods/status", true),
            ("services/proxy", false),
            ("pods", false),
        ] {
            assert_eq!(rule.allows(&on("get", "", whole, "a")), allowed, "{whole}");
        }
        assert!(!rule.allows(&on("list", "", "services", "")) && !rule.allows(&on("get", "apps", "services", "")));
        assert!(!rule.allows(&Request::Path { verb: "get", path: "/healthz" }));
    }

    #[test]
    fn names_limit_a_rule_to_objects() {
        let names = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a", "b"]});
        let rule = PolicyRule::read(&names);
        assert!(rule.allows(&on("get", "x", "y/z", "a")) && rule.allows(&on("list", "", "pods", "b")));
        // A create and a list have no name.
        assert!(!rule.allows(&on("create", "", "pods", "")) && !rule.allows(&on("get", "", "pods", "c")));
        assert_eq!(rule.to_value(), names);
    }

    #[test]
    fn paths_are_exact_or_prefixes() {
        let rule = PolicyRule::read(&json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/frob/*"]}));
        for (path, allowed) in
            [("/healthz", true), ("/healthz/", false), ("/frob/", true), ("/frob/a/b", true), ("/frob", false)]
        {
            assert_eq!(rule.allows(&Request::Path { verb: "get", path }), allowed, "{path}");
        }
        assert!(!rule.allows(&Request::Path { verb: "post", path: "/healthz" }));
        assert!(!rule.allows(&on("get", "", "healthz", "")));
    }
}
