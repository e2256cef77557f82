//! Secrets and ConfigMaps: which of them this node watches.
//!
//! In: the rules of routes with the policies that hold for them at a listener; references. Out: a limited number of
//! references for each namespace. Each is a watch of its own on every node, and whoever may write Ingresses, Gateways or
//! policies could demand any number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::view::gateway_api::Material;
use routing::model::{Place, RouteId, Rule};

/// Secrets and ConfigMaps that are watched for the policies of a namespace; the first by name.
pub(super) const MOST_OF_POLICIES: usize = 256;
/// Those for the Ingresses, Gateways and ListenerSets of a namespace.
pub(super) const MOST_OF_LISTENERS: usize = 1000;

/// References by the namespace of the objects that have them: nobody can exhaust the limit of others by naming their Secrets.
#[derive(Default)]
pub(super) struct References(BTreeMap<Box<str>, BTreeSet<Material>>);

impl References {
    /// Adds those of an object, by its key.
    pub(super) fn add(&mut self, object: &str, to: impl IntoIterator<Item = Material>) {
        let mut to = to.into_iter().peekable();
        if to.peek().is_some() {
            let namespace = object.split_once('/').map_or("", |(namespace, _)| namespace);
            self.0.entry(namespace.into()).or_default().extend(to);
        }
    }

    /// The references that are watched if these are the most of a namespace; how many of each namespace with more are not is
    /// added to `beyond`.
    pub(super) fn bounded(self, most: usize, beyond: &mut BTreeMap<Box<str>, usize>) -> BTreeSet<Material> {
        let mut watched = BTreeSet::new();
        for (namespace, all) in self.0 {
            if let Some(more) = all.len().checked_sub(most).filter(|more| *more > 0) {
                *beyond.entry(namespace).or_default() += more;
            }
            watched.extend(all.into_iter().take(most));
        }
        watched
    }
}

/// Secrets with passwords that the rules of each route need at each place.
#[derive(Default)]
pub(super) struct PolicySecrets(HashMap<(Place, RouteId), BTreeSet<Arc<str>>>);

impl PolicySecrets {
    /// Applies the rules of a route at a place, none if nothing holds for them; whether its Secrets differ.
    pub(super) fn apply(&mut self, place: &Place, route: &RouteId, rules: &[Arc<Rule>]) -> bool {
        let (key, secrets) = ((place.clone(), route.clone()), of_rules(rules));
        let before = match secrets.is_empty() {
            true => self.0.remove(&key),
            false => self.0.insert(key, secrets.clone()),
        };
        before.unwrap_or_default() != secrets
    }

    /// All Secrets, which are in the namespaces of the policies.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.values().flatten()
    }
}

/// The Secrets with passwords, to which the policies of rules refer, also those around them.
fn of_rules(rules: &[Arc<Rule>]) -> BTreeSet<Arc<str>> {
    let policies = rules.iter().filter_map(|rule| rule.policy.as_ref()).flat_map(|policy| policy.layers());
    policies.filter_map(|policy| policy.basic_auth.as_ref()).map(|auth| Arc::clone(&auth.secret)).collect()
}

#[cfg(test)]
mod tests {
    use routing::model::{ListenerId, Matches, RouteKind};
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
        let [one, two] = ["one", "two"]
            .map(|name| Place::from(ListenerId { gateway: "shop/public".into(), set: None, name: name.into() }));
        let all = |secrets: &PolicySecrets| secrets.keys().cloned().collect::<BTreeSet<_>>();
        let of = |keys: &[&str]| keys.iter().map(|key| Arc::from(*key)).collect::<BTreeSet<Arc<str>>>();
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
        let secret = |key: &str| Material::Secret(key.into());
        let mut all = References::default();
        all.add("shop/policy", [secret("shop/users"), Material::ConfigMap("shop/ca".into())]);
        all.add("quiet/policy", []);
        // Of its own namespace, and of another one.
        all.add("loud/one", (0..3).map(|number| secret(&format!("loud/{number}"))));
        all.add("loud/two", (0..10).map(|number| secret(&format!("shop/{number}"))));
        let mut beyond = BTreeMap::from([("loud".into(), 1)]);
        let kept = all.bounded(5, &mut beyond);
        let own = [secret("shop/users"), Material::ConfigMap("shop/ca".into())];
        let first = ["loud/0", "loud/1", "loud/2", "shop/0", "shop/1"].map(secret);
        assert_eq!(kept, own.into_iter().chain(first).collect());
        assert_eq!(beyond, BTreeMap::from([("loud".into(), 9)]));
    }
}
