//! Secrets with passwords, to which the policies of rules refer: they are watched as those of Gateways are.
//!
//! In: the rules of routes, as they change. Out: Secrets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::view::gateway_api::Material;
use routing::model::{RouteId, Rule};

/// The Secrets of each route that has some.
#[derive(Default)]
pub(super) struct PolicySecrets(HashMap<RouteId, BTreeSet<Arc<str>>>);

impl PolicySecrets {
    /// Applies the rules of a route, none if it is not served; whether its Secrets differ.
    pub(super) fn apply(&mut self, route: &RouteId, rules: &[Arc<Rule>]) -> bool {
        let secrets = of_rules(rules);
        let before = match secrets.is_empty() {
            true => self.0.remove(route),
            false => self.0.insert(route.clone(), secrets.clone()),
        };
        before.unwrap_or_default() != secrets
    }

    /// All Secrets.
    pub(super) fn materials(&self) -> impl Iterator<Item = Material> {
        self.0.values().flatten().map(|key| Material::Secret((**key).into()))
    }
}

/// The Secrets with passwords, to which the policies of rules refer.
pub(super) fn of_rules(rules: &[Arc<Rule>]) -> BTreeSet<Arc<str>> {
    let policies = rules.iter().filter_map(|rule| rule.policy.as_ref());
    policies.filter_map(|policy| policy.basic_auth.as_ref()).map(|auth| Arc::clone(&auth.secret)).collect()
}

#[cfg(test)]
mod tests {
    use routing::model::{Matches, RouteKind};
    use routing::policy::{BasicAuth, PasswordFormat, Policy};

    use super::*;

    fn rule(secret: Option<&str>) -> Arc<Rule> {
        let auth = |secret: &str| BasicAuth { realm: "".into(), secret: secret.into(), format: PasswordFormat::File };
        Arc::new(Rule {
            route: RouteId { kind: RouteKind::Ingress, key: "shop/web".into() },
            index: 0,
            name: None,
            matches: Matches::Http(Vec::new()),
            filters: Vec::new(),
            mirrors: Vec::new(),
            backends: Vec::new(),
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            session: None,
            policy: Some(Arc::new(Policy { basic_auth: secret.map(auth), ..Policy::default() })),
            broken: None,
        })
    }

    #[test]
    fn secrets_are_wanted_while_a_rule_refers_to_them() {
        let mut secrets = PolicySecrets::default();
        let [one, two] = ["shop/one", "shop/two"].map(|key| RouteId { kind: RouteKind::Ingress, key: key.into() });
        let all = |secrets: &PolicySecrets| secrets.materials().collect::<BTreeSet<_>>();
        let of = |keys: &[&str]| keys.iter().map(|key| Material::Secret((*key).into())).collect::<BTreeSet<_>>();
        assert!(!secrets.apply(&one, &[rule(None)]));
        assert!(secrets.apply(&one, &[rule(Some("shop/a")), rule(Some("shop/b")), rule(None)]));
        assert!(!secrets.apply(&one, &[rule(Some("shop/b")), rule(Some("shop/a"))]), "the same");
        assert!(secrets.apply(&two, &[rule(Some("shop/a"))]));
        assert_eq!(all(&secrets), of(&["shop/a", "shop/b"]));
        assert!(secrets.apply(&one, &[]));
        assert_eq!(all(&secrets), of(&["shop/a"]));
    }
}
