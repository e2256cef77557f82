//! Role and ClusterRole: lists of rules, granted by bindings. What a rule means is in [`crate::rbac`].

use serde_json::Value;

use super::workload::validate_labels_selector;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::rbac::GROUP;
use crate::value::ValueExt as _;

/// Rules for one namespace.
pub static ROLE: Kind = Kind {
    group: GROUP,
    kind: "Role",
    plural: "roles",
    singular: "role",
    schema: "rbac.Role",
    table: "roles",
    create_on_update: true,
    ..Kind::common(&RoleRules { namespaced: true })
};

/// Rules for all namespaces, for objects without namespace, and for paths.
pub static CLUSTER_ROLE: Kind = Kind {
    group: GROUP,
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    namespaced: false,
    schema: "rbac.ClusterRole",
    table: "clusterroles",
    create_on_update: true,
    ..Kind::common(&RoleRules { namespaced: false })
};

struct RoleRules {
    namespaced: bool,
}

impl Rules for RoleRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, self.namespaced, names::name_is_path_segment, errors);
        let (list, rules) = (Path::Root("rules"), object.items("rules"));
        for (index, rule) in rules.iter().enumerate() {
            validate_rule(&list.index(index), rule, self.namespaced, errors);
        }
        validate_aggregation(object.at("aggregationRule"), errors);
        // Missing verbs are found by generated rules in kube-apiserver, so they are reported last.
        for (index, _) in rules.iter().enumerate().filter(|(_, rule)| rule.items("verbs").is_empty()) {
            errors.required(&list.index(index).child("verbs"), "");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
        meta::validate_update(new, old, errors);
    }
}

fn validate_rule(path: &Path<'_>, rule: &Value, namespaced: bool, errors: &mut Errors) {
    let is_empty = |list: &str| rule.items(list).is_empty();
    if !is_empty("nonResourceURLs") {
        let (field, urls) = (path.child("nonResourceURLs"), rule.at("nonResourceURLs"));
        if namespaced {
            errors.invalid(&field, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
            errors.invalid(&field, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if is_empty("apiGroups") {
        errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if is_empty("resources") {
        errors.required(&path.child("resources"), "resource rules must supply at least one resource");
    }
}

fn validate_aggregation(rule: &Value, errors: &mut Errors) {
    if rule.is_null() {
        return;
    }
    let list = Path::Root("aggregationRule.clusterRoleSelectors");
    let selectors = rule.items("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(&list, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, object) in selectors.iter().enumerate() {
        let path = list.index(index);
        let before = errors.0.len();
        validate_labels_selector(&path, object, errors);
        if errors.0.len() > before {
            errors.invalid(&path, &Value::Null, "invalid label selector.");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn check(kind: &Kind, object: &Value) -> String {
        summary(|errors| kind.rules.validate_create(object, errors))
    }

    #[test]
    fn a_rule_is_about_resources_or_about_paths() {
        let with = |kind, rule: Value| {
            check(kind, &json!({"metadata": {"name": "r", "namespace": "n"}, "rules": [rule]})).replace("rules[0].", "")
        };
        assert_eq!(with(&ROLE, json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})), "[]");
        assert_eq!(
            with(&ROLE, json!({})),
            "[apiGroups: Required value: resource rules must supply at least one api group, resources: Required value: \
             resource rules must supply at least one resource, verbs: Required value]"
        );
        assert_eq!(
            with(&ROLE, json!({"nonResourceURLs": ["/a"], "verbs": ["get"]})),
            "nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs"
        );
    }

    #[test]
    fn names_are_path_segments() {
        let named = |name: &str| check(&CLUSTER_ROLE, &json!({"metadata": {"name": name}}));
        assert_eq!(named("system:A b"), "[]");
        assert_eq!(named("a/b"), "metadata.name: Invalid value: \"a/b\": may not contain '/'");
    }

    #[test]
    fn an_aggregation_selects_something() {
        let with = |rule: Value| {
            check(&CLUSTER_ROLE, &json!({"metadata": {"name": "r"}, "aggregationRule": rule}))
                .replace("aggregationRule.clusterRoleSelectors", "S")
        };
        assert_eq!(with(json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})), "[]");
        assert_eq!(
            with(json!({})),
            "S: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        );
        assert_eq!(
            with(json!({"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Frob"}]}]})),
            "[S[0].matchExpressions[0].operator: Invalid value: \"Frob\": not a valid selector operator, \
             S[0]: Invalid value: null: invalid label selector.]"
        );
    }
}
