//! The table behind [`super::authorize`], and how a request is matched against it.
//!
//! Patterns mean what they mean in RBAC: `*` is everything, `services` the resource without its subresources,
//! `services/status` one subresource, `*/status` that subresource of every resource; `/api/*` is a prefix.

use api::bootstrap_token::{CLUSTER_INFO, GROUP as BOOTSTRAPPERS};

use super::Attributes;
use super::node::NODES;
use crate::auth::{AUTHENTICATED, UNAUTHENTICATED, User};
use crate::pki::MASTERS;

/// What one group may do.
#[derive(Debug)]
pub struct Role {
    /// The group.
    pub group: &'static str,
    /// Not those who are in one of these groups too.
    pub but_not: &'static [&'static str],
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
    /// Only objects of these names; none are all.
    pub names: &'static [&'static str],
    /// Only objects of this namespace; empty are all.
    pub namespace: &'static str,
}

const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["*"];

pub(super) const fn rule(
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
) -> Rule {
    Rule { verbs, groups, resources, except: &[], names: &[], namespace: "" }
}

/// What the cluster says of itself to those who are about to join it.
const DESCRIPTION: Rule =
    Rule { names: &[CLUSTER_INFO.1], namespace: CLUSTER_INFO.0, ..rule(&["get"], &[""], &["configmaps"]) };

static ROLES: &[Role] = &[
    Role { group: MASTERS, but_not: &[], rules: &[rule(ALL, ALL, ALL)], verbs_on_paths: ALL, paths: ALL },
    Role {
        group: BOOTSTRAPPERS,
        but_not: &[],
        rules: &[rule(&["create", "get", "list", "watch"], &["certificates.k8s.io"], &["certificatesigningrequests"])],
        verbs_on_paths: &[],
        paths: &[],
    },
    Role {
        group: AUTHENTICATED,
        // Machines need not know what people may: each has its own rules.
        but_not: &[NODES, BOOTSTRAPPERS],
        rules: &[Rule {
            // A GET of exec, attach, portforward or proxy is no reading: it runs what it reaches.
            except: &["secrets", "*/exec", "*/attach", "*/portforward", "*/proxy"],
            ..rule(READ, ALL, ALL)
        }],
        verbs_on_paths: &[],
        paths: &[],
    },
    Role {
        group: AUTHENTICATED,
        but_not: &[],
        rules: &[
            DESCRIPTION,
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
        but_not: &[],
        rules: &[DESCRIPTION],
        verbs_on_paths: &["get"],
        paths: &["/healthz", "/livez", "/readyz", "/version", "/version/"],
    },
];

/// The roles of a user.
pub fn roles_of(user: &User) -> impl Iterator<Item = &'static Role> {
    let is_meant = |role: &&Role| user.is_in(role.group) && !role.but_not.iter().any(|group| user.is_in(group));
    ROLES.iter().filter(is_meant)
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
    pub(super) fn allows(&self, asked: &Attributes<'_>) -> bool {
        has(self.verbs, asked.verb)
            && has(self.groups, asked.group)
            && self.resources.iter().any(|pattern| resource_matches(pattern, asked))
            && !self.except.iter().any(|pattern| is_excepted(pattern, asked))
            && (self.names.is_empty() || self.names.contains(&asked.name))
            && (self.namespace.is_empty() || self.namespace == asked.namespace)
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
