//! RBAC escalation checks: a user cannot grant permissions that the user does not have.
//!
//! In: the user, and the role or binding before and after. Out: 403 that lists the missing rules. The verbs `escalate` (on roles)
//! and `bind` (on the granted role) lift the check; `system:masters` have every permission.

use api::kind::Kind;
use api::kinds::{role, rolebinding};
use api::rbac::{GROUP, PolicyRule, cover};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Call, Registry};
use crate::authz::Attributes;
use crate::pki::MASTERS;

impl Registry {
    /// Checks a write of a role or binding; `old` is the object it replaces.
    pub(super) fn check_grant(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if call.kind.group != GROUP || call.user.is_in(MASTERS) || old.is_some_and(|old| changes_only_gc(new, old)) {
            return Ok(());
        }
        let is = |kinds: [&Kind; 2]| kinds.iter().any(|kind| kind.kind == call.kind.kind);
        if is([&role::ROLE, &role::CLUSTER_ROLE]) {
            return self.check_role(call, name, new, old);
        }
        if is([&rolebinding::ROLE_BINDING, &rolebinding::CLUSTER_ROLE_BINDING]) {
            return self.check_binding(call, name, new);
        }
        Ok(())
    }

    fn check_role(&self, call: &Call<'_>, name: &str, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        // The authorization attributes of a create have no name.
        let named = if old.is_some() { name } else { "" };
        if self.authorizer.authorize(&call.attributes("escalate", named)).allowed {
            return Ok(());
        }
        self.check_held(call, name, &PolicyRule::read_all(new))?;
        let aggregates = |role: &Value| !role.at("aggregationRule").is_null();
        if !aggregates(new) && !old.is_some_and(aggregates) {
            return Ok(());
        }
        // Rules that are labelled later become part of it, so only users with all permissions may set it.
        self.check_held(call, name, &everything()).map_err(|_| {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            Status::forbidden(call.kind.resource(), name, why)
        })
    }

    fn check_binding(&self, call: &Call<'_>, name: &str, new: &Value) -> Result<(), Status> {
        let granted = new.at("roleRef");
        let (kind, role_name) = (granted.text("kind"), granted.text("name"));
        let resource = if kind == role::CLUSTER_ROLE.kind { role::CLUSTER_ROLE.plural } else { role::ROLE.plural };
        let bind = Attributes { resource, subresource: "", ..call.attributes("bind", role_name) };
        if self.authorizer.authorize(&bind).allowed {
            return Ok(());
        }
        let rules = self.authorizer.role_rules(kind, call.namespace, role_name);
        // kube-apiserver looks up the role in the namespace of the binding, and reports that.
        let rules = rules.ok_or_else(|| Status::not_found(call.kind.resource(), role_name))?;
        self.check_held(call, name, &rules)
    }

    /// Whether the user holds all of these rules in the namespace of the request.
    fn check_held(&self, call: &Call<'_>, name: &str, wanted: &[PolicyRule]) -> Result<(), Status> {
        let (owned, problems) = self.authorizer.rules(call.user, call.namespace);
        let missing = cover::missing(&owned, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = call.user.groups.iter().map(|group| api::field::quote(group)).collect();
        let mut why = format!(
            "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            api::field::quote(&call.user.name),
            groups.join(" "),
            cover::describe(&missing)
        );
        if !problems.is_empty() {
            why.push_str(&format!("; resolution errors: [{}]", problems.join(" ")));
        }
        Err(Status::forbidden(call.kind.resource(), name, &why))
    }
}

/// Whether a change only touches fields that garbage collection needs.
fn changes_only_gc(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
            rest.drop_path(&format!("metadata.{field}"));
        }
        rest
    };
    rest(new) == rest(old)
}

/// The rules of `cluster-admin`.
fn everything() -> Vec<PolicyRule> {
    let all = || vec!["*".to_owned()];
    vec![
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}
