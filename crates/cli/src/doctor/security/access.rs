//! Access: bindings to large groups, and permissions that allow privilege escalation.
//!
//! What every cluster has by default ([`DEFAULTS`]) is no finding; what an administrator added to a default object is.

use api::rbac::PolicyRule;
use api::rbac::cover::missing;
use api::rbac::defaults::DEFAULTS;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Finding, Rbac, Severity};

pub(super) const ANONYMOUS: &str = "anonymous-access";
pub(super) const BINDINGS: &str = "wide-bindings";

/// Groups of many users, and the anonymous user.
const EVERYBODY: [&str; 2] = ["system:authenticated", "system:serviceaccounts"];
const NOBODY: [&str; 2] = ["system:anonymous", "system:unauthenticated"];

/// Verbs that allow privilege escalation.
const ESCALATING: [&str; 3] = ["escalate", "bind", "impersonate"];

/// A subject of a binding, and what the binding grants it beyond the default.
struct Grant<'a> {
    binding: &'a Value,
    subject: &'a Value,
    rules: Vec<PolicyRule>,
}

fn has_all(list: &[String]) -> bool {
    list.iter().any(|one| one == "*")
}

/// Every grant that is not by default.
fn grants(rbac: &Rbac) -> Vec<Grant<'_>> {
    let bindings = rbac.cluster_bindings.iter().chain(&rbac.bindings);
    let pairs = bindings.flat_map(|binding| binding.items("subjects").iter().map(move |subject| (binding, subject)));
    let grant = |(binding, subject)| {
        let rules = role(rbac, binding).map(PolicyRule::read_all).unwrap_or_default();
        if !is_default(binding, subject) {
            return Some(Grant { binding, subject, rules });
        }
        let rules = missing(&default_rules(binding), &rules);
        (!rules.is_empty()).then_some(Grant { binding, subject, rules })
    };
    pairs.filter_map(grant).collect()
}

fn is_same(one: &Value, other: &Value) -> bool {
    ["metadata.namespace", "metadata.name"].iter().all(|field| one.text(field) == other.text(field))
}

/// Whether a binding has a subject in every cluster.
fn is_default(binding: &Value, subject: &Value) -> bool {
    let mut of =
        DEFAULTS.iter().map(|default| &default.object).filter(|own| own.has("roleRef") && is_same(own, binding));
    let same = |own: &Value| ["kind", "name", "namespace"].iter().all(|field| own.text(field) == subject.text(field));
    of.any(|own| own.text("roleRef.name") == binding.text("roleRef.name") && own.items("subjects").iter().any(same))
}

/// The rules that the role of a binding has in every cluster. Those of aggregated roles are gathered from others, so they count as they are.
fn default_rules(binding: &Value) -> Vec<PolicyRule> {
    let of_role = |own: &&Value| {
        !own.has("roleRef")
            && own.text("metadata.name") == binding.text("roleRef.name")
            && (binding.text("roleRef.kind") == "ClusterRole"
                || own.text("metadata.namespace") == binding.text("metadata.namespace"))
    };
    let found = DEFAULTS.iter().map(|default| &default.object).find(of_role);
    found.map(PolicyRule::read_all).unwrap_or_default()
}

/// The role of a binding; none where it does not exist.
fn role<'a>(rbac: &'a Rbac, binding: &Value) -> Option<&'a Value> {
    let name = binding.text("roleRef.name");
    match binding.text("roleRef.kind") {
        "ClusterRole" => rbac.cluster_roles.iter().find(|role| role.text("metadata.name") == name),
        _ => rbac.roles.iter().find(|role| {
            role.text("metadata.name") == name && role.text("metadata.namespace") == binding.text("metadata.namespace")
        }),
    }
}

impl Grant<'_> {
    fn is_of_cluster(&self) -> bool {
        self.binding.text("metadata.namespace").is_empty()
    }

    /// `RoleBinding shop/web`.
    fn object(&self) -> String {
        let name = self.binding.text("metadata.name");
        match self.binding.text("metadata.namespace") {
            "" => format!("ClusterRoleBinding {name}"),
            namespace => format!("RoleBinding {namespace}/{name}"),
        }
    }

    fn remove(&self) -> String {
        let name = self.binding.text("metadata.name");
        match self.binding.text("metadata.namespace") {
            "" => format!("kubectl delete clusterrolebinding {name}, or bind those who need it"),
            namespace => format!("kubectl delete rolebinding {name} -n {namespace}, or bind those who need it"),
        }
    }

    /// `group system:authenticated`.
    fn who(&self) -> String {
        let name = self.subject.text("name");
        match self.subject.text("kind") {
            "ServiceAccount" => format!("ServiceAccount {}/{name}", self.subject.text("namespace")),
            kind => format!("{} {name}", kind.to_lowercase()),
        }
    }

    /// Whether it reaches requests without credentials.
    fn is_anonymous(&self) -> bool {
        NOBODY.contains(&self.subject.text("name")) && self.subject.text("kind") != "ServiceAccount"
    }

    /// Whether it includes users that were not chosen: all users, every ServiceAccount of a namespace, or a default ServiceAccount.
    fn is_broad(&self) -> bool {
        let name = self.subject.text("name");
        match self.subject.text("kind") {
            "Group" => EVERYBODY.contains(&name) || name.starts_with("system:serviceaccounts:"),
            "ServiceAccount" => name == "default",
            _ => false,
        }
    }

    /// Whether every verb is allowed, or every resource.
    fn is_wide(&self) -> bool {
        self.rules.iter().any(|rule| has_all(&rule.verbs) || has_all(&rule.resources))
    }

    /// Whether everything is allowed.
    fn is_everything(&self) -> bool {
        let all = |rule: &PolicyRule| [&rule.verbs, &rule.resources, &rule.api_groups].iter().all(|list| has_all(list));
        self.rules.iter().any(all)
    }

    /// Verbs with which other rights can be had.
    fn escalating(&self) -> Vec<&'static str> {
        let has = |verb: &&str| self.rules.iter().any(|rule| rule.verbs.iter().any(|own| own == *verb));
        ESCALATING.into_iter().filter(has).collect()
    }

    fn reads_secrets(&self) -> bool {
        let reads = |rule: &PolicyRule| {
            rule.resources.iter().any(|one| one == "secrets" || one == "*")
                && rule.verbs.iter().any(|verb| ["get", "list", "watch", "*"].contains(&verb.as_str()))
        };
        self.rules
            .iter()
            .any(|rule| rule.api_groups.iter().any(|group| group.is_empty() || group == "*") && reads(rule))
    }

    fn role(&self) -> String {
        format!("{} {}", self.binding.text("roleRef.kind"), self.binding.text("roleRef.name"))
    }
}

/// Requests without credentials that may do more than by default.
pub(super) fn anonymous(rbac: &Rbac) -> Vec<Finding> {
    let found = grants(rbac).into_iter().filter(Grant::is_anonymous);
    let finding = |grant: Grant<'_>| Finding {
        check: ANONYMOUS,
        severity: Severity::Critical,
        object: grant.object(),
        saw: format!(
            "gives {} to {}: clients that reach the API server need no credentials for it",
            grant.role(),
            grant.who()
        ),
        fix: grant.remove(),
    };
    found.map(finding).collect()
}

/// Wide bindings, and rights with which others can be had.
pub(super) fn bindings(rbac: &Rbac) -> Vec<Finding> {
    grants(rbac).iter().filter(|grant| !grant.is_anonymous()).filter_map(wide).collect()
}

fn wide(grant: &Grant<'_>) -> Option<Finding> {
    let (broad, escalating) = (grant.is_broad(), grant.escalating());
    let everywhere = grant.is_everything() && grant.is_of_cluster();
    let (severity, saw) = if everywhere && broad {
        (Severity::Critical, "everything in the cluster".to_owned())
    } else if !escalating.is_empty() && !everywhere {
        let severity = if broad { Severity::Critical } else { Severity::Warning };
        (severity, format!("{}: rights that lead to others", escalating.join(", ")))
    } else if broad && grant.is_wide() {
        (Severity::Warning, "every verb, or every resource, of what the role names".to_owned())
    } else if broad && grant.reads_secrets() {
        (Severity::Warning, "to read Secrets".to_owned())
    } else if everywhere && !is_of_system(grant.subject) {
        (Severity::Note, "everything in the cluster".to_owned())
    } else {
        return None;
    };
    let saw = format!("{} ({}) is allowed {saw}", grant.who(), grant.role());
    Some(Finding { check: BINDINGS, severity, object: grant.object(), saw, fix: grant.remove() })
}

/// Components of the cluster itself.
fn is_of_system(subject: &Value) -> bool {
    subject.text("name").starts_with("system:") || subject.text("namespace") == "kube-system"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{binding, fixture, role};
    use super::*;

    fn found(kind: fn(&Rbac) -> Vec<Finding>, rbac: &Rbac) -> Vec<(Severity, String)> {
        kind(rbac).into_iter().map(|finding| (finding.severity, finding.object)).collect()
    }

    fn group(name: &str) -> Value {
        json!({"kind": "Group", "name": name})
    }

    #[test]
    fn a_fresh_cluster_has_none() {
        assert_eq!((found(anonymous, &fixture().rbac()), found(bindings, &fixture().rbac())), (vec![], vec![]));
    }

    #[test]
    fn anonymous_access_beyond_the_default_is_found() {
        let mut rbac = fixture().rbac();
        rbac.cluster_bindings.push(binding("", "open", "view", &group("system:unauthenticated")));
        rbac.bindings.push(binding("shop", "open", "view", &json!({"kind": "User", "name": "system:anonymous"})));
        let critical = |object: &str| (Severity::Critical, object.to_owned());
        assert_eq!(found(anonymous, &rbac), [critical("ClusterRoleBinding open"), critical("RoleBinding shop/open")]);
        assert_eq!(found(bindings, &rbac), []);
    }

    #[test]
    fn what_was_added_to_a_default_object_is_found() {
        let mut rbac = fixture().rbac();
        let public =
            rbac.cluster_roles.iter_mut().find(|role| role.text("metadata.name") == "system:public-info-viewer");
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        public.expect("a default role")["rules"].as_array_mut().expect("rules").push(rule);
        assert_eq!(
            found(anonymous, &rbac),
            [(Severity::Critical, "ClusterRoleBinding system:public-info-viewer".to_owned())]
        );
        let mut rbac = fixture().rbac();
        let admin = rbac.cluster_bindings.iter_mut().find(|own| own.text("metadata.name") == "cluster-admin");
        admin.expect("a default binding")["subjects"]
            .as_array_mut()
            .expect("subjects")
            .push(group("system:authenticated"));
        assert_eq!(found(bindings, &rbac), [(Severity::Critical, "ClusterRoleBinding cluster-admin".to_owned())]);
    }

    #[test]
    fn broad_groups_with_wide_rights_are_found() {
        let account = json!({"kind": "ServiceAccount", "name": "default", "namespace": "shop"});
        for (subject, role, namespace, wanted) in [
            (group("system:authenticated"), "cluster-admin", "", Some(Severity::Critical)),
            (group("system:serviceaccounts"), "cluster-admin", "shop", Some(Severity::Warning)),
            (group("system:serviceaccounts:shop"), "escalator", "", Some(Severity::Critical)),
            (account.clone(), "cluster-admin", "", Some(Severity::Critical)),
            (account.clone(), "reader", "shop", Some(Severity::Warning)),
            (account, "view", "shop", None),
            (group("system:authenticated"), "view", "", None),
            (group("admins"), "cluster-admin", "", Some(Severity::Note)),
            (group("admins"), "cluster-admin", "shop", None),
            (json!({"kind": "User", "name": "ada"}), "escalator", "", Some(Severity::Warning)),
            (json!({"kind": "User", "name": "ada"}), "reader", "", None),
        ] {
            let mut rbac = fixture().rbac();
            rbac.cluster_roles.push(role_of("escalator", &["impersonate"], "users"));
            rbac.cluster_roles.push(role_of("reader", &["get", "list"], "secrets"));
            let made = binding(namespace, "b", role, &subject);
            if namespace.is_empty() {
                rbac.cluster_bindings.push(made);
            } else {
                rbac.bindings.push(made);
            }
            let severities: Vec<Severity> = found(bindings, &rbac).into_iter().map(|(severity, _)| severity).collect();
            assert_eq!(severities, Vec::from_iter(wanted), "{subject} {role} {namespace}");
        }
    }

    fn role_of(name: &str, verbs: &[&str], resource: &str) -> Value {
        role(name, &json!([{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]))
    }
}
