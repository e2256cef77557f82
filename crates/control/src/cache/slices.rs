//! EndpointSlices by Service, by their label `kubernetes.io/service-name`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::view::labels::SERVICE_NAME;
use store::Entry;

use crate::objects::split;

/// All slices that belong to a Service.
#[derive(Debug, Default)]
pub struct Slices {
    by_service: HashMap<Box<str>, BTreeMap<Box<str>, Arc<Entry>>>,
}

impl Slices {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, previous: Option<&Arc<Entry>>, deleted: bool) {
        for stale in previous.into_iter().chain(deleted.then_some(entry)) {
            if let Some(service) = service_of(stale)
                && let Some(slices) = self.by_service.get_mut(&*service)
            {
                slices.remove(&stale.key.name);
                if slices.is_empty() {
                    self.by_service.remove(&*service);
                }
            }
        }
        if let (false, Some(service)) = (deleted, service_of(entry)) {
            self.by_service.entry(service.into()).or_default().insert(entry.key.name.clone(), Arc::clone(entry));
        }
    }

    /// The slices of a Service, by name.
    pub fn of(&self, service: &str) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_service.get(service).into_iter().flat_map(BTreeMap::values)
    }
}

/// The key of the Service that a slice belongs to.
pub(crate) fn service_of(slice: &Entry) -> Option<String> {
    let name = slice.facts.label(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(format!("{}/{name}", split(&slice.key.name).0))
}
