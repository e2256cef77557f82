//! Feeds the engine of Ingresses.
//!
//! In: changes of IngressClasses, Ingresses, Services and Secrets. Out: the states that statuses and Events are made from, and what a change alters. Services
//! and Secrets are read only when an Ingress refers to them: a cluster without Ingresses pays for neither.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::view::{Ingress, IngressClass, Service};
use routing::ingress::{self as engine, Change, IngressState, Options};
use store::{Entry, Revision, Store};

use super::references::{Reference, Referenced, References};
use crate::objects::{read, split};
use crate::settings::CertificateChecks;

/// The table of IngressClasses.
pub(crate) const CLASSES: &str = "ingressclasses";
/// The table of Ingresses.
pub(crate) const INGRESSES: &str = "ingress";

/// Everything that Ingresses depend on.
#[derive(Debug, Default)]
pub struct Ingresses {
    engine: engine::Ingresses,
    options: Options,
    checks: CertificateChecks,
    /// What each Ingress refers to.
    references: References,
    /// Every class, of other controllers too.
    classes: HashMap<Arc<str>, Class>,
    /// The class of each Service that a class has.
    services: HashMap<Arc<str>, Arc<str>>,
    /// Ingresses of each class that is implemented here and has some.
    members: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    known: HashMap<Arc<str>, Known>,
}

/// An IngressClass.
#[derive(Debug)]
struct Class {
    uid: Box<str>,
    service: Arc<str>,
    is_default: bool,
}

/// An Ingress.
#[derive(Debug, Default)]
struct Known {
    /// Its class, if that is implemented here.
    class: Option<Arc<str>>,
    /// The revision that is applied.
    revision: Revision,
}

/// What a change alters.
#[derive(Debug, Default)]
pub struct Affected {
    /// Classes that have their first Ingress now, or no longer any.
    pub classes: BTreeSet<Arc<str>>,
    /// Ingresses whose state may differ.
    pub ingresses: BTreeSet<Arc<str>>,
}

impl Ingresses {
    /// No objects.
    pub(super) fn new(options: Options, checks: CertificateChecks) -> Self {
        Self { engine: engine::Ingresses::new(options.clone()), options, checks, ..Self::default() }
    }

    /// The names of all classes.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.classes.keys()
    }

    /// Whether there is a default class.
    pub(crate) fn has_default(&self) -> bool {
        self.classes.values().any(|class| class.is_default)
    }

    /// The class whose Service has this key.
    pub(crate) fn class_of_service(&self, key: &str) -> Option<&Arc<str>> {
        self.services.get(key)
    }

    /// Key and owner (the uid of the class) of the Service of a class.
    pub(crate) fn service_of(&self, class: &str) -> Option<(&str, &str)> {
        self.classes.get(class).map(|class| (&*class.service, &*class.uid))
    }

    /// The Ingresses of a class that is implemented here.
    pub(crate) fn of_class(&self, class: &str) -> impl Iterator<Item = &Arc<str>> {
        self.members.get(class).into_iter().flatten()
    }

    /// The gateway of a class that is implemented here and has Ingresses.
    pub(crate) fn gateway(&self, class: &str) -> Option<&engine::VirtualGateway> {
        self.members.get(class).and_then(|_| self.engine.gateway(class))
    }

    /// The Ingress to whose namespace a host of a class belongs, in lower case.
    pub(crate) fn owner(&self, class: &str, host: &str) -> Option<&str> {
        self.engine.owner(class, host).map(|key| &**key)
    }

    /// The state of an Ingress; none unless it is that of this revision.
    pub(crate) fn state(&self, key: &str, revision: Revision) -> Option<IngressState> {
        self.known.get(key).filter(|known| known.revision == revision).and_then(|_| self.engine.state(key))
    }

    /// Applies a change; what it alters, if it matters.
    pub(super) fn apply(&mut self, store: &dyn Store, entry: &Arc<Entry>, deleted: bool) -> Option<Affected> {
        match entry.key.table.as_str() {
            CLASSES => Some(self.apply_class(entry, deleted)),
            INGRESSES => Some(self.apply_ingress(store, entry, deleted)),
            _ => {
                let reference = self.references.changed(entry)?;
                let change = self.referenced(&reference, Some(entry).filter(|_| !deleted))?;
                Some(self.apply_all([change]))
            }
        }
    }

    fn apply_class(&mut self, entry: &Entry, deleted: bool) -> Affected {
        let name: Arc<str> = entry.key.name.as_ref().into();
        let class = (!deleted).then(|| Arc::new(read::<IngressClass>(&entry.value)));
        let service = self.options.service_of(&name);
        if let Some(class) = &class {
            let (uid, is_default) = (class.metadata.uid.clone(), class.is_default());
            self.services.insert(service.clone(), name.clone());
            self.classes.insert(name.clone(), Class { uid, service, is_default });
        } else {
            self.services.remove(&service);
            self.classes.remove(&name);
        }
        self.apply_all([Change::Class(name, class)])
    }

    fn apply_ingress(&mut self, store: &dyn Store, entry: &Entry, deleted: bool) -> Affected {
        let key: Arc<str> = entry.key.name.as_ref().into();
        let ingress = (!deleted).then(|| Arc::new(read::<Ingress>(&entry.value)));
        let now = ingress.as_deref().map(|ingress| references(ingress, &key)).unwrap_or_default();
        let mut changes = Vec::new();
        for (reference, entry) in self.references.set(store, &entry.key, now) {
            changes.extend(self.referenced(&reference, entry.as_ref()));
        }
        changes.push(Change::Ingress(key.clone(), ingress));
        let affected = self.apply_all(changes);
        if deleted {
            self.known.remove(&key);
        } else {
            self.known.entry(key).or_default().revision = entry.modified;
        }
        affected
    }

    /// The change of an object that is referred to.
    fn referenced(&self, reference: &Reference, entry: Option<&Arc<Entry>>) -> Option<Change> {
        let key = reference.key.clone();
        match reference.kind {
            Referenced::Service => {
                Some(Change::Service(key, entry.map(|entry| Arc::new(read::<Service>(&entry.value)))))
            }
            Referenced::Secret => Some(Change::Secret(key, entry.map(|entry| self.checks.secret(&read(&entry.value))))),
            Referenced::ConfigMap => None,
        }
    }

    /// Applies changes to the engine, and notes the classes of the Ingresses that were touched.
    fn apply_all(&mut self, changes: impl IntoIterator<Item = Change>) -> Affected {
        let mut affected = Affected::default();
        let touched: BTreeSet<Arc<str>> =
            changes.into_iter().flat_map(|change| self.engine.apply(change).ingresses).collect();
        for key in touched {
            let class = self.engine.class(&key).cloned();
            let before = std::mem::replace(&mut self.known.entry(key.clone()).or_default().class, class.clone());
            if before != class {
                self.move_to(&key, before, class, &mut affected);
            }
            affected.ingresses.insert(key);
        }
        affected
    }

    fn move_to(&mut self, key: &Arc<str>, from: Option<Arc<str>>, to: Option<Arc<str>>, affected: &mut Affected) {
        if let Some(from) = from
            && let Some(members) = self.members.get_mut(&from)
        {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(&from);
                affected.classes.insert(from);
            }
        }
        if let Some(to) = to {
            let members = self.members.entry(to.clone()).or_default();
            if members.is_empty() {
                affected.classes.insert(to);
            }
            members.insert(key.clone());
        }
    }
}

/// What an Ingress refers to: the Services of its backends and the Secrets with its certificates.
fn references(ingress: &Ingress, key: &str) -> BTreeSet<Reference> {
    let (namespace, _) = split(key);
    let reference = |kind, name: &str| Reference { kind, key: format!("{namespace}/{name}").into() };
    let spec = &ingress.spec;
    let paths = spec.rules.iter().flat_map(|rule| &rule.http.paths).map(|path| &path.backend);
    let services = paths.chain(&spec.default_backend).filter_map(|backend| backend.service.as_ref());
    let secrets = spec.tls.iter().filter(|tls| !tls.secret_name.is_empty());
    services
        .map(|service| reference(Referenced::Service, &service.name))
        .chain(secrets.map(|tls| reference(Referenced::Secret, &tls.secret_name)))
        .collect()
}
