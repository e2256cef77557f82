//! Explanations: an object with everything that its traffic passes, from parents to endpoints.
//!
//! ```text
//! route ──▶ parents ──▶ listeners (attached for which hostnames, or why not)
//!    └────▶ rules ──▶ matches, filters, backends ──▶ endpoints
//! ```
//! In: the key of an object. Out: an [`Explanation`], a tree of items that renders as text and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use routing::cluster::ListenerState;
use routing::model::{Backend, ListenerId, RouteId, Rule, Target};
use serde::Serialize;

use super::attachment::{Stranger, describe, parent_kind, why};
use super::objects::{Kind, Route};
use super::{ENDPOINTS, Layer7, Subject, matches, namespace_of, rules, state};
use crate::finding::Finding;
use crate::words::{count, list};

/// The most routes that are listed of a listener.
const ROUTES: usize = 50;

/// The explanation of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Its state in a word: `ok`, `degraded`, `not working`, or `not ours` for an object of other controllers.
    pub state: &'static str,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What it consists of.
    pub items: Vec<Item>,
}

/// A part of an explanation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Item {
    /// What it is: `parent`, `listener`, `port`, `clients`, `route`, `host`, `rule`, `match`, `filter`, `timeout`, `retry`, `backend`,
    /// `endpoint`, `address`, `hostnames`, `class`, `target`, `policy`, `more`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What there is to say of it; may be empty.
    pub says: String,
    /// Its parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Self>,
}

impl Item {
    pub(super) fn new(kind: &'static str, name: impl Into<String>, says: impl Into<String>) -> Self {
        Self { kind, name: name.into(), says: says.into(), items: Vec::new() }
    }

    pub(super) fn with(self, items: impl IntoIterator<Item = Self>) -> Self {
        Self { items: items.into_iter().collect(), ..self }
    }
}

impl Layer7<'_> {
    /// The objects of a kind with this name: that of the namespace, or those of others.
    #[must_use]
    pub fn named(&self, kind: Kind, name: &str) -> Vec<Subject> {
        let fits = |key: &&std::sync::Arc<str>| super::name_of(key) == name;
        let keys: Vec<_> = match kind {
            Kind::Gateway => self.objects.gateways.keys().filter(fits).collect(),
            Kind::ListenerSet => self.objects.sets.keys().filter(fits).collect(),
            Kind::BackendTlsPolicy => self.objects.policies.keys().filter(fits).collect(),
            Kind::Ingress => self.objects.ingresses.keys().filter(fits).collect(),
            _ => {
                let of_kind = self.objects.routes.keys().filter(|id| Kind::of_route(id.kind) == kind);
                of_kind.map(|id| &id.key).filter(fits).collect()
            }
        };
        keys.into_iter().map(|key| kind.subject(key)).collect()
    }

    /// Explains an object; none where there is no such object, or no explanation of its kind.
    #[must_use]
    pub fn explain(&self, kind: Kind, key: &str) -> Option<Explanation> {
        let (is_ours, items) = match (kind, kind.route(key)) {
            (Kind::Gateway, _) => self.explain_gateway(key)?,
            (Kind::ListenerSet, _) => self.explain_set(key)?,
            (Kind::BackendTlsPolicy, _) => self.explain_policy(key)?,
            (Kind::Ingress, _) => self.explain_ingress(key)?,
            (_, Some(id)) => self.explain_route(&id)?,
            _ => return None,
        };
        let findings = self.of(kind, key);
        let has_faults = findings.iter().any(|one| !super::code::OF_OTHER_CONTROLLERS.contains(&&*one.code));
        let state = if is_ours || has_faults { state(&findings) } else { "not ours" };
        Some(Explanation { subject: kind.subject(key), state, findings, items })
    }

    fn explain_route(&self, id: &RouteId) -> Option<(bool, Vec<Item>)> {
        let route = self.objects.routes.get(id)?;
        let mut items = Vec::new();
        if !route.hostnames().is_empty() {
            items.push(Item::new("hostnames", list(route.hostnames(), usize::MAX), ""));
        }
        items.extend(route.parents().iter().map(|reference| self.explain_parent(id, reference)));
        let is_ours = self.cluster.route(id).is_some_and(|state| !state.parents.is_empty());
        items.extend(self.explain_rules(id, route));
        items.extend(self.policies_at_route(id, route));
        Some((is_ours, items))
    }

    fn explain_parent(&self, id: &RouteId, reference: &api::view::gateway_api::ParentRef) -> Item {
        let mut name = format!("{} {}", reference.kind(), reference.key(namespace_of(&id.key)));
        if let Some(section) = &reference.section_name {
            let what = if reference.is_service() { "port" } else { "listener" };
            name.push_str(&format!(", {what} {section}"));
        }
        if let Some(port) = reference.port {
            name.push_str(&format!(", port {port}"));
        }
        if reference.is_service() {
            return self.explain_service_parent(id, reference, name);
        }
        let placements = self.cluster.placements(id, reference);
        if parent_kind(reference).is_none() {
            return Item::new("parent", name, "not a Gateway, a ListenerSet or a Service: it is ignored");
        }
        let is_ours =
            self.cluster.route(id).is_some_and(|state| state.parents.iter().any(|one| one.parent_ref == *reference));
        if !is_ours {
            let says = match self.stranger(id, reference) {
                Some(Stranger::Foreign(controller)) => format!("implemented by controller {controller}"),
                Some(Stranger::NoClass(class)) => format!("its GatewayClass {class} does not exist"),
                Some(Stranger::Missing) | None => "it does not exist".to_owned(),
            };
            return Item::new("parent", name, says);
        }
        let attached = placements.iter().filter(|one| one.outcome.is_ok()).count();
        let says = format!("attached to {attached} of {}", count(placements.len(), "listener"));
        let listeners = placements.iter().map(|one| {
            let says = match &one.outcome {
                Ok(_) if !self.is_served(&one.listener) => "attached, but the listener is not served".to_owned(),
                Ok(hosts) if hosts.is_empty() => "attached for all its hosts".to_owned(),
                Ok(hosts) => format!("attached for {}", list(hosts, usize::MAX)),
                Err(outcome) => format!("not attached: {}", why(*outcome)),
            };
            Item::new("listener", describe(one), says)
        });
        Item::new("parent", name, says).with(listeners)
    }

    fn explain_rules(&self, id: &RouteId, route: &Route) -> Vec<Item> {
        let Some(state) = self.cluster.route(id) else { return Vec::new() };
        let written = route.rules();
        let rule = |(index, written): (usize, &super::objects::WrittenRule<'_>)| {
            let name = rules::describe(index, written.name).trim_start_matches("rule ").to_owned();
            if let Some(stream) = state.stream.as_ref().filter(|_| index == 0) {
                return Item::new("rule", name, "").with(self.backend_items(&stream.backends));
            }
            match state.rules.iter().find(|rule| rule.index == index) {
                Some(rule) => Item::new("rule", name, broken(rule)).with(self.rule_items(rule)),
                None => Item::new("rule", name, "not in use"),
            }
        };
        written.iter().enumerate().map(rule).collect()
    }

    fn rule_items(&self, rule: &Rule) -> Vec<Item> {
        let matches = matches::all(rule).into_iter().map(|text| Item::new("match", text, ""));
        let filters = rule.filters.iter().map(|filter| Item::new("filter", super::request::filter_text(filter), ""));
        matches.chain(filters).chain(limits(rule)).chain(self.backend_items(&rule.backends)).collect()
    }

    /// Backends with their shares and endpoints.
    fn backend_items(&self, backends: &[Backend]) -> Vec<Item> {
        let sum: u64 = backends.iter().map(|one| u64::from(one.weight)).sum();
        let backend = |one: &Backend| {
            let share = super::request::share(one.weight, sum);
            match &one.target {
                Target::Invalid(why) => {
                    Item::new("backend", "none", format!("{share}: {}", super::request::invalid_text(*why)))
                }
                Target::Service(target) => {
                    let endpoints = self.endpoints(target);
                    let ready = endpoints.iter().filter(|one| one.ready).count();
                    let says = format!("{share}: {ready} of {} ready", count(endpoints.len(), "endpoint"));
                    let name = format!("Service {} port {}", target.service, target.port);
                    let more = endpoints.len().saturating_sub(ENDPOINTS);
                    let items = endpoints
                        .into_iter()
                        .take(ENDPOINTS)
                        .map(|one| Item::new("endpoint", one.address, if one.ready { "ready" } else { "not ready" }));
                    let more = (more > 0).then(|| Item::new("more", format!("{more} more endpoints"), ""));
                    Item::new("backend", name, says).with(items.chain(more))
                }
            }
        };
        backends.iter().map(backend).collect()
    }

    fn explain_gateway(&self, key: &str) -> Option<(bool, Vec<Item>)> {
        let gateway = self.objects.gateways.get(key)?;
        let class = Item::new("class", gateway.spec.gateway_class_name.to_string(), "");
        let Some(state) = self.cluster.gateway(key) else { return Some((false, vec![class])) };
        let mut items = vec![class];
        items.extend(state.addresses.iter().map(|one| Item::new("address", one.value.to_string(), one.kind)));
        items.extend(state.listeners.iter().map(|one| self.explain_listener(one)));
        let sets = self.objects.sets.keys().filter_map(|key| self.cluster.listener_set(key).map(|set| (key, set)));
        let own = sets.filter(|(_, set)| *set.gateway == *key);
        items.extend(own.map(|(key, set)| {
            let says = if set.accepted.holds() { "attached" } else { &*set.accepted.message };
            Item::new("listenerSet", key.to_string(), says)
                .with(set.listeners.iter().map(|one| self.explain_listener(one)))
        }));
        items.extend(self.policies_at("Gateway", key));
        Some((true, items))
    }

    fn explain_set(&self, key: &str) -> Option<(bool, Vec<Item>)> {
        let set = self.objects.sets.get(key)?;
        let parent = set.spec.parent_ref.key(namespace_of(key));
        let Some(state) = self.cluster.listener_set(key) else {
            return Some((false, vec![Item::new("parent", format!("Gateway {parent}"), "")]));
        };
        let says = if state.accepted.holds() { "attached" } else { &*state.accepted.message };
        let mut items = vec![Item::new("parent", format!("Gateway {}", state.gateway), says)];
        items.extend(state.listeners.iter().map(|one| self.explain_listener(one)));
        items.extend(self.policies_at("ListenerSet", key));
        Some((true, items))
    }

    /// Whether a listener is served, and how many routes are attached to it.
    pub(super) fn listener_says(&self, state: &ListenerState) -> String {
        let attached = || format!("{} attached", count(state.attached_routes, "route"));
        match (self.is_served(&state.id), state.programmed.holds()) {
            (true, true) => format!("served; {}", attached()),
            (true, false) => format!("{}; {}", state.programmed.message, attached()),
            (false, _) => format!("not served: {}", state.programmed.message),
        }
    }

    fn explain_listener(&self, state: &ListenerState) -> Item {
        let id = &state.id;
        let mut routes: Vec<Item> = self
            .cluster
            .attached(&id.clone().into())
            .take(ROUTES)
            .map(|(route, _, hosts)| {
                let hosts = if hosts.is_empty() { "all hosts".to_owned() } else { list(hosts, ENDPOINTS) };
                Item::new("route", format!("{} {}", route.kind.name(), route.key), format!("for {hosts}"))
            })
            .collect();
        let more = state.attached_routes.saturating_sub(routes.len());
        routes.extend((more > 0).then(|| Item::new("more", format!("{more} more routes"), "")));
        Item::new("listener", self.listener_text(id), self.listener_says(state)).with(routes)
    }

    /// A listener with protocol, port and hostname: `http (HTTP 80, *.example.com)`.
    pub(super) fn listener_text(&self, id: &ListenerId) -> String {
        let Some((_, listener)) = self.listener_spec(id) else { return id.name.to_string() };
        let host = listener.host().map(|host| format!(", {host}")).unwrap_or_default();
        format!("{} ({} {}{host})", id.name, listener.protocol, listener.port)
    }

    fn explain_policy(&self, key: &str) -> Option<(bool, Vec<Item>)> {
        let policy = self.objects.policies.get(key)?;
        let state = self.cluster.policy(key)?;
        let target = |one: &api::view::gateway_api::PolicyTarget| {
            let port = one.section_name.as_deref().map(|port| format!(" port {port}")).unwrap_or_default();
            Item::new("target", format!("{} {}{port}", one.kind, one.name), "")
        };
        let ancestors =
            state.ancestors.iter().map(|one| Item::new("parent", format!("{} {}", one.kind, one.key), "uses it"));
        Some((true, policy.spec.target_refs.iter().map(target).chain(ancestors).collect()))
    }

    fn explain_ingress(&self, key: &str) -> Option<(bool, Vec<Item>)> {
        let state = self.ingresses.state(key)?;
        let Some(class) = state.class else { return Some((false, Vec::new())) };
        let mut items = vec![Item::new("class", class.to_string(), "")];
        let gateway = self.ingresses.gateway(&class)?;
        let addresses = self.snapshot.services().get(&*gateway.config.service).map(crate::Service::ingress);
        items.extend(addresses.into_iter().flatten().map(|address| Item::new("address", address, "")));
        let mut hosts: BTreeMap<String, Vec<Item>> = BTreeMap::new();
        for (host, rule) in self.rules_of_ingress(key) {
            let name = matches::all(rule).join("; ");
            let item = Item::new("rule", name, broken(rule)).with(self.backend_items(&rule.backends));
            hosts.entry(host.as_deref().unwrap_or("*").to_owned()).or_default().push(item);
        }
        items.extend(hosts.into_iter().map(|(host, rules)| {
            let secret = gateway.certificates.find(Some(&host));
            let says = secret.map(|secret| format!("certificate in Secret {secret}")).unwrap_or_default();
            Item::new("host", host, says).with(rules)
        }));
        Some((true, items))
    }
}

/// Timeouts and retries of a rule.
fn limits(rule: &Rule) -> Vec<Item> {
    let limit = |name: &str, limit: Option<Duration>| {
        let limit = limit?;
        let says = if limit.is_zero() { "none".to_owned() } else { format!("{limit:?}") };
        Some(Item::new("timeout", name, says))
    };
    let retry = rule.retry.as_ref().map(|retry| {
        let codes: Vec<String> = retry.codes.iter().map(u16::to_string).collect();
        let on = if codes.is_empty() { String::new() } else { format!(" after status {}", list(&codes, usize::MAX)) };
        Item::new("retry", count(retry.attempts as usize, "time"), on.trim_start().to_owned())
    });
    let timeouts = [limit("request", rule.request_timeout), limit("backendRequest", rule.backend_timeout)];
    timeouts.into_iter().flatten().chain(retry).collect()
}

pub(super) fn broken(rule: &Rule) -> String {
    rule.broken.as_ref().map(|why| format!("requests fail with status 500: {why}")).unwrap_or_default()
}
