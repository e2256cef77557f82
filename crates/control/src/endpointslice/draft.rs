//! Drafts of slices, and their writes.

use std::collections::BTreeMap;

use api::ip::Family;
use api::object;
use api::value::ValueExt as _;
use api::view::annotations::LAST_CHANGE_TRIGGER_TIME;
use api::view::endpoint_slice::{Endpoint, EndpointPort};
use api::view::labels::{ENDPOINT_SLICE_MANAGED_BY, HEADLESS, SERVICE_NAME};
use serde_json::{Map, Value, json};

use super::MANAGER;
use crate::objects::service::Service;
use crate::objects::slice::Slice;
use crate::write::Write;

/// Labels that the controller owns; those of the Service with the same keys are ignored.
const RESERVED: [&str; 3] = [SERVICE_NAME, ENDPOINT_SLICE_MANAGED_BY, HEADLESS];

/// A desired slice.
pub(super) struct Draft {
    /// The slice to update; `None` for a new one.
    pub(super) existing: Option<Slice>,
    /// Its ports.
    pub(super) ports: Vec<EndpointPort>,
    /// Its endpoints.
    pub(super) endpoints: Vec<Endpoint>,
}

/// The slices of one family.
pub(super) struct Drafts {
    family: Family,
    /// Whether an endpoint had hints before.
    pub(super) had_hints: bool,
    /// Slices to create.
    pub(super) create: Vec<Draft>,
    /// Slices to update.
    pub(super) update: Vec<Draft>,
    /// Slices to delete.
    pub(super) delete: Vec<Slice>,
    /// Unchanged slices.
    pub(super) keep: Vec<Slice>,
}

impl Drafts {
    /// An empty set of drafts.
    pub(super) fn new(family: Family, existing: &[Slice]) -> Self {
        let had_hints = existing.iter().flat_map(|slice| &slice.endpoints).any(|endpoint| endpoint.hints.is_some());
        Self { family, had_hints, create: Vec::new(), update: Vec::new(), delete: Vec::new(), keep: Vec::new() }
    }

    /// The endpoints that will be written.
    pub(super) fn written(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        self.create.iter_mut().chain(&mut self.update).flat_map(|draft| &mut draft.endpoints)
    }

    /// All endpoints, written or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &Endpoint> {
        let written = self.create.iter().chain(&self.update).flat_map(|draft| &draft.endpoints);
        written.chain(self.keep.iter().flat_map(|slice| &slice.endpoints))
    }

    /// Moves unchanged slices that `needs` selects to the updates.
    pub(super) fn touch(&mut self, needs: impl FnMut(&Slice) -> bool) {
        let (touched, keep) = std::mem::take(&mut self.keep).into_iter().partition(needs);
        self.keep = keep;
        let draft = |slice: Slice| Draft {
            ports: slice.ports.clone(),
            endpoints: slice.endpoints.clone(),
            existing: Some(slice),
        };
        self.update.extend(Vec::into_iter(touched).map(draft));
    }

    /// The writes. A slice to delete is reused for one to create: one watch event instead of two.
    pub(super) fn into_writes(mut self, service: &Service, trigger: Option<&str>) -> Vec<Write> {
        let (mut owned, foreign): (Vec<Slice>, Vec<Slice>) =
            self.delete.into_iter().partition(|slice| slice.metadata.is_owned_by("Service", &service.uid));
        for draft in &mut self.create {
            draft.existing = owned.pop();
        }
        // While a Service is being deleted no slices are created.
        let wanted = self.create.into_iter().filter(|draft| draft.existing.is_some() || !service.deleting);
        let family = self.family;
        let mut writes: Vec<Write> =
            wanted.chain(self.update).map(|draft| draft.into_write(service, family, trigger)).collect();
        writes.extend(owned.iter().chain(&foreign).map(|slice| Write::delete(&slice.entry)));
        writes
    }
}

impl Draft {
    fn into_write(self, service: &Service, family: Family, trigger: Option<&str>) -> Write {
        let mut slice = match &self.existing {
            Some(slice) => object::decode_bare(&slice.entry.value),
            None => new_slice(service, family),
        };
        slice.put("metadata.labels", labels(service));
        set_annotation(&mut slice, LAST_CHANGE_TRIGGER_TIME, trigger);
        slice.put("ports", to_value(&self.ports));
        slice.put("endpoints", to_value(&self.endpoints));
        let modified = self.existing.map_or(0, |slice| slice.entry.modified);
        Write::Object { table: "endpointslices", object: Box::new(slice), modified }
    }
}

fn to_value<T: serde::Serialize>(list: &[T]) -> Value {
    // Lists of strings and numbers always serialize.
    serde_json::to_value(list).unwrap_or_default()
}

fn new_slice(service: &Service, family: Family) -> Value {
    json!({
        "metadata": {
            "generateName": format!("{}-", service.name()), "namespace": service.namespace(),
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": service.name(), "uid": service.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": family.as_str(),
    })
}

/// Sets or removes an annotation.
pub(crate) fn set_annotation(object: &mut Value, key: &str, value: Option<&str>) {
    let mut annotations = object.map("metadata.annotations").cloned().unwrap_or_default();
    match value {
        Some(value) => annotations.insert(key.to_owned(), value.into()),
        None => annotations.remove(key),
    };
    if annotations.is_empty() {
        object.drop_path("metadata.annotations");
    } else {
        object.put("metadata.annotations", annotations);
    }
}

fn labels(service: &Service) -> Value {
    let mut labels: Map<String, Value> =
        own_labels(&service.entry.facts.labels).map(|(key, value)| (key.to_owned(), value.into())).collect();
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name().into());
    labels.insert(ENDPOINT_SLICE_MANAGED_BY.to_owned(), MANAGER.into());
    Value::Object(labels)
}

fn own_labels(labels: &[(Box<str>, Box<str>)]) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().map(|(key, value)| (&**key, &**value)).filter(|(key, _)| !RESERVED.contains(key))
}

/// Whether the labels of a slice differ from those of its Service.
pub(super) fn labels_differ(slice: &Slice, service: &Service) -> bool {
    let of = |labels| own_labels(labels).collect::<BTreeMap<_, _>>();
    of(&slice.entry.facts.labels) != of(&service.entry.facts.labels)
}
