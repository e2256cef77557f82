//! RBAC: roles and bindings, indexed by subject.
//!
//! In: Roles, ClusterRoles and their bindings, one change at a time. Out: the rules of a user in a namespace, each with the binding that
//! grants it. A decision reads only the bindings of the user and of the user's groups.

use std::sync::Arc;

use api::field::quote;
use api::kind::Kind;
use api::kinds::{role, rolebinding};
use api::rbac::{PolicyRule, Request};
use api::value::ValueExt as _;
use foldhash::quality::RandomState;
use serde_json::Value;

use crate::auth::{User, service_account};

/// Looked up several times for each request: SipHash took half a percent of it. The hash is seeded, as names are chosen by clients.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The bindings of a subject by namespace; those of ClusterRoleBindings have an empty one.
type Scopes = HashMap<String, Vec<Arc<Binding>>>;

/// Roles and bindings. A decision looks up borrowed names and allocates only its reason.
#[derive(Debug, Default)]
pub struct Grants {
    /// Roles by namespace and name; ClusterRoles have an empty namespace.
    roles: HashMap<String, HashMap<String, Arc<[PolicyRule]>>>,
    /// Bindings by namespace and name; ClusterRoleBindings have an empty namespace.
    bindings: HashMap<(String, String), Arc<Binding>>,
    users: HashMap<String, Scopes>,
    groups: HashMap<String, Scopes>,
}

/// The subject of a binding. A ServiceAccount is the user of its name.
#[derive(PartialEq, Eq, Debug)]
enum Subject {
    User(String),
    Group(String),
}

#[derive(PartialEq, Eq, Debug)]
struct Binding {
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    /// `Role` or `ClusterRole`.
    role_kind: String,
    role: String,
    /// Each with the reason for an allowed request, in the format of kube-apiserver.
    subjects: Vec<(Subject, String)>,
}

/// The rules of a binding's role, or the error when the role does not exist.
pub struct Granted<'a> {
    /// The reason for a request that the rules allow.
    reason: &'a str,
    /// The rules of the role.
    pub rules: Result<&'a [PolicyRule], String>,
}

impl Grants {
    /// Applies a change; `None` for a deleted object.
    pub fn change(&mut self, kind: &Kind, namespace: &str, name: &str, object: Option<&Value>) {
        if kind.kind == role::ROLE.kind || kind.kind == role::CLUSTER_ROLE.kind {
            let roles = self.roles.entry(namespace.to_owned()).or_default();
            match object {
                Some(object) => roles.insert(name.to_owned(), PolicyRule::read_all(object).into()),
                None => roles.remove(name),
            };
            self.roles.retain(|_, roles| !roles.is_empty());
            return;
        }
        let place = (namespace.to_owned(), name.to_owned());
        debug_assert!([rolebinding::ROLE_BINDING.kind, rolebinding::CLUSTER_ROLE_BINDING.kind].contains(&kind.kind));
        if let Some(old) = self.bindings.remove(&place) {
            self.forget(&old);
        }
        if let Some(object) = object {
            let binding = Arc::new(Binding::read(namespace, name, object));
            for (subject, _) in &binding.subjects {
                let (subjects, name) = self.subjects(subject);
                let scopes = subjects.entry(name.to_owned()).or_default();
                scopes.entry(namespace.to_owned()).or_default().push(binding.clone());
            }
            self.bindings.insert(place, binding);
        }
    }

    fn forget(&mut self, binding: &Arc<Binding>) {
        for (subject, _) in &binding.subjects {
            let (subjects, name) = self.subjects(subject);
            let Some(scopes) = subjects.get_mut(name) else { continue };
            if let Some(list) = scopes.get_mut(&binding.namespace) {
                list.retain(|other| !Arc::ptr_eq(other, binding));
            }
            scopes.retain(|_, list| !list.is_empty());
            if scopes.is_empty() {
                subjects.remove(name);
            }
        }
    }

    /// The index of a subject, and its name there.
    fn subjects<'s>(&mut self, subject: &'s Subject) -> (&mut HashMap<String, Scopes>, &'s str) {
        match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        }
    }

    /// The rules of a user in a namespace: those of ClusterRoleBindings, then those of RoleBindings.
    pub fn of<'a>(&'a self, user: &User, namespace: &str) -> impl Iterator<Item = Granted<'a>> {
        let scopes = [Some(""), Some(namespace).filter(|namespace| !namespace.is_empty())];
        scopes.into_iter().flatten().flat_map(move |scope| {
            let own = self.users.get(&user.name).and_then(|scopes| scopes.get(scope));
            let own = own.into_iter().flatten().filter_map(|binding| {
                self.granted(binding, |subject| matches!(subject, Subject::User(name) if *name == user.name))
            });
            let groups = user.groups.iter().flat_map(move |group| {
                let bindings = self.groups.get(group).and_then(|scopes| scopes.get(scope));
                bindings.into_iter().flatten().filter_map(move |binding| {
                    self.granted(binding, |subject| matches!(subject, Subject::Group(name) if name == group))
                })
            });
            own.chain(groups)
        })
    }

    fn granted<'a>(&'a self, binding: &'a Binding, is_meant: impl Fn(&Subject) -> bool) -> Option<Granted<'a>> {
        let (_, reason) = binding.subjects.iter().find(|(subject, _)| is_meant(subject))?;
        let rules = self.rules_of(&binding.role_kind, &binding.namespace, &binding.role);
        let rules = rules.ok_or_else(|| {
            format!("{}.{} {} not found", binding.role_kind.to_lowercase(), api::rbac::GROUP, quote(&binding.role))
        });
        Some(Granted { reason, rules })
    }

    /// The rules of a role.
    #[must_use]
    pub fn rules_of(&self, kind: &str, namespace: &str, name: &str) -> Option<&[PolicyRule]> {
        let namespace = if kind == role::CLUSTER_ROLE.kind { "" } else { namespace };
        self.roles.get(namespace)?.get(name).map(|rules| &**rules)
    }

    /// Whether a user may make a request: the reason, or errors.
    ///
    /// # Errors
    /// The missing roles of bindings of the user; empty when all exist and none allows the request.
    pub fn allow(&self, user: &User, namespace: &str, request: &Request<'_>) -> Result<String, Vec<String>> {
        let mut problems = Vec::new();
        for granted in self.of(user, namespace) {
            match &granted.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(request)) => return Ok(granted.reason.to_owned()),
                Ok(_) => {}
                Err(problem) if problems.contains(problem) => {}
                Err(problem) => problems.push(problem.clone()),
            }
        }
        Err(problems)
    }
}

impl Binding {
    fn read(namespace: &str, name: &str, object: &Value) -> Self {
        let (role_kind, role) = (object.text("roleRef.kind"), object.text("roleRef.name"));
        let binding = match namespace {
            "" => format!("ClusterRoleBinding {}", quote(name)),
            _ => format!("RoleBinding {}", quote(&format!("{name}/{namespace}"))),
        };
        let granting = format!("RBAC: allowed by {binding} of {role_kind} {} to", quote(role));
        let subjects = object.items("subjects").iter().filter_map(|subject| read_subject(namespace, subject));
        let subjects = subjects.map(|(subject, described)| (subject, format!("{granting} {described}")));
        Self {
            namespace: namespace.to_owned(),
            role_kind: role_kind.to_owned(),
            role: role.to_owned(),
            subjects: subjects.collect(),
        }
    }
}

/// A subject and its description; a ServiceAccount without a namespace has that of the binding.
fn read_subject(binding_namespace: &str, subject: &Value) -> Option<(Subject, String)> {
    let name = subject.text("name");
    match subject.text("kind") {
        "User" => Some((Subject::User(name.to_owned()), format!("User {}", quote(name)))),
        "Group" => Some((Subject::Group(name.to_owned()), format!("Group {}", quote(name)))),
        "ServiceAccount" => {
            let namespace = match subject.text("namespace") {
                "" => binding_namespace,
                namespace => namespace,
            };
            let described = format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")));
            (!namespace.is_empty()).then(|| (Subject::User(service_account::username(namespace, name)), described))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
    }

    fn get(resource: &str) -> Request<'_> {
        Request::Resource { verb: "get", group: "", resource, subresource: "", name: "x" }
    }

    fn reader(resource: &str) -> Value {
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]})
    }

    fn binding(kind: &str, role: &str, subject: &Value) -> Value {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
    }

    fn grants() -> Grants {
        let mut grants = Grants::default();
        grants.change(&role::CLUSTER_ROLE, "", "nodes", Some(&reader("nodes")));
        grants.change(&role::ROLE, "a", "pods", Some(&reader("pods")));
        let dev = binding("ClusterRole", "nodes", &json!({"kind": "Group", "name": "dev"}));
        grants.change(&rolebinding::CLUSTER_ROLE_BINDING, "", "all", Some(&dev));
        let robot = binding("Role", "pods", &json!({"kind": "ServiceAccount", "name": "robot"}));
        grants.change(&rolebinding::ROLE_BINDING, "a", "b", Some(&robot));
        grants
    }

    #[test]
    fn bindings_grant_in_their_namespace_or_everywhere() {
        let grants = grants();
        let (alice, robot) = (user("alice", &["dev"]), user("system:serviceaccount:a:robot", &[]));
        let everywhere = "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"nodes\" to Group \"dev\"";
        assert_eq!(grants.allow(&alice, "", &get("nodes")), Ok(everywhere.to_owned()));
        assert_eq!(grants.allow(&alice, "a", &get("nodes")), Ok(everywhere.to_owned()));
        assert_eq!(grants.allow(&alice, "a", &get("pods")), Err(Vec::new()));
        let there = "RBAC: allowed by RoleBinding \"b/a\" of Role \"pods\" to ServiceAccount \"robot/a\"";
        assert_eq!(grants.allow(&robot, "a", &get("pods")), Ok(there.to_owned()));
        for elsewhere in ["", "b"] {
            assert_eq!(grants.allow(&robot, elsewhere, &get("pods")), Err(Vec::new()), "{elsewhere}");
        }
    }

    #[test]
    fn removed_bindings_and_roles_grant_nothing() {
        let (mut grants, alice) = (grants(), user("alice", &["dev"]));
        grants.change(&role::CLUSTER_ROLE, "", "nodes", None);
        assert_eq!(
            grants.allow(&alice, "", &get("nodes")),
            Err(vec!["clusterrole.rbac.authorization.k8s.io \"nodes\" not found".to_owned()])
        );
        grants.change(&role::CLUSTER_ROLE, "", "nodes", Some(&reader("nodes")));
        let others = binding("ClusterRole", "nodes", &json!({"kind": "Group", "name": "ops"}));
        grants.change(&rolebinding::CLUSTER_ROLE_BINDING, "", "all", Some(&others));
        assert_eq!(grants.allow(&alice, "", &get("nodes")), Err(Vec::new()));
        assert!(grants.allow(&user("bob", &["ops"]), "", &get("nodes")).is_ok());
        grants.change(&rolebinding::CLUSTER_ROLE_BINDING, "", "all", None);
        grants.change(&rolebinding::ROLE_BINDING, "a", "b", None);
        assert!(grants.users.is_empty() && grants.groups.is_empty() && grants.bindings.is_empty());
    }
}
