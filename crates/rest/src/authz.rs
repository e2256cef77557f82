//! Who may do what, until there are RBAC objects: one small table.
//!
//! In: the [`Attributes`] of a request. Out: a [`Decision`], or the 403 with the words of the original.
//!
//! - `system:masters`: everything.
//! - `system:nodes`: get Secrets; write events and leases; register nodes, and change **its own** node (that of the
//!   user `system:node:NAME`); write the status of pods, delete pods.
//! - `system:authenticated`: get, list and watch everything but Secrets and ways into pods (`exec`, `attach`,
//!   `portforward`, `proxy`); ask what it may do; read discovery and health.
//! - `system:unauthenticated`: read health and version.
//!
//! Rights add up: a node is authenticated too. Everything that no rule allows is denied. The table has the form of
//! RBAC rules with one addition, `except`, because "all but Secrets" must hold for kinds that do not exist yet.

mod policy;

use api::field::quote;
use api::status::{Resource, Status};
use serde_json::json;

use crate::auth::User;

pub use policy::{Role, Rule, own_node, roles_of};

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
        Self { user, verb, group: "", resource: "", subresource: "", name: "", namespace: "", path: Some(path) }
    }
}

/// Decides.
#[must_use]
pub fn authorize(attributes: &Attributes<'_>) -> Decision {
    let role = roles_of(attributes.user).find(|role| role.allows(attributes));
    // Masters need no reason, as in the original.
    let told = role.filter(|role| role.group != crate::pki::MASTERS);
    let reason = told.map_or_else(String::new, |role| format!("allowed to group {}", quote(role.group)));
    Decision { allowed: role.is_some(), reason }
}

/// Decides, and words the refusal.
///
/// # Errors
/// The 403 that answers the request.
pub fn require(attributes: &Attributes<'_>) -> Result<(), Status> {
    if roles_of(attributes.user).any(|role| role.allows(attributes)) { Ok(()) } else { Err(refused(attributes)) }
}

/// The 403 that says what was not allowed.
#[must_use]
pub fn refused(attributes: &Attributes<'_>) -> Status {
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
    let about = Resource { group: attributes.group, plural: attributes.resource, kind: "" };
    Status::forbidden(about, attributes.name, &defuse(&why))
}

/// Names come from the request: a browser must not take the answer for a page.
fn defuse(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
