//! Authorization: the Node authorizer and RBAC, as in Kubernetes.
//!
//! In: the [`Attributes`] of a request. Out: a [`Decision`], or 403 with the message of kube-apiserver. `system:masters` may do everything.
//! A node may do what [`node`] allows; all users, nodes included, may do what roles grant them ([`grants`]). What nothing allows is
//! denied.

mod gateways;
pub mod grants;
mod ingresses;
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

pub use ingresses::ServedIngresses;
pub use node::{Nothing, Relations};
pub use relations::Stored;

use grants::Grants;
use tracked::Tracked;

/// The attributes of a request: a verb on a resource, or on a path.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The user.
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
    /// The terms of the field selector: field, equal or not, value.
    pub fields: &'a [(String, bool, String)],
    /// The path of a non-resource request; then only `user` and `verb` are set besides.
    pub path: Option<&'a str>,
}

/// The decision, and its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The reason; may be empty when nothing allows the request.
    pub reason: String,
}

impl<'a> Attributes<'a> {
    /// A non-resource request.
    #[must_use]
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        let (group, resource, subresource, name, namespace) = Default::default();
        Self { user, verb, group, resource, subresource, name, namespace, fields: &[], path: Some(path) }
    }

    /// The value that the field selector requires of a field.
    #[must_use]
    pub fn requires(&self, field: &str) -> Option<&'a str> {
        let found = self.fields.iter().find(|(name, equal, _)| *equal && name == field);
        found.map(|(_, _, value)| value.as_str())
    }

    /// The request that rules are matched against.
    fn request(&self) -> Request<'a> {
        let Self { verb, group, resource, subresource, name, .. } = *self;
        match self.path {
            Some(path) => Request::Path { verb, path },
            None => Request::Resource { verb, group, resource, subresource, name },
        }
    }
}

/// Authorizes requests by the roles and bindings of a store.
pub struct Authorizer {
    store: Arc<dyn Store>,
    grants: Tracked,
    ingresses: ServedIngresses,
}

impl Authorizer {
    /// Watches the roles and bindings of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { grants: Tracked::new(&*store), store, ingresses: ServedIngresses::default() }
    }

    /// Sets which Ingresses the nodes serve, and thus read the Secrets of.
    #[must_use]
    pub fn with_ingresses(mut self, ingresses: ServedIngresses) -> Self {
        self.ingresses = ingresses;
        self
    }

    /// Authorizes a request.
    #[must_use]
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let relations = Stored { store: &*self.store, ingresses: &self.ingresses };
        self.grants.read(&*self.store, |grants| decide(attributes, grants, &relations))
    }

    /// Increases with every change of roles and bindings. While it is unchanged, so are the permissions of users who are not nodes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.grants.version(&*self.store)
    }

    /// Authorizes a request.
    ///
    /// # Errors
    /// 403.
    pub fn require(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorize(attributes) {
            Decision { allowed: true, .. } => Ok(()),
            Decision { reason, .. } => Err(refused(attributes, &reason)),
        }
    }

    /// The rules of a user in a namespace, and missing roles of bindings.
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

    /// The rules of a role; `None` when it does not exist.
    #[must_use]
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<PolicyRule>> {
        self.grants.read(&*self.store, |grants| grants.rules_of(kind, namespace, name).map(<[PolicyRule]>::to_vec))
    }
}

/// Decides by roles and by the relations of Pods.
fn decide(attributes: &Attributes<'_>, grants: &Grants, relations: &dyn Relations) -> Decision {
    if attributes.user.is_in(MASTERS) {
        return Decision { allowed: true, reason: String::new() };
    }
    let mut reasons = Vec::new();
    match node::decide(attributes, relations) {
        Some(Ok(())) => return Decision { allowed: true, reason: String::new() },
        Some(Err(reason)) if !reason.is_empty() => reasons.push(format!("node: {reason}")),
        _ => {}
    }
    match grants.allow(attributes.user, attributes.namespace, &attributes.request()) {
        Ok(reason) => return Decision { allowed: true, reason },
        Err(problems) if problems.is_empty() => {}
        Err(problems) => reasons.push(format!("rbac: RBAC: {}", listed(&problems))),
    }
    Decision { allowed: false, reason: reasons.join("\n") }
}

/// Several errors in the format of kube-apiserver.
pub(crate) fn listed(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The 403 for a denied request, with the reason if there is one.
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

/// Escapes names from the request, so that a browser does not interpret the response as HTML.
pub(crate) fn defuse(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
