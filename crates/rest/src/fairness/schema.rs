//! Flow schemas: which priority level and which flow a request belongs to.
//!
//! In: the attributes of a request, and its user.
//! Out: the first [`FlowSchema`] of a table that matches, and the distinguisher of the flow. Pure.

use crate::auth::User;
use crate::auth::service_account;
use crate::request::RequestInfo;

use super::level::Level;

/// A rule that assigns requests to a priority level.
#[derive(Debug)]
pub(crate) struct FlowSchema {
    pub(crate) name: &'static str,
    pub(crate) priority: Priority,
    /// How requests that match are divided into flows; None: they are one flow.
    pub(crate) distinguisher: Option<Distinguisher>,
    /// One of these must match the user.
    pub(crate) subjects: &'static [Subject],
    /// One of these must match a request for a resource.
    pub(crate) resources: &'static [ResourceRule],
    /// This must match any other request.
    pub(crate) paths: Option<PathRule>,
}

/// How requests of a schema are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Priority {
    /// They never wait and occupy no seats.
    Exempt,
    /// They are limited by a level.
    Limited(Level),
}

impl Priority {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exempt => "exempt",
            Self::Limited(level) => level.name(),
        }
    }
}

/// What divides requests into flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Distinguisher {
    ByUser,
    ByNamespace,
}

/// A subject that a schema matches.
#[derive(Debug)]
pub(crate) enum Subject {
    User(&'static str),
    Group(&'static str),
    /// All ServiceAccounts of a namespace.
    ServiceAccountsOf(&'static str),
}

/// Requests for resources. An empty list matches everything.
#[derive(Debug)]
pub(crate) struct ResourceRule {
    pub(crate) verbs: &'static [&'static str],
    pub(crate) groups: &'static [&'static str],
    /// `resource` or `resource/subresource`.
    pub(crate) resources: &'static [&'static str],
    /// Whether requests outside of any namespace match; those in namespaces do.
    pub(crate) cluster_scope: bool,
}

/// Requests for paths.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathRule {
    Any,
    /// `get` of one of these paths, or of what is below it.
    Get(&'static [&'static str]),
}

/// The first schema that matches, as its place in the table; the last one if none does.
pub(crate) fn classify(table: &[FlowSchema], info: &RequestInfo<'_>, user: &User) -> usize {
    let found = table.iter().position(|schema| schema.matches(info, user));
    found.unwrap_or(table.len().saturating_sub(1))
}

// === impl FlowSchema ===

impl FlowSchema {
    fn matches(&self, info: &RequestInfo<'_>, user: &User) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
            && match info.path {
                None => self.resources.iter().any(|rule| rule.matches(info)),
                Some(path) => self.paths.is_some_and(|rule| rule.matches(&info.verb, path)),
            }
    }

    /// The distinguisher of the flow of a request.
    pub(crate) fn flow<'a>(&self, info: &RequestInfo<'a>, user: &'a User) -> &'a str {
        match self.distinguisher {
            None => "",
            Some(Distinguisher::ByUser) => &user.name,
            Some(Distinguisher::ByNamespace) => info.namespace,
        }
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        match *self {
            Self::User(name) => user.name == name,
            Self::Group(name) => user.is_in(name),
            Self::ServiceAccountsOf(namespace) => {
                let account = user.name.strip_prefix(service_account::USER_PREFIX);
                let name = account.and_then(|account| account.strip_prefix(namespace));
                name.is_some_and(|name| name.starts_with(':'))
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo<'_>) -> bool {
        let is_or_is_empty = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
        is_or_is_empty(self.verbs, &info.verb)
            && (self.resources.is_empty() || self.resources.iter().any(|rule| is_resource(rule, info)))
            && is_or_is_empty(self.groups, info.group)
            && (self.cluster_scope || !info.namespace.is_empty())
    }
}

/// Whether a request is for `resource` or `resource/subresource`.
fn is_resource(rule: &str, info: &RequestInfo<'_>) -> bool {
    let (resource, subresource) = rule.split_once('/').unwrap_or((rule, ""));
    resource == info.resource && subresource == info.subresource
}

impl PathRule {
    fn matches(self, verb: &str, path: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Get(paths) => {
                verb == "get"
                    && paths.iter().any(|rule| {
                        path.strip_prefix(rule).is_some_and(|below| below.is_empty() || below.starts_with('/'))
                    })
            }
        }
    }
}
