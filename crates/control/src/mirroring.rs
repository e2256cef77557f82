//! Mirrors manually created Endpoints to EndpointSlices (S12).
//!
//! In: Endpoints of a Service without selector. Out: one slice per family and port set; none for Endpoints with the label `skip-mirror`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::ip::{Family, parse_lenient};
use api::object;
use api::value::ValueExt as _;
use api::view::annotations::{LAST_APPLIED, LAST_CHANGE_TRIGGER_TIME};
use api::view::endpoint_slice::{Endpoint, EndpointConditions, EndpointPort};
use api::view::endpoints::{Address, Endpoints, Port as EndpointsPort};
use api::view::labels::{ENDPOINT_SLICE_MANAGED_BY, SERVICE_NAME, SKIP_MIRROR};
use serde_json::{Map, Value, json};
use store::Entry;

use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::endpoints::{self, is_of_election, subsets};
use crate::event::{self, EventDetails, Reference};
use crate::objects;
use crate::objects::slice::Slice;
use crate::write::Write;

/// The value of `managed-by` of these slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The most mirrored addresses per subset.
const MAX_ADDRESSES: usize = 1000;
/// The longest object name.
const MAX_NAME: usize = 253;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "endpointslicemirroring", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Service(both) => {
            let matters = |service: &objects::service::Service| service.selector.is_none();
            if both.old.as_deref().is_some_and(matters) || both.new.as_deref().is_none_or(matters) {
                affected.add(change.key());
            }
        }
        TypedChange::Other if change.is_of(endpoints::TABLE) => {
            let made_by_us = view.cache.services.get(change.key()).is_some_and(|service| service.selector.is_some());
            if !made_by_us {
                affected.add(change.key());
            }
        }
        TypedChange::Other if change.is_of("endpointslices") => {
            for slice in change.previous.iter().chain([&change.entry]) {
                if slice.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER)
                    && let Some(service) = crate::cache::service_of(slice)
                {
                    affected.add(&service);
                }
            }
        }
        _ => {}
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let mine = |entry: &&std::sync::Arc<Entry>| entry.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER);
    let slices = view.cache.slices.of(key).filter(mine).map(Slice::read);
    let existing: Vec<Slice> = slices.filter(|slice| !slice.metadata.is_deleting()).collect();
    let Some(source) = endpoints::stored(view, key).filter(|entry| is_mirrored(view, key, entry)) else {
        return Outcome::write(existing.iter().map(|slice| Write::delete(&slice.entry)).collect());
    };
    let mut mirror = Mirror::of(view, &source);
    let writes = mirror.writes(existing);
    Outcome { events: mirror.events(view), ..Outcome::write(writes) }
}

fn is_mirrored(view: &View<'_>, key: &str, entry: &Entry) -> bool {
    view.cache.services.get(key).is_some_and(|service| service.selector.is_none())
        && entry.facts.label(SKIP_MIRROR) != Some("true")
        && !is_of_election(&object::decode_light(&entry.value))
}

/// The desired slices of an Endpoints object.
struct Mirror {
    source: Value,
    groups: BTreeMap<(Family, Vec<EndpointPort>), Vec<Endpoint>>,
    invalid: usize,
    skipped: usize,
    looping: Vec<(IpAddr, String)>,
}

impl Mirror {
    fn of(view: &View<'_>, source: &Entry) -> Self {
        let mut mirror = Self {
            source: object::decode_light(&source.value),
            groups: BTreeMap::new(),
            invalid: 0,
            skipped: 0,
            looping: Vec::new(),
        };
        for subset in subsets::canonical(objects::read::<Endpoints>(&source.value).subsets) {
            let ports: Vec<EndpointPort> = subset.ports.into_iter().map(slice_port).collect();
            let ready = subset.addresses.into_iter().map(|address| (address, true));
            let mut added = 0;
            for (address, ready) in ready.chain(subset.not_ready_addresses.into_iter().map(|address| (address, false)))
            {
                if added >= MAX_ADDRESSES {
                    mirror.skipped += 1;
                } else if mirror.add(view, &ports, address, ready) {
                    added += 1;
                }
            }
        }
        mirror
    }

    /// Adds an address; true when it counts for the limit.
    fn add(&mut self, view: &View<'_>, ports: &[EndpointPort], address: Address, ready: bool) -> bool {
        let Some(ip) = parse_lenient(&address.ip) else {
            self.invalid += 1;
            return false;
        };
        if let Some(other) = view.cache.services.at(ip) {
            self.looping.push((ip, other.to_owned()));
            return false;
        }
        let endpoint = Endpoint {
            addresses: vec![ip.to_string().into()],
            conditions: EndpointConditions { ready: Some(ready), serving: None, terminating: None },
            hostname: address.hostname,
            target_ref: address.target_ref,
            node_name: address.node_name,
            ..Endpoint::default()
        };
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        self.groups.entry((Family::of(ip), ports)).or_default().push(endpoint);
        true
    }

    /// The writes; a slice to delete is reused for one to create.
    fn writes(&mut self, existing: Vec<Slice>) -> Vec<Write> {
        let mut by_key: BTreeMap<(Box<str>, Vec<EndpointPort>), Vec<Slice>> = BTreeMap::new();
        for slice in existing {
            let mut ports = slice.ports.clone();
            ports.sort_unstable();
            by_key.entry((slice.address_type.clone(), ports)).or_default().push(slice);
        }
        let (mut writes, mut missing, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        for ((family, ports), endpoints) in std::mem::take(&mut self.groups) {
            let mut here = by_key.remove(&(family.as_str().into(), ports.clone())).unwrap_or_default().into_iter();
            match here.next() {
                Some(slice) if self.is_current(&slice, &endpoints) => {}
                Some(slice) => writes.push(self.write(Some(slice), family, &ports, &endpoints)),
                None => missing.push((family, ports, endpoints)),
            }
            spare.extend(here);
        }
        spare.extend(by_key.into_values().flatten());
        for (family, ports, endpoints) in missing {
            let reused = spare.iter().position(|slice| *slice.address_type == *family.as_str());
            writes.push(self.write(reused.map(|index| spare.remove(index)), family, &ports, &endpoints));
        }
        writes.extend(spare.iter().map(|slice| Write::delete(&slice.entry)));
        writes
    }

    fn is_current(&self, slice: &Slice, wanted: &[Endpoint]) -> bool {
        let sorted = |list: &[Endpoint]| {
            let mut list = list.to_vec();
            list.sort_by(|a, b| (&a.addresses, &a.hostname).cmp(&(&b.addresses, &b.hostname)));
            list
        };
        let have = object::decode_light(&slice.entry.value);
        sorted(&slice.endpoints) == sorted(wanted)
            && slice.metadata.is_owned_by("Endpoints", self.source.text("metadata.uid"))
            && *have.at("metadata.labels") == self.labels()
            && have.map("metadata.annotations").cloned().unwrap_or_default() == self.annotations()
    }

    fn write(&self, existing: Option<Slice>, family: Family, ports: &[EndpointPort], endpoints: &[Endpoint]) -> Write {
        let name = self.source.text("metadata.name");
        let base = if name.len() < MAX_NAME { format!("{name}-") } else { name.to_owned() };
        let mut slice = match &existing {
            Some(slice) => object::decode_bare(&slice.entry.value),
            None => json!({
                "metadata": {"generateName": base, "namespace": self.source.at("metadata.namespace")},
                "addressType": family.as_str(),
            }),
        };
        slice.put("metadata.labels", self.labels());
        let annotations = self.annotations();
        if annotations.is_empty() {
            slice.drop_path("metadata.annotations");
        } else {
            slice.put("metadata.annotations", annotations);
        }
        slice.put(
            "metadata.ownerReferences",
            json!([{
                "apiVersion": "v1", "kind": "Endpoints", "name": name, "uid": self.source.at("metadata.uid"),
                "controller": true, "blockOwnerDeletion": true,
            }]),
        );
        slice.put("ports", serde_json::to_value(ports).unwrap_or_default());
        slice.put("endpoints", serde_json::to_value(endpoints).unwrap_or_default());
        let modified = existing.map_or(0, |slice| slice.entry.modified);
        Write::Object { table: "endpointslices", object: Box::new(slice), modified }
    }

    fn labels(&self) -> Value {
        let mut labels: Map<String, Value> = self.source.map("metadata.labels").cloned().unwrap_or_default();
        labels.insert(SERVICE_NAME.to_owned(), self.source.at("metadata.name").clone());
        labels.insert(ENDPOINT_SLICE_MANAGED_BY.to_owned(), MANAGER.into());
        Value::Object(labels)
    }

    fn annotations(&self) -> Map<String, Value> {
        let mut annotations = self.source.map("metadata.annotations").cloned().unwrap_or_default();
        annotations.retain(|key, _| key != LAST_CHANGE_TRIGGER_TIME && key != LAST_APPLIED);
        annotations
    }

    /// Events about skipped addresses.
    fn events(&self, view: &View<'_>) -> Vec<Write> {
        let (reference, now) = (Reference::to(&self.source), view.now_text());
        let tell = |reason: &str, message: &str| {
            let finding = EventDetails {
                controller: "endpoint-slice-mirroring-controller",
                normal: false,
                reason,
                message,
                now: &now,
            };
            event::new_event("Endpoints", "v1", &reference, &finding)
        };
        let mut events = Vec::new();
        if self.invalid > 0 {
            let message = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", self.invalid);
            events.push(tell("InvalidIPAddress", &message));
        }
        if self.skipped > 0 {
            let message = format!(
                "A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses \
                 were skipped",
                self.skipped
            );
            events.push(tell("TooManyAddressesToMirror", &message));
        }
        for (address, other) in &self.looping {
            let message =
                format!("{address} is the cluster IP of Service {other}; it is left out of the EndpointSlices");
            events.push(tell("EndpointIsClusterIP", &message));
        }
        events
    }
}

fn slice_port(port: EndpointsPort) -> EndpointPort {
    let EndpointsPort { name, port, protocol, app_protocol } = port;
    EndpointPort { name: Some(name), protocol, port: Some(port.into()), app_protocol }
}
