//! Authorization for parameters of admission policies: the author of a policy or binding must be able to read them, because expressions
//! could reveal them.
//!
//! In: the user, and the object before and after. Out: 422 with a forbidden field. Runs on validated objects; `system:masters` have
//! every permission.

use api::custom::Kinds;
use api::dynamic_admission::policy::ParamKind;
use api::field::{Errors, Path};
use api::kinds::admissionregistration::{binding, policy};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::create::invalid;
use super::{Call, Registry, key};
use crate::auth::User;
use crate::authz::Attributes;
use crate::pki::MASTERS;
use crate::view;

/// Every group, and every resource.
const ALL: &str = "*";

impl Registry {
    /// Checks a write of a policy or binding; `old` is the object it replaces.
    pub(super) fn check_params(&self, call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if call.kind.group != api::dynamic_admission::GROUP || !call.is_main() || call.user.is_in(MASTERS) {
            return Ok(());
        }
        let same = |path: &str| old.is_some_and(|old| old.at(path) == new.at(path));
        let (field, missing) = if call.kind.kind == policy::KIND.kind {
            let is_checked = new.has("spec.paramKind") && !same("spec.paramKind");
            ("spec.paramKind", is_checked.then(|| self.missing_for_policy(call, new)).flatten())
        } else if call.kind.kind == binding::KIND.kind {
            let is_checked = new.has("spec.paramRef") && !(same("spec.paramRef") && same("spec.policyName"));
            ("spec.paramRef", is_checked.then(|| self.missing_for_binding(call, new)).flatten())
        } else {
            return Ok(());
        };
        let Some(why) = missing else { return Ok(()) };
        let mut errors = Errors::default();
        errors.forbidden(&Path::Root(field), &why);
        Err(invalid(call.kind, new.text("metadata.name"), &errors))
    }

    /// The permission that the author of a policy lacks.
    fn missing_for_policy(&self, call: &Call<'_>, policy: &Value) -> Option<String> {
        let param_kind = policy.at("spec.paramKind");
        let kind = ParamKind::read(param_kind)?;
        let resource = resource_of(&self.kinds(), &kind).unwrap_or(ALL);
        if self.may_read(call.user, "get", &kind.group, resource, (ALL, ALL)) {
            return None;
        }
        Some(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            go_user(call.user),
            kind.kind,
            param_kind.text("apiVersion")
        ))
    }

    /// The permission that the author of a binding lacks.
    fn missing_for_binding(&self, call: &Call<'_>, binding: &Value) -> Option<String> {
        let (reference, policy_name) = (binding.at("spec.paramRef"), binding.text("spec.policyName"));
        let (namespace, name) = (reference.text("namespace"), reference.text("name"));
        let verb = if name.is_empty() { "list" } else { "get" };
        let policy = self.store.get(&key(&policy::KIND, "", policy_name));
        let policy = policy.map(|entry| view::read(&policy::KIND, &entry));
        let kind = policy.as_ref().and_then(|policy| ParamKind::read(policy.at("spec.paramKind")));
        let resource = kind.as_ref().and_then(|kind| resource_of(&self.kinds(), kind));
        let group = kind.as_ref().map_or(ALL, |kind| kind.group.as_str());
        if self.may_read(call.user, verb, group, resource.unwrap_or(ALL), (namespace, name)) {
            return None;
        }
        let user = go_user(call.user);
        let all = format!(
            "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
             versions and resources"
        );
        Some(match (policy, kind, resource) {
            (None, ..) => format!("unable to get policy {policy_name} {all}"),
            (Some(policy), Some(_), None) => {
                let kind = policy.at("spec.paramKind");
                let shown = format!("&{{{} {}}}", kind.text("apiVersion"), kind.text("kind"));
                format!("unable to resolve paramKind {shown} {all}")
            }
            _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
        })
    }

    fn may_read(&self, user: &User, verb: &str, group: &str, resource: &str, object: (&str, &str)) -> bool {
        let (namespace, name) = object;
        let attributes =
            Attributes { user, verb, group, resource, subresource: "", name, namespace, fields: &[], path: None };
        self.authorizer.authorize(&attributes).allowed
    }
}

/// The plural of a kind that is served.
fn resource_of(kinds: &Kinds, kind: &ParamKind) -> Option<&'static str> {
    kinds.find_kind(&kind.group, &kind.version, &kind.kind).map(|kind| kind.plural)
}

/// A user in the format of Go's `%v`.
fn go_user(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_printed_as_go_does() {
        let user =
            User { name: "alice".into(), groups: vec!["dev".into(), "system:authenticated".into()], ..User::default() };
        assert_eq!(go_user(&user), "&{alice  [dev system:authenticated] map[]}");
        assert_eq!(
            resource_of(
                Kinds::fixed(),
                &ParamKind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() }
            ),
            Some("configmaps")
        );
    }
}
