//! RoleBinding and ClusterRoleBinding: the subjects of a role, in one namespace or everywhere.

use serde_json::Value;

use super::common::{IMMUTABLE, go_struct, invalid_struct, report};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::rbac::GROUP;
use crate::table::{AGE, Column, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

const SERVICE_ACCOUNT: &str = "ServiceAccount";
const USER: &str = "User";
const USER_GROUP: &str = "Group";

/// Grants a Role, or a ClusterRole, in one namespace.
pub static ROLE_BINDING: Kind = Kind {
    group: GROUP,
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    schema: "rbac.RoleBinding",
    table: "rolebindings",
    create_on_update: true,
    table_view: &TABLE,
    ..Kind::common(&BindingRules { namespaced: true, roles: &["Role", "ClusterRole"] })
};

/// Grants a ClusterRole everywhere.
pub static CLUSTER_ROLE_BINDING: Kind = Kind {
    group: GROUP,
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    namespaced: false,
    schema: "rbac.ClusterRoleBinding",
    table: "clusterrolebindings",
    create_on_update: true,
    table_view: &TABLE,
    ..Kind::common(&BindingRules { namespaced: false, roles: &["ClusterRole"] })
};

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { priority: 1, ..column(name, description) }
}

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Role", "The role that is granted."),
        AGE,
        wide("Users", "Users it is granted to."),
        wide("Groups", "Groups it is granted to."),
        wide("ServiceAccounts", "ServiceAccounts it is granted to."),
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            format!("{}/{}", object.text("roleRef.kind"), object.text("roleRef.name")).into(),
            age(object, now).into(),
            subjects(object, USER).into(),
            subjects(object, USER_GROUP).into(),
            subjects(object, SERVICE_ACCOUNT).into(),
        ]
    },
    conditions: no_conditions,
};

/// The subjects of one kind, as a cell lists them.
fn subjects(binding: &Value, kind: &str) -> String {
    let named = |subject: &Value| match kind {
        SERVICE_ACCOUNT => format!("{}/{}", subject.text("namespace"), subject.text("name")),
        _ => subject.text("name").to_owned(),
    };
    let of_kind = binding.items("subjects").iter().filter(|subject| subject.text("kind") == kind);
    of_kind.map(named).collect::<Vec<String>>().join(", ")
}

struct BindingRules {
    namespaced: bool,
    /// The kinds of roles that may be granted.
    roles: &'static [&'static str],
}

impl Rules for BindingRules {
    fn default(&self, object: &mut Value) {
        if object.text("roleRef.apiGroup").is_empty() {
            object.put("roleRef.apiGroup", GROUP);
        }
        for subject in object.items_mut("subjects") {
            if matches!(subject.text("kind"), USER | USER_GROUP) && subject.text("apiGroup").is_empty() {
                subject.put("apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, self.namespaced, names::name_is_path_segment, errors);
        let (path, role) = (Path::Root("roleRef"), object.at("roleRef"));
        if role.text("apiGroup") != GROUP {
            errors.not_supported(&path.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
        }
        if !self.roles.contains(&role.text("kind")) {
            errors.not_supported(&path.child("kind"), role.text("kind"), self.roles);
        }
        report(&path.child("name"), role.text("name"), names::name_is_path_segment(role.text("name"), false), errors);
        let list = Path::Root("subjects");
        for (index, subject) in object.items("subjects").iter().enumerate() {
            validate_subject(&list.index(index), subject, self.namespaced, errors);
        }
        // Missing names are found by generated rules in kube-apiserver, so they are reported last.
        for (index, subject) in object.items("subjects").iter().enumerate() {
            if subject.text("name").is_empty() {
                errors.required(&list.index(index).child("name"), "");
            }
        }
        if role.text("name").is_empty() {
            errors.required(&path.child("name"), "");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
        meta::validate_update(new, old, errors);
        if new.at("roleRef") != old.at("roleRef") {
            let printed = go_struct(new.at("roleRef"), &[("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")]);
            invalid_struct(&Path::Root("roleRef"), &printed, IMMUTABLE, errors);
        }
    }
}

fn validate_subject(path: &Path<'_>, subject: &Value, namespaced: bool, errors: &mut Errors) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    match subject.text("kind") {
        SERVICE_ACCOUNT => {
            if !name.is_empty() {
                report(&path.child("name"), name, names::name_is_subdomain(name, false), errors);
            }
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), group, &[""]);
            }
            if !namespaced && subject.text("namespace").is_empty() {
                errors.required(&path.child("namespace"), "");
            }
        }
        USER | USER_GROUP if group != GROUP => errors.not_supported(&path.child("apiGroup"), group, &[GROUP]),
        USER | USER_GROUP => {}
        other => errors.not_supported(&path.child("kind"), other, &[SERVICE_ACCOUNT, USER, USER_GROUP]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn binding(subject: &Value) -> Value {
        let mut object = json!({
            "metadata": {"name": "b", "namespace": "n"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [subject],
        });
        ROLE_BINDING.rules.default(&mut object);
        object
    }

    #[test]
    fn groups_of_the_api_are_filled_in() {
        let object = binding(&json!({"kind": "User", "name": "a"}));
        assert_eq!((object.text("roleRef.apiGroup"), object.items("subjects")[0].text("apiGroup")), (GROUP, GROUP));
        let account = binding(&json!({"kind": "ServiceAccount", "name": "a"}));
        assert!(!account.items("subjects")[0].has("apiGroup"));
    }

    #[test]
    fn subjects_are_known_kinds() {
        let check = |subject: &Value| summary(|errors| ROLE_BINDING.rules.validate_create(&binding(subject), errors));
        assert_eq!(check(&json!({"kind": "ServiceAccount", "name": "a"})), "[]", "of the namespace of the binding");
        assert_eq!(
            check(&json!({"kind": "Frob", "name": "a"})),
            "subjects[0].kind: Unsupported value: \"Frob\": supported values: \"ServiceAccount\", \"User\", \"Group\""
        );
        assert_eq!(check(&json!({"kind": "Group"})), "subjects[0].name: Required value");
        let mut everywhere = binding(&json!({"kind": "ServiceAccount", "name": "a"}));
        everywhere.put("roleRef.kind", "ClusterRole");
        everywhere.drop_path("metadata.namespace");
        let found = summary(|errors| CLUSTER_ROLE_BINDING.rules.validate_create(&everywhere, errors));
        assert_eq!(found, "subjects[0].namespace: Required value");
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        let mut old = binding(&json!({"kind": "User", "name": "a"}));
        old.put("metadata.resourceVersion", "1");
        let mut new = old.clone();
        new.put("roleRef.name", "other");
        assert_eq!(
            summary(|errors| ROLE_BINDING.rules.validate_update(&new, &old, errors)),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: \
             field is immutable"
        );
    }

    #[test]
    fn a_row_lists_subjects_by_kind() {
        let mut object = binding(&json!({"kind": "User", "name": "a"}));
        object.put(
            "subjects",
            json!([
                {"kind": "User", "name": "a"}, {"kind": "User", "name": "z"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            ]),
        );
        let cells = (TABLE.row)(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells[3..], [json!("a, z"), json!(""), json!("n/s")]);
    }
}
