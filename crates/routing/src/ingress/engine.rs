//! All Ingresses of a cluster, kept up to date.
//!
//! In: changes of objects, in any order. Out: the gateways of the classes, the states of the Ingresses, and which of them a
//! change may have affected. A change costs what its hosts cost; the result is the one of a start from scratch.

mod gateway;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::{Ingress, IngressClass, Service};

use super::classes::class_of;
use super::host::{Parsed, limits};
use super::settings::Settings;
use super::target::service_key;
use super::{Finding, IngressState, Options, VirtualGateway};
use crate::cluster::SecretState;

pub use gateway::Host;
use gateway::{ClassState, hosts_of};

/// A change of an object; none is its deletion. Keys are `name` for classes and `namespace/name` for everything else.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// An IngressClass.
    Class(Arc<str>, Option<Arc<IngressClass>>),
    /// An Ingress.
    Ingress(Arc<str>, Option<Arc<Ingress>>),
    /// A Service.
    Service(Arc<str>, Option<Arc<Service>>),
    /// A Secret.
    Secret(Arc<str>, Option<SecretState>),
}

/// What a change may have affected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Classes whose gateway differs, or is there no longer.
    pub classes: BTreeSet<Arc<str>>,
    /// Hosts whose rules differ, by class; none is the host of the rules for all other hosts.
    pub hosts: BTreeMap<Arc<str>, BTreeSet<Host>>,
    /// Ingresses whose state may differ.
    pub ingresses: BTreeSet<Arc<str>>,
}

/// All Ingresses of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Ingresses {
    options: Options,
    classes: BTreeMap<Arc<str>, Arc<IngressClass>>,
    ingresses: BTreeMap<Arc<str>, Entry>,
    services: BTreeMap<Arc<str>, Arc<Service>>,
    secrets: BTreeMap<Arc<str>, SecretState>,
    /// Ingresses by the Services they refer to.
    by_service: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    gateways: BTreeMap<Arc<str>, ClassState>,
}

/// What is to be computed again, by class: these hosts, and whether the certificates.
type Stale = BTreeMap<Arc<str>, (BTreeSet<Host>, bool)>;

#[derive(Clone, Debug)]
struct Entry {
    parsed: Arc<Parsed>,
    class: Option<Arc<str>>,
}

impl Ingresses {
    /// No objects yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) -> Touched {
        self.apply_all([change])
    }

    /// Applies changes. What several of them affect is computed once.
    pub fn apply_all(&mut self, changes: impl IntoIterator<Item = Change>) -> Touched {
        let (mut touched, mut stale) = (Touched::default(), Stale::new());
        for change in changes {
            match change {
                Change::Class(name, class) => self.set_class(&name, class, &mut touched),
                Change::Ingress(key, ingress) => self.set_ingress(&key, ingress, &mut stale, &mut touched),
                Change::Service(key, service) => self.set_service(&key, service, &mut stale),
                Change::Secret(key, state) => self.set_secret(&key, state, &mut stale),
            }
        }
        for (class, (hosts, certificates)) in stale {
            self.refresh(&class, &hosts, certificates, &mut touched);
        }
        touched
    }

    /// The class of an Ingress, if that is implemented here.
    #[must_use]
    pub fn class(&self, key: &str) -> Option<&Arc<str>> {
        self.ingresses.get(key)?.class.as_ref()
    }

    /// The gateways of all classes that are implemented here.
    pub fn gateways(&self) -> impl Iterator<Item = &VirtualGateway> {
        self.gateways.values().map(|state| &state.gateway)
    }

    /// The gateway of a class.
    #[must_use]
    pub fn gateway(&self, class: &str) -> Option<&VirtualGateway> {
        self.gateways.get(class).map(|state| &state.gateway)
    }

    /// Ingresses of a class, by key.
    pub fn of_class<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        self.ingresses.iter().filter(move |(_, entry)| entry.class.as_deref() == Some(class)).map(|(key, _)| key)
    }

    /// The Ingress to whose namespace a host of a class belongs, in lower case: the oldest one with rules for it, or for its wildcard.
    #[must_use]
    pub fn owner(&self, class: &str, host: &str) -> Option<&Arc<str>> {
        self.gateways.get(class)?.owner_key(host)
    }

    /// The state of an Ingress; none for one that does not exist.
    #[must_use]
    pub fn state(&self, key: &str) -> Option<IngressState> {
        let entry = self.ingresses.get(key)?;
        let Some((class, state)) = entry.class.as_ref().and_then(|class| Some((class, self.gateways.get(class)?)))
        else {
            return Some(IngressState::default());
        };
        let mut findings: Vec<Finding> = entry.parsed.findings.clone();
        let found =
            hosts_of(&entry.parsed).into_iter().flat_map(|host| state.findings(&host)).chain(&state.certificates);
        findings.extend(found.filter(|(owner, _)| **owner == *key).map(|(_, finding)| finding.clone()));
        findings.sort_unstable();
        findings.dedup();
        Some(IngressState { class: Some(class.clone()), findings })
    }

    /// Classes change rarely: everything is computed again.
    fn set_class(&mut self, name: &Arc<str>, class: Option<Arc<IngressClass>>, touched: &mut Touched) {
        match class {
            Some(class) => drop(self.classes.insert(name.clone(), class)),
            None => drop(self.classes.remove(name)),
        }
        let earlier = (std::mem::take(&mut touched.classes), std::mem::take(&mut touched.hosts));
        let before = std::mem::take(&mut self.gateways);
        for (name, class) in &self.classes {
            if self.options.controllers.contains(&class.spec.controller) {
                self.gateways.insert(name.clone(), ClassState::new(name, &self.options));
            }
        }
        for (key, entry) in &mut self.ingresses {
            let class = class_of(&entry.parsed.ingress, &self.classes, &self.options.controllers).cloned();
            if class != entry.class {
                touched.ingresses.insert(key.clone());
            }
            entry.class = class;
            if let Some(state) = entry.class.as_ref().and_then(|class| self.gateways.get_mut(class)) {
                state.attach(&entry.parsed);
            }
        }
        let names: Vec<_> = self.gateways.keys().cloned().collect();
        for name in names {
            let hosts = self.gateways.get(&name).map(ClassState::hosts).unwrap_or_default();
            self.refresh(&name, &hosts, true, touched);
        }
        // Only what differs counts.
        let is_same = |name: &Arc<str>| before.get(name).map(|state| &state.gateway) == self.gateway(name);
        let differing = before.keys().chain(self.gateways.keys()).filter(|name| !is_same(name));
        touched.classes = earlier.0.into_iter().chain(differing.cloned()).collect();
        touched.hosts = earlier.1;
        for name in &touched.classes {
            let tables =
                [before.get(name), self.gateways.get(name)].into_iter().flatten().map(|state| &state.gateway.table);
            let hosts = tables.flat_map(|table| table.hosts().map(Option::<&Arc<str>>::cloned));
            touched.hosts.entry(name.clone()).or_default().extend(hosts);
        }
    }

    fn set_ingress(&mut self, key: &Arc<str>, ingress: Option<Arc<Ingress>>, stale: &mut Stale, touched: &mut Touched) {
        if self.ingresses.get(key).map(|entry| &entry.parsed.ingress) == ingress.as_ref() {
            return;
        }
        touched.ingresses.insert(key.clone());
        if let Some(entry) = self.ingresses.remove(key) {
            self.index_services(&entry.parsed, false);
            if let Some((class, state)) =
                entry.class.and_then(|class| Some((class.clone(), self.gateways.get_mut(&class)?)))
            {
                let stale = stale.entry(class).or_default();
                let (hosts, differs) = state.detach(&entry.parsed);
                stale.0.extend(hosts);
                stale.1 |= differs || !entry.parsed.ingress.spec.tls.is_empty();
            }
        }
        if let Some(ingress) = ingress {
            let class = class_of(&ingress, &self.classes, &self.options.controllers).cloned();
            let (settings, findings) = Settings::read(&ingress, &self.options.defaults);
            let excess = limits::excess(&ingress);
            let parsed = Arc::new(Parsed { key: key.clone(), ingress, settings, findings, excess });
            self.index_services(&parsed, true);
            if let Some((class, state)) = class.as_ref().and_then(|class| Some((class, self.gateways.get_mut(class)?)))
            {
                let stale = stale.entry(class.clone()).or_default();
                let (hosts, differs) = state.attach(&parsed);
                stale.0.extend(hosts);
                stale.1 |= differs || !parsed.ingress.spec.tls.is_empty();
            }
            self.ingresses.insert(key.clone(), Entry { parsed, class });
        }
    }

    fn set_service(&mut self, key: &Arc<str>, service: Option<Arc<Service>>, stale: &mut Stale) {
        let part = |service: &Service| (service.spec.kind.clone(), service.spec.ports.clone());
        let before = self.services.get(key).map(|service| part(service));
        let is_same = before == service.as_deref().map(part);
        match service {
            Some(service) => drop(self.services.insert(key.clone(), service)),
            None => drop(self.services.remove(key)),
        }
        if is_same {
            return;
        }
        for entry in self.by_service.get(key).into_iter().flatten().filter_map(|key| self.ingresses.get(key)) {
            if let Some(class) = &entry.class {
                stale.entry(class.clone()).or_default().0.extend(hosts_of(&entry.parsed));
            }
        }
    }

    fn set_secret(&mut self, key: &Arc<str>, state: Option<SecretState>, stale: &mut Stale) {
        let before = match state {
            Some(state) => self.secrets.insert(key.clone(), state),
            None => self.secrets.remove(key),
        };
        if before.as_ref() == self.secrets.get(key) {
            return;
        }
        for name in self.gateways.keys() {
            stale.entry(name.clone()).or_default().1 = true;
        }
    }

    fn index_services(&mut self, parsed: &Parsed, is_used: bool) {
        let spec = &parsed.ingress.spec;
        let paths = spec.rules.iter().flat_map(|rule| &rule.http.paths).map(|path| &path.backend);
        let backends = paths.chain(&spec.default_backend);
        for key in backends.filter_map(|backend| service_key(&parsed.ingress.metadata.namespace, backend)) {
            let users = self.by_service.entry(key.clone()).or_default();
            if is_used {
                users.insert(parsed.key.clone());
            } else {
                users.remove(&parsed.key);
            }
            if users.is_empty() {
                self.by_service.remove(&key);
            }
        }
    }

    /// Computes hosts of a class again, and its certificates if they may differ.
    fn refresh(&mut self, class: &Arc<str>, hosts: &BTreeSet<Host>, certificates: bool, touched: &mut Touched) {
        let Some(state) = self.gateways.get_mut(class) else { return };
        let parsed = |key: &str| self.ingresses.get(key).map(|entry| &*entry.parsed);
        let services = |key: &str| self.services.get(key).cloned();
        let mut differs = state.assemble(hosts, &parsed, &services, touched);
        if certificates {
            let members = self.ingresses.values().filter(|entry| entry.class.as_ref() == Some(class));
            let members = members.map(|entry| &*entry.parsed).collect();
            differs |= state.certify(members, &self.secrets, &self.options, touched);
        }
        if differs {
            touched.classes.insert(class.clone());
        }
    }
}
