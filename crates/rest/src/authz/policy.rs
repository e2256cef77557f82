//! The table behind [`super::authorize`], and how a request is matched against it.
//!
//! Patterns mean what they mean in RBAC: `*` is everything, `services` the resource without its subresources,
//! `services/status` one subresource, `*/status` that subresource of every resource; `/api/*` is a prefix.

use super::Attributes;
use crate::auth::{AUTHENTICATED, UNAUTHENTICATED, User};
use crate::pki::MASTERS;

/// The group of nodes.
const NODES: &str = "system:nodes";
/// What the user name of a node begins with.
const NODE_USER_PREFIX: &str = "system:node:";

/// What one group may do.
#[derive(Debug)]
pub struct Role {
    /// The group.
    pub group: &'static str,
    /// On resources.
    pub rules: &'static [Rule],
    /// On paths.
    pub verbs_on_paths: &'static [&'static str],
    /// These paths.
    pub paths: &'static [&'static str],
}

/// Verbs on resources.
#[derive(Debug)]
pub struct Rule {
    /// `get` …
    pub verbs: &'static [&'static str],
    /// API groups.
    pub groups: &'static [&'static str],
    /// Resources, with their subresources when these are meant.
    pub resources: &'static [&'static str],
    /// Not these, although `resources` has them: a resource with all its subresources, or `*/sub`.
    pub except: &'static [&'static str],
    /// Only the object that is named like the node that asks.
    pub own_node: bool,
}

const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["*"];

const fn rule(
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
) -> Rule {
    Rule { verbs, groups, resources, except: &[], own_node: false }
}

static ROLES: &[Role] = &[
    Role { group: MASTERS, rules: &[rule(ALL, ALL, ALL)], verbs_on_paths: ALL, paths: ALL },
    Role {
        group: NODES,
        rules: &[
            rule(&["get"], &[""], &["secrets"]),
            rule(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]),
            rule(&["create", "patch", "update"], &["coordination.k8s.io"], &["leases"]),
            rule(&["create"], &[""], &["nodes"]),
            Rule { own_node: true, ..rule(&["patch", "update"], &[""], &["nodes", "nodes/status"]) },
            rule(&["patch", "update"], &[""], &["pods/status"]),
            rule(&["delete"], &[""], &["pods"]),
        ],
        verbs_on_paths: &[],
        paths: &[],
    },
    Role {
        group: AUTHENTICATED,
        rules: &[
            Rule {
                // A GET of exec, attach, portforward or proxy is no reading: it runs what it reaches.
                except: &["secrets", "*/exec", "*/attach", "*/portforward", "*/proxy"],
                ..rule(READ, ALL, ALL)
            },
            rule(&["create"], &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
            rule(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
        ],
        verbs_on_paths: &["get"],
        paths: &[
            "/",
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/healthz/*",
            "/livez",
            "/livez/*",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/readyz/*",
            "/version",
            "/version/",
        ],
    },
    Role {
        group: UNAUTHENTICATED,
        rules: &[],
        verbs_on_paths: &["get"],
        paths: &["/healthz", "/livez", "/readyz", "/version", "/version/"],
    },
];

/// The roles of a user.
pub fn roles_of(user: &User) -> impl Iterator<Item = &'static Role> {
    ROLES.iter().filter(|role| user.is_in(role.group))
}

/// The name of the node that a user is.
#[must_use]
pub fn own_node(user: &User) -> Option<&str> {
    user.name.strip_prefix(NODE_USER_PREFIX)
}

impl Role {
    /// Whether this role is enough for a request.
    #[must_use]
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        match asked.path {
            None => self.rules.iter().any(|rule| rule.allows(asked)),
            Some(path) => has(self.verbs_on_paths, asked.verb) && self.paths.iter().any(|own| path_matches(own, path)),
        }
    }
}

impl Rule {
    fn allows(&self, asked: &Attributes<'_>) -> bool {
        has(self.verbs, asked.verb)
            && has(self.groups, asked.group)
            && self.resources.iter().any(|pattern| resource_matches(pattern, asked))
            && !self.except.iter().any(|pattern| is_excepted(pattern, asked))
            && (!self.own_node || own_node(asked.user) == Some(asked.name))
    }
}

fn has(list: &[&str], word: &str) -> bool {
    list.iter().any(|own| *own == "*" || *own == word)
}

fn resource_matches(pattern: &str, asked: &Attributes<'_>) -> bool {
    if pattern == "*" {
        return true;
    }
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    subresource == asked.subresource && (resource == asked.resource || (resource == "*" && !subresource.is_empty()))
}

/// A review may ask for `*`: that includes what is excepted.
fn is_excepted(pattern: &str, asked: &Attributes<'_>) -> bool {
    match pattern.split_once('/') {
        Some((_, subresource)) => [subresource, "*"].contains(&asked.subresource),
        None => [pattern, "*"].contains(&asked.resource),
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}
