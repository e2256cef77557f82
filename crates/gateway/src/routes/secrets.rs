//! Secrets and ConfigMaps of policies: which of them this node watches.
//!
//! In: the rules of routes with the policies that hold for them at a listener; references. Out: a limited number of
//! references for each namespace. Each is a watch of its own on every node, and whoever may write policies could demand any
//! number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::view::gateway_api::Material;
use routing::model::{ListenerId, RouteId, Rule};

/// Secrets and ConfigMaps of a namespace that are watched for policies; the first by name.
const MAX_OF_NAMESPACE: usize = 256;

/// Secrets with passwords that the rules of each route need at each listener.
#[derive(Default)]
pub(super) struct PolicySecrets(HashMap<(ListenerId, RouteId), BTreeSet<Arc<str>>>);

impl PolicySecrets {
    /// Applies the rules of a route at a listener, none if nothing holds for them; whether its Secrets differ.
    pub(super) fn apply(&mut self, listener: &ListenerId, route: &RouteId, rules: &[Arc<Rule>]) -> bool {
        let (place, secrets) = ((listener.clone(), route.clone()), of_rules(rules));
        let before = match secrets.is_empty() {
            true => self.0.remove(&place),
            false => self.0.insert(place, secrets.clone()),
        };
        before.unwrap_or_default() != secrets
    }

    /// All Secrets.
    pub(super) fn materials(&self) -> impl Iterator<Item = Material> {
        self.0.values().flatten().map(|key| Material::Secret((**key).into()))
    }
}

/// The Secrets with passwords, to which the policies of rules refer, also those around them.
fn of_rules(rules: &[Arc<Rule>]) -> BTreeSet<Arc<str>> {
    let policies = rules.iter().filter_map(|rule| rule.policy.as_ref()).flat_map(|policy| policy.layers());
    policies.filter_map(|policy| policy.basic_auth.as_ref()).map(|auth| Arc::clone(&auth.secret)).collect()
}

/// The references that are watched, and for each namespace with too many how many are not.
pub(super) fn bounded(mut all: BTreeSet<Material>) -> (BTreeSet<Material>, BTreeMap<Box<str>, usize>) {
    let mut counts: BTreeMap<Box<str>, usize> = BTreeMap::new();
    all.retain(|material| {
        let (Material::Secret(key) | Material::ConfigMap(key)) = material;
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let count = counts.entry(namespace.into()).or_default();
        *count += 1;
        *count <= MAX_OF_NAMESPACE
    });
    let beyond =
        counts.into_iter().filter_map(|(namespace, count)| Some((namespace, count.checked_sub(MAX_OF_NAMESPACE)?)));
    (all, beyond.filter(|(_, count)| *count > 0).collect())
}

#[cfg(test)]
mod tests {
    use routing::model::{Matches, RouteKind};
    use routing::policy::{BasicAuth, PasswordFormat, Policy};

    use super::*;

    fn policy(secret: Option<&str>) -> Policy {
        let auth = |secret: &str| BasicAuth { realm: "".into(), secret: secret.into(), format: PasswordFormat::File };
        Policy { basic_auth: secret.map(auth), ..Policy::default() }
    }

    fn rule(policy: Policy) -> Arc<Rule> {
        Arc::new(Rule {
            route: RouteId { kind: RouteKind::Http, key: "shop/web".into() },
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
            policy: Some(Arc::new(policy)),
            broken: None,
        })
    }

    #[test]
    fn secrets_are_wanted_while_a_rule_needs_them_somewhere() {
        let mut secrets = PolicySecrets::default();
        let route = RouteId { kind: RouteKind::Http, key: "shop/web".into() };
        let [one, two] =
            ["one", "two"].map(|name| ListenerId { gateway: "shop/public".into(), set: None, name: name.into() });
        let all = |secrets: &PolicySecrets| secrets.materials().collect::<BTreeSet<_>>();
        let of = |keys: &[&str]| keys.iter().map(|key| Material::Secret((*key).into())).collect::<BTreeSet<_>>();
        let [none, a, b] = [None, Some("shop/a"), Some("shop/b")].map(|secret| rule(policy(secret)));
        let c = rule(Policy { outer: Some(Arc::new(policy(Some("shop/c")))), ..policy(None) });
        assert!(!secrets.apply(&one, &route, &[Arc::clone(&none)]));
        assert!(secrets.apply(&one, &route, &[Arc::clone(&a), Arc::clone(&b), none, c]));
        assert!(secrets.apply(&two, &route, &[Arc::clone(&a)]));
        assert!(!secrets.apply(&two, &route, &[a]), "the same");
        assert_eq!(all(&secrets), of(&["shop/a", "shop/b", "shop/c"]));
        assert!(secrets.apply(&one, &route, &[]));
        assert_eq!(all(&secrets), of(&["shop/a"]));
    }

    #[test]
    fn a_namespace_with_too_many_takes_no_watches_from_others() {
        let many = (0..MAX_OF_NAMESPACE + 3).map(|number| Material::Secret(format!("loud/{number:04}").into()));
        let few = [Material::Secret("shop/users".into()), Material::ConfigMap("shop/ca".into())];
        let (kept, beyond) = bounded(many.chain(few.clone()).collect());
        assert_eq!(kept.len(), MAX_OF_NAMESPACE + few.len());
        assert!(few.iter().all(|one| kept.contains(one)) && kept.contains(&Material::Secret("loud/0000".into())));
        assert_eq!(beyond, BTreeMap::from([("loud".into(), 3)]));
    }
}
