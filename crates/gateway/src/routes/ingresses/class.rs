//! A class that is served: its ports, its rules, its certificates.
//!
//! In: the virtual gateway of the class. Out: ports with one table of rules. Rules that do not differ stay as they are,
//! with their state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use routing::ingress::{Host, IngressTable, ServerCertificates, VirtualGateway};
use routing::model::{GatewayConfig, ListenerConfig, ListenerProtocol, Rule, Target};
use rustls::ServerConfig;

use super::super::programmed::{Frontend, Problem, Programmed};
use super::super::rule::CompiledRule;
use super::super::tables::{PortTable, RoutedListener};
use super::certificates::ClassCertificates;
use super::{IngressRule, IngressRules, Resources};
use crate::controller::Shared;
use crate::tls::frontend::{self, ClientCertificates};

/// Where a rule is in its Ingress: key, index, name. Two rules may have the same place.
type Place<'a> = (&'a str, usize, Option<&'a str>);

/// A class that is served.
pub(super) struct ServedClass {
    programmed: Programmed,
    /// Of both ports.
    listeners: Vec<Arc<RoutedListener>>,
    rules: Arc<IngressRules>,
    certificates: Arc<ClassCertificates>,
    /// The certificates that were set last.
    names: Arc<ServerCertificates>,
    /// Whether hosts keep certificates of which it is not known yet what replaces them.
    keeps: bool,
}

impl ServedClass {
    pub(super) fn new(gateway: &VirtualGateway, shared: &Arc<Shared>) -> Self {
        let certificates = Arc::<ClassCertificates>::default();
        let tls = tls(&certificates);
        let listener = |config: &Arc<ListenerConfig>| {
            let tls = tls.clone().filter(|_| config.protocol == ListenerProtocol::Https);
            let metrics = shared.metrics.routing().for_listener(&config.id);
            let (config, tables) = (Arc::clone(config), Arc::default());
            Arc::new(RoutedListener { config, tls: ArcSwapOption::new(tls), tables, metrics })
        };
        Self {
            programmed: Programmed::new(Arc::clone(&gateway.config), Arc::clone(shared)),
            listeners: gateway.config.listeners.iter().map(listener).collect(),
            rules: Arc::default(),
            certificates,
            names: Arc::default(),
            keeps: false,
        }
    }

    pub(super) const fn config(&self) -> &Arc<GatewayConfig> {
        &self.programmed.config
    }

    /// Takes the rules of hosts over from the table of the class.
    pub(super) fn change(
        &self,
        hosts: &BTreeSet<Host>,
        from: &IngressTable,
        resources: &mut Resources<'_>,
        shared: &Shared,
    ) {
        if hosts.is_empty() {
            return;
        }
        let new = changed(&self.rules.load(), hosts, from, |rule| self.compile(rule, resources, shared));
        self.rules.store(Arc::new(new));
    }

    fn compile(&self, rule: &Arc<Rule>, resources: &mut Resources<'_>, shared: &Shared) -> IngressRule {
        let Resources { pools, trust, .. } = resources;
        let upstream = |target: &Target| match target {
            Target::Service(target) => Some(pools.upstream(target, None, trust)),
            Target::Invalid(_) => None,
        };
        let metrics = shared.metrics.routing().for_route(&self.config().key, &rule.route);
        let means = (&shared.enforcer, &trust.passwords);
        IngressRule { source: Arc::clone(rule), compiled: Arc::new(CompiledRule::new(rule, upstream, metrics, means)) }
    }

    /// Whether [`Self::certify`] would change something although the certificates of the class are the same.
    pub(super) fn must_certify(&self, changed: &BTreeSet<Arc<str>>, is_loading: bool) -> bool {
        self.keeps && !is_loading || self.certificates.uses(changed)
    }

    /// Shows these certificates.
    pub(super) fn certify(&mut self, names: &Arc<ServerCertificates>, resources: &Resources<'_>, is_loading: bool) {
        if Arc::ptr_eq(names, &self.names) && !self.must_certify(resources.changed, is_loading) {
            return;
        }
        // An Ingress may refer to another Secret before that is read: until then its hosts have the certificate before.
        self.certificates.set(names, resources.trust, is_loading);
        (self.names, self.keeps) = (Arc::clone(names), is_loading);
    }

    /// Opens the ports; returns what failed.
    pub(super) fn open(&mut self, config: &Arc<GatewayConfig>, frontend: &Frontend) -> Vec<Problem> {
        let port = |listener: &Arc<RoutedListener>| {
            let (of, rules) = (&listener.config, Arc::clone(&self.rules));
            ((of.protocol.transport(), of.port), PortTable::Ingress { listener: Arc::clone(listener), rules })
        };
        let ports: BTreeMap<_, _> = self.listeners.iter().map(port).collect();
        self.programmed.config = Arc::clone(config);
        self.programmed.open(ports, frontend)
    }
}

/// The table with the rules of hosts taken over from the one of the class. Rules that do not differ are kept.
pub(super) fn changed(
    before: &IngressTable<IngressRule>,
    hosts: &BTreeSet<Host>,
    from: &IngressTable,
    mut compile: impl FnMut(&Arc<Rule>) -> IngressRule,
) -> IngressTable<IngressRule> {
    let mut new = before.clone();
    for host in hosts {
        let mut known: HashMap<Place<'_>, Vec<&Arc<IngressRule>>> = HashMap::new();
        for rule in before.of_host(host.as_deref()) {
            known.entry(place(&rule.source)).or_default().push(rule);
        }
        new.take(host.as_ref(), from, |rule| {
            let same = known.get(&place(rule)).into_iter().flatten().find(|known| is_same(&known.source, rule));
            same.map_or_else(|| Arc::new(compile(rule)), |same| Arc::clone(same))
        });
    }
    new
}

fn is_same(one: &Arc<Rule>, other: &Arc<Rule>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn place(rule: &Rule) -> Place<'_> {
    (&rule.route.key, rule.index, rule.name.as_deref())
}

/// TLS towards clients. It stays while certificates change, so that sessions can be resumed.
fn tls(certificates: &Arc<ClassCertificates>) -> Option<Arc<ServerConfig>> {
    frontend::config(Arc::clone(certificates) as _, ClientCertificates::None, true)
        .map_err(|error| tracing::warn!(%error, "cannot configure TLS of Ingresses"))
        .ok()
}
