//! Who may do what: the Node authorizer beside RBAC, as in Kubernetes.
//!
//! In: the [`Attributes`] of a request. Out: a [`Decision`], or the 403 with the words of the original. `system:masters` may do everything.
//! A node may do what [`node`] says; everybody, nodes included, may do what roles grant them ([`grants`]). Rights add up, and what nothing
//! allows is denied.

pub mod grants;
pub mod node;
pub mod relations;
#[cfg(test)]
pub(crate) mod testing;
mod tracked;

use std::sync::Arc;

use api::field::quote;
use api::rbac::{PolicyRule, Request};
use api::status::{Resource, Status};
use serde_json::json;
use store::Store;

use crate::auth::User;
use crate::pki::MASTERS;

pub use node::{Nothing, Relations};
pub use relations::Stored;

use grants::Grants;
use tracked::Tracked;

/// What is asked: a verb on a resource, or on a path.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, … ; the lower-case method for paths.
    pub verb: &'a str,
    /// The API group, empty for core.
    pub group: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// `status`, or empty.
    pub subresource: &'a str,
    /// The object, or empty.
    pub name: &'a str,
    /// The namespace, empty for cluster-wide requests.
    pub namespace: &'a str,
    /// What a field selector asks for: field, equal or not, value.
    pub fields: &'a [(String, bool, String)],
    /// The path of a request that is not about a resource; the members above but `user` and `verb` mean nothing then.
    pub path: Option<&'a str>,
}

/// The answer, and what gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why; empty when nothing allows it and there is no more to say.
    pub reason: String,
}

impl<'a> Attributes<'a> {
    /// A request about a path.
    #[must_use]
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        let (group, resource, subresource, name, namespace) = Default::default();
        Self { user, verb, group, resource, subresource, name, namespace, fields: &[], path: Some(path) }
    }

    /// The value that a field selector demands of a field.
    #[must_use]
    pub fn requires(&self, field: &str) -> Option<&'a str> {
        let found = self.fields.iter().find(|(name, equal, _)| *equal && name == field);
        found.map(|(_, _, value)| value.as_str())
    }

    /// What a rule is held against.
    fn request(&self) -> Request<'a> {
        let Self { verb, group, resource, subresource, name, .. } = *self;
        match self.path {
            Some(path) => Request::Path { verb, path },
            None => Request::Resource { verb, group, resource, subresource, name },
        }
    }
}

/// Decides, from the roles and bindings of a store.
pub struct Authorizer {
    store: Arc<dyn Store>,
    grants: Tracked,
}

impl Authorizer {
    /// Follows the roles and bindings of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { grants: Tracked::new(&*store), store }
    }

    /// Decides.
    #[must_use]
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.grants.read(&*self.store, |grants| decide(attributes, grants, &Stored(&*self.store)))
    }

    /// A number that is larger after every change of roles and bindings. While it is the same, users who are not nodes may do the same.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.grants.version(&*self.store)
    }

    /// Decides, and words the refusal.
    ///
    /// # Errors
    /// The 403 that answers the request.
    pub fn require(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorize(attributes) {
            Decision { allowed: true, .. } => Ok(()),
            Decision { reason, .. } => Err(refused(attributes, &reason)),
        }
    }

    /// The rules that a user has in a namespace, and roles of bindings that do not exist.
    #[must_use]
    pub fn rules(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        self.grants.read(&*self.store, |grants| {
            for granted in grants.of(user, namespace) {
                match granted.rules {
                    Ok(own) => rules.extend_from_slice(own),
                    Err(problem) => problems.push(problem),
                }
            }
        });
        (rules, problems)
    }

    /// The rules of a role; none when there is no such role.
    #[must_use]
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<PolicyRule>> {
        self.grants.read(&*self.store, |grants| grants.rules_of(kind, namespace, name).map(<[PolicyRule]>::to_vec))
    }
}

/// Decides by what is granted and by what runs where.
fn decide(asked: &Attributes<'_>, grants: &Grants, relations: &dyn Relations) -> Decision {
    if asked.user.is_in(MASTERS) {
        return Decision { allowed: true, reason: String::new() };
    }
    let mut reasons = Vec::new();
    match node::decide(asked, relations) {
        Some(Ok(())) => return Decision { allowed: true, reason: String::new() },
        Some(Err(reason)) if !reason.is_empty() => reasons.push(format!("node: {reason}")),
        _ => {}
    }
    match grants.allow(asked.user, asked.namespace, &asked.request()) {
        Ok(reason) => return Decision { allowed: true, reason },
        Err(problems) if problems.is_empty() => {}
        Err(problems) => reasons.push(format!("rbac: RBAC: {}", listed(&problems))),
    }
    Decision { allowed: false, reason: reasons.join("\n") }
}

/// Several problems as the original lists them.
pub(crate) fn listed(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The 403 that says what was not allowed, and why if there is more to say.
#[must_use]
pub fn refused(attributes: &Attributes<'_>, reason: &str) -> Status {
    let (user, verb) = (quote(&attributes.user.name), attributes.verb);
    if let Some(path) = attributes.path {
        let message = format!("forbidden: {}", defuse(&format!("User {user} cannot {verb} path {}", quote(path))));
        return Status {
            code: 403,
            reason: Some("Forbidden"),
            message,
            details: Some(json!({})),
            continue_token: None,
        };
    }
    let resource = match attributes.subresource {
        "" => quote(attributes.resource),
        sub => quote(&format!("{}/{sub}", attributes.resource)),
    };
    let place = match attributes.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", quote(namespace)),
    };
    let group = quote(attributes.group);
    let why = format!("User {user} cannot {verb} resource {resource} in API group {group} {place}");
    let why = if reason.is_empty() { why } else { format!("{why}: {reason}") };
    let about = Resource { group: attributes.group, plural: attributes.resource, kind: "" };
    Status::forbidden(about, attributes.name, &defuse(&why))
}

/// Names come from the request: a browser must not take the answer for a page.
pub(crate) fn defuse(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
