//! Gateways, their routes, and what these refer to: feeds the engine of layer-7 routing.
//!
//! In: changes of the tables of the Gateway API, and of Services, Secrets, ConfigMaps and Namespaces. Out: the states that statuses are rendered
//! from, and what a change alters. Services, Secrets and ConfigMaps are read only when an object of the Gateway API refers to them, and Namespaces
//! when there is such an object: a cluster without any pays for none of this.

mod references;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::view::{Service, StringMap};
use routing::cluster::{CaState, Change, Cluster, Touched};
use serde::Deserialize;
use store::{Entry, Store, Table};

use super::references::{Reference, Referenced, References};
use crate::objects::gateway_api::{self as tables, Object};
use crate::objects::{or_default, read};
use crate::settings::CertificateChecks;

/// The shortest time between two changes of a status that shows counts of routes.
const INTERVAL: Duration = Duration::from_millis(500);

/// Everything that layer-7 routing depends on.
#[derive(Debug, Default)]
pub struct Gateways {
    cluster: Cluster,
    checks: CertificateChecks,
    /// Whether there was an object of the Gateway API.
    is_active: bool,
    /// What each object refers to.
    references: References,
    /// The Gateway of each Service name that a Gateway has.
    services: HashMap<Arc<str>, Arc<str>>,
    /// When the status of a Gateway or ListenerSet last changed.
    reported: HashMap<(Table, Box<str>), Instant>,
}

impl Gateways {
    /// No objects.
    pub(super) fn new(checks: CertificateChecks) -> Self {
        Self { checks, ..Self::default() }
    }

    /// Their states.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The Gateway that a Service of this key would belong to.
    #[must_use]
    pub fn gateway_of(&self, service: &str) -> Option<&Arc<str>> {
        self.services.get(service)
    }

    /// How long a change of the status of a Gateway or ListenerSet should wait, so that counts of routes do not cause a write for each route.
    #[must_use]
    pub fn wait(&self, table: Table, key: &str, now: Instant) -> Duration {
        let last = self.reported.get(&(table, key.into()));
        last.map_or(Duration::ZERO, |last| (*last + INTERVAL).saturating_duration_since(now))
    }

    /// Applies a change; what it alters, if it matters.
    pub(super) fn apply(
        &mut self,
        store: &dyn Store,
        entry: &Arc<Entry>,
        previous: Option<&Arc<Entry>>,
        deleted: bool,
        at: Instant,
    ) -> Option<Touched> {
        let table = entry.key.table;
        if tables::contains(table) {
            return self.apply_object(store, entry, previous, deleted, at);
        }
        if !self.is_active {
            return None;
        }
        if table.as_str() == "namespaces" {
            return Some(self.cluster.apply(namespace(entry, deleted)));
        }
        let reference = self.references.changed(entry)?;
        let change = self.referenced(&reference, Some(entry).filter(|_| !deleted));
        Some(self.cluster.apply(change))
    }

    fn apply_object(
        &mut self,
        store: &dyn Store,
        entry: &Arc<Entry>,
        previous: Option<&Arc<Entry>>,
        deleted: bool,
        at: Instant,
    ) -> Option<Touched> {
        let key: Arc<str> = entry.key.name.as_ref().into();
        let object = Object::read(entry.key.table, (!deleted).then_some(&*entry.value))?;
        let mut changes = Vec::new();
        if !self.is_active {
            self.is_active = true;
            let namespaces = store.range(Table::named("namespaces"), "", None).map(|range| range.entries);
            changes.extend(namespaces.unwrap_or_default().iter().map(|entry| namespace(entry, false)));
        }
        self.note_report(entry, previous, deleted, at);
        if table_is(entry, tables::GATEWAYS) {
            let service = tables::service_key(&key);
            if deleted {
                self.services.remove(&*service)
            } else {
                self.services.insert(service, key.clone())
            };
        }
        let now = references::of(&object, &key);
        for (reference, entry) in self.references.set(store, &entry.key, now) {
            changes.push(self.referenced(&reference, entry.as_ref()));
        }
        changes.push(object.into_change(key));
        Some(self.cluster.apply_all(changes))
    }

    /// The change of an object that is referred to.
    fn referenced(&self, reference: &Reference, entry: Option<&Arc<Entry>>) -> Change {
        let key = reference.key.clone();
        match reference.kind {
            Referenced::Service => Change::Service(key, entry.map(|entry| Arc::new(read::<Service>(&entry.value)))),
            Referenced::Secret => Change::Secret(key, entry.map(|entry| self.checks.secret(&read(&entry.value)))),
            Referenced::ConfigMap => Change::ConfigMap(key, entry.map(|entry| self.authorities(entry))),
        }
    }

    fn authorities(&self, entry: &Entry) -> CaState {
        let Some(pem) = bundle(entry) else {
            return CaState::Invalid(format!("ConfigMap {} has no ca.crt", entry.key.name));
        };
        let checked = self.checks.0.as_ref().map_or(Ok(()), |checks| checks.authorities(&pem));
        let invalid = |why| CaState::Invalid(format!("ca.crt of ConfigMap {}: {why}", entry.key.name));
        checked.map_or_else(invalid, |()| CaState::Bundle)
    }

    /// Notes when a status changed: the spec is the same as before.
    fn note_report(&mut self, entry: &Entry, previous: Option<&Arc<Entry>>, deleted: bool, at: Instant) {
        let table = entry.key.table;
        if !table_is(entry, tables::GATEWAYS) && !table_is(entry, tables::LISTENER_SETS) {
            return;
        }
        let place = (table, entry.key.name.clone());
        if deleted {
            self.reported.remove(&place);
        } else if previous.is_some_and(|previous| generation(previous) == generation(entry)) {
            self.reported.insert(place, at);
        }
    }
}

fn table_is(entry: &Entry, table: &str) -> bool {
    entry.key.table.as_str() == table
}

fn namespace(entry: &Entry, deleted: bool) -> Change {
    let labels = || entry.facts.labels.iter().cloned().collect::<StringMap>();
    Change::Namespace(entry.key.name.as_ref().into(), (!deleted).then(labels))
}

fn generation(entry: &Entry) -> i64 {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Sparse {
        #[serde(deserialize_with = "or_default")]
        metadata: Metadata,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Metadata {
        generation: i64,
    }
    read::<Sparse>(&entry.value).metadata.generation
}

/// The `ca.crt` of a ConfigMap.
fn bundle(entry: &Entry) -> Option<String> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct ConfigMap {
        #[serde(deserialize_with = "or_default")]
        data: Data,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Data {
        #[serde(rename = "ca.crt")]
        bundle: Option<String>,
    }
    read::<ConfigMap>(&entry.value).data.bundle
}
