//! Ingresses on this node: one gateway for each class.
//!
//! In: changes of IngressClasses, Ingresses, Services and Secrets. Out: for each class two ports with one table of rules,
//! and certificates by server name. A change compiles the rules that differ, and swaps the table or the certificates;
//! ports, connections and all other rules stay.

mod certificates;
mod class;
pub(super) mod headers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::view::Ingress;
use api::view::gateway_api::Material;
use arc_swap::ArcSwap;
use routing::cluster::SecretState;
use routing::ingress::{Change, IngressTable, Ingresses, Touched};
use routing::model::{GatewayConfig, Rule};

use super::pools::Pools;
use super::programmed::{Frontend, Problem};
use super::rule::CompiledRule;
use super::trust::Trust;
use crate::controller::Shared;
use class::ServedClass;

/// A rule, with the one that it was made of.
pub(crate) struct IngressRule {
    source: Arc<Rule>,
    pub(crate) compiled: Arc<CompiledRule>,
}

/// The rules of a class.
pub(crate) type IngressRules = ArcSwap<IngressTable<IngressRule>>;

/// All Ingresses, and the classes that are served.
pub(super) struct IngressClasses {
    shared: Arc<Shared>,
    engine: Ingresses,
    /// Changes that are not applied to the engine yet.
    queue: Vec<Change>,
    /// Secrets of Ingresses, whatever their class.
    references: BTreeMap<Arc<str>, Vec<Box<str>>>,
    references_changed: bool,
    /// What changed in the engine and is not served yet.
    touched: Touched,
    /// Classes whose ports are to be opened again.
    dirty: BTreeSet<Arc<str>>,
    classes: BTreeMap<Arc<str>, ServedClass>,
    /// Whether Secrets are wanted of which it is not known yet whether they exist.
    pub(super) is_loading: bool,
}

/// What classes are served with.
pub(super) struct Resources<'a> {
    pub(super) pools: &'a mut Pools,
    pub(super) trust: &'a Trust,
    /// Services with load-balancer addresses.
    pub(super) frontends: &'a HashMap<Arc<str>, Frontend>,
    /// Secrets that changed.
    pub(super) changed: &'a BTreeSet<Arc<str>>,
}

impl IngressClasses {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            engine: Ingresses::new(shared.ingress.clone()),
            shared,
            queue: Vec::new(),
            references: BTreeMap::new(),
            references_changed: false,
            touched: Touched::default(),
            dirty: BTreeSet::new(),
            classes: BTreeMap::new(),
            is_loading: false,
        }
    }

    /// Takes a change; [`Self::apply`] applies it.
    pub(super) fn change(&mut self, change: Change) {
        if let Change::Ingress(key, ingress) = &change {
            self.refer(key, ingress.as_deref());
        }
        self.queue.push(change);
    }

    /// Takes a change of a Secret.
    pub(super) fn change_secret(&mut self, key: &Arc<str>, state: Option<&SecretState>) {
        self.queue.push(Change::Secret(Arc::clone(key), state.cloned()));
    }

    fn refer(&mut self, key: &Arc<str>, ingress: Option<&Ingress>) {
        let secrets = ingress.map(|ingress| ingress.certificates().into_iter().chain(ingress.passwords()).collect());
        let secrets: Vec<Box<str>> = secrets.unwrap_or_default();
        let before = match secrets.is_empty() {
            true => self.references.remove(key),
            false => self.references.insert(Arc::clone(key), secrets.clone()),
        };
        self.references_changed |= before.unwrap_or_default() != secrets;
    }

    /// Applies the changes taken.
    pub(super) fn apply(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        let is_of_classes = |change: &Change| matches!(change, Change::Class(..) | Change::Ingress(..));
        // The class of an Ingress decides whether its Secrets are needed.
        let may_refer = queue.iter().any(is_of_classes);
        let touched = self.engine.apply_all(queue);
        self.references_changed |= may_refer && !touched.classes.is_empty();
        self.touched.classes.extend(touched.classes);
        for (class, hosts) in touched.hosts {
            self.touched.hosts.entry(class).or_default().extend(hosts);
        }
    }

    /// Whether there is an Ingress to serve.
    pub(super) fn is_used(&self) -> bool {
        self.engine.gateways().any(|gateway| self.engine.of_class(&gateway.class).next().is_some())
    }

    /// Whether [`Self::secrets`] may have changed since the last call.
    pub(super) fn references_changed(&mut self) -> bool {
        std::mem::take(&mut self.references_changed)
    }

    /// The Secrets of each Ingress that is served.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (&Arc<str>, &[Box<str>])> {
        let served = self.references.iter().filter(|(ingress, _)| self.engine.class(ingress).is_some());
        served.map(|(ingress, secrets)| (ingress, &secrets[..]))
    }

    /// The Secret with the certificate for hosts that have none, if there is an Ingress to serve.
    pub(super) fn default_certificate(&self) -> Option<Material> {
        let key = self.shared.ingress.default_certificate.as_ref().filter(|_| self.is_used())?;
        Some(Material::Secret((**key).into()))
    }

    /// Opens the ports of all classes again.
    pub(super) fn open_again(&mut self) {
        self.dirty.extend(self.classes.keys().cloned());
    }

    /// The load-balancer addresses of a Service changed.
    pub(super) fn frontend_changed(&mut self, service: &Arc<str>) {
        let of_it = self.classes.iter().filter(|(_, class)| class.config().service == *service);
        self.dirty.extend(of_it.map(|(name, _)| Arc::clone(name)));
    }

    /// Applies what changed to what is served. Returns what failed, for each class that was programmed.
    pub(super) fn program(&mut self, mut resources: Resources<'_>) -> Vec<(Arc<GatewayConfig>, Vec<Problem>)> {
        let Touched { mut classes, mut hosts, .. } = std::mem::take(&mut self.touched);
        let dirty = std::mem::take(&mut self.dirty);
        let affected = |(_, class): &(&Arc<str>, &ServedClass)| class.must_certify(resources.changed, self.is_loading);
        classes.extend(self.classes.iter().filter(affected).map(|(name, _)| Arc::clone(name)));
        classes.extend(dirty.iter().cloned());
        let mut programmed = Vec::new();
        for name in classes {
            let Some(gateway) = self.engine.gateway(&name) else {
                let gone = self.classes.remove(&name);
                programmed.extend(gone.map(|class| (Arc::clone(class.config()), Vec::new())));
                continue;
            };
            let mut hosts = hosts.remove(&name).unwrap_or_default();
            let is_new = !self.classes.contains_key(&name);
            let class =
                self.classes.entry(Arc::clone(&name)).or_insert_with(|| ServedClass::new(gateway, &self.shared));
            if is_new {
                hosts.extend(gateway.table.hosts().map(|host| host.cloned()));
            }
            class.change(&hosts, &gateway.table, &mut resources, &self.shared);
            class.certify(&gateway.certificates, &resources, self.is_loading);
            if is_new || dirty.contains(&name) || *class.config() != gateway.config {
                let frontend = resources.frontends.get(&gateway.config.service).cloned().unwrap_or_default();
                let problems = class.open(&gateway.config, &frontend);
                programmed.push((Arc::clone(&gateway.config), problems));
            }
        }
        programmed
    }
}
