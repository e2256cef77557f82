//! Who may do what, until there are RBAC objects: one small table.
//!
//! In: the [`Attributes`] of a request. Out: a [`Decision`], or the 403 with the words of the original.
//!
//! - `system:masters`: everything.
//! - `system:nodes`: what [`node`] says of the node that asks.
//! - `system:bootstrappers`: ask for a certificate.
//! - `system:authenticated`: get, list and watch everything but Secrets and ways into pods (`exec`, `attach`,
//!   `portforward`, `proxy`), unless it is one of the two above; ask what it may do; read discovery and health.
//! - `system:unauthenticated`: read health, version, and how to join (`kube-public/cluster-info`).
//!
//! Rights add up. Everything that no rule allows is denied. The table has the form of
//! RBAC rules with one addition, `except`, because "all but Secrets" must hold for kinds that do not exist yet.

pub mod node;
mod policy;
pub mod relations;

use api::field::quote;
use api::status::{Resource, Status};
use serde_json::json;

use crate::auth::User;

pub use node::{Nothing, Relations};
pub use policy::{Role, Rule, roles_of};
pub use relations::Stored;

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

/// The answer, and which part of the table gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why; empty when nothing allows it.
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

    /// The one object that is meant, by its name or by a selector; empty when there may be others.
    #[must_use]
    pub fn one_name(&self) -> &'a str {
        if self.name.is_empty() { self.requires("metadata.name").unwrap_or_default() } else { self.name }
    }
}

/// Decides.
#[must_use]
pub fn authorize(attributes: &Attributes<'_>, relations: &dyn Relations) -> Decision {
    if let Some(role) = roles_of(attributes.user).find(|role| role.allows(attributes)) {
        // Masters need no reason, as in the original.
        let told = role.group != crate::pki::MASTERS;
        let reason = if told { format!("allowed to group {}", quote(role.group)) } else { String::new() };
        return Decision { allowed: true, reason };
    }
    match node::decide(attributes, relations) {
        Some(Ok(())) => Decision { allowed: true, reason: String::new() },
        Some(Err(reason)) => Decision { allowed: false, reason },
        None => Decision { allowed: false, reason: String::new() },
    }
}

/// Decides, and words the refusal.
///
/// # Errors
/// The 403 that answers the request.
pub fn require(attributes: &Attributes<'_>, relations: &dyn Relations) -> Result<(), Status> {
    match authorize(attributes, relations) {
        Decision { allowed: true, .. } => Ok(()),
        Decision { reason, .. } => Err(refused(attributes, &reason)),
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
fn defuse(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
