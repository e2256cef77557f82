//! Endpoints objects for Services with a selector (S02, S17), for legacy clients.
//!
//! In: a Service and the Pods it selects. Out: one object of the same name with addresses of the first family, at most 1000.

pub(crate) mod subsets;

use std::sync::Arc;

use api::object;
use api::value::ValueExt as _;
use api::view::annotations::LAST_CHANGE_TRIGGER_TIME;
use api::view::endpoints::{Address, Endpoints, Port, Subset};
use api::view::labels::{ENDPOINTS_MANAGED_BY, HEADLESS};
use serde_json::{Map, Value, json};
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::endpointslice::{set_annotation, target};
use crate::objects;
use crate::objects::pod::Pod;
use crate::objects::service::Service;
use crate::selection::{self, hostname, is_eligible, resolve};
use crate::write::Write;
use subsets::AddressPorts;

/// The table of Endpoints.
pub(crate) const TABLE: &str = "services/endpoints";
/// The annotation of leader election records; such objects belong to no Service.
pub(crate) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// The annotation of truncated Endpoints.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGER: &str = "endpoint-controller";
/// The most addresses of an object.
const MAX_ADDRESSES: usize = api::kinds::endpoints::MAX_ADDRESSES;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "endpoints", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    selection::affected_keys(view, change, affected);
    // Endpoints without a Service may be a user's own, so only those of the initial list are checked: their Service may have been deleted while no
    // controller ran.
    if change.is_of(TABLE) && (change.initial || view.cache.services.get(change.key()).is_some()) {
        affected.add(change.key());
    }
}

/// The Endpoints of a key.
pub(crate) fn stored(view: &View<'_>, key: &str) -> Option<Arc<Entry>> {
    view.store.get(&Key { table: Table::named(TABLE), name: key.into() })
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let stored = stored(view, key);
    let Some(service) = view.cache.services.get(key) else {
        let left_over = stored.filter(|entry| !is_of_election(&object::decode_light(&entry.value)));
        return Outcome::write(left_over.iter().map(|entry| Write::delete(entry)).collect());
    };
    let Some(selector) = service.managed_selector() else { return Outcome::done() };
    let pods = view.cache.pods.matching(service.namespace(), selector);
    let (subsets, truncated) = subsets::truncate(desired(view, service, &pods), MAX_ADDRESSES);
    let labels = labels(service);
    if let Some(entry) = &stored {
        let have = object::decode_light(&entry.value);
        let says_so = have.at("metadata.annotations").get(OVER_CAPACITY).is_some();
        let same = says_so == truncated && *have.at("metadata.labels") == labels;
        if same && subsets::canonical(objects::read::<Endpoints>(&entry.value).subsets) == subsets {
            return Outcome::done();
        }
    } else if service.deleting {
        return Outcome::done();
    }
    Outcome::write(vec![write(view, service, stored.as_deref(), &subsets, truncated, labels)])
}

fn write(
    view: &View<'_>,
    service: &Service,
    stored: Option<&Entry>,
    subsets: &[Subset],
    truncated: bool,
    labels: Value,
) -> Write {
    let mut object = match stored {
        Some(entry) => object::decode_bare(&entry.value),
        None => json!({"metadata": {"name": service.name(), "namespace": service.namespace()}}),
    };
    object.put("metadata.labels", labels);
    set_annotation(&mut object, LAST_CHANGE_TRIGGER_TIME, view.trigger);
    set_annotation(&mut object, OVER_CAPACITY, truncated.then_some("truncated"));
    if subsets.is_empty() {
        object.drop_path("subsets");
    } else {
        object.put("subsets", serde_json::to_value(subsets).unwrap_or_default());
    }
    Write::Object { table: TABLE, object: Box::new(object), modified: stored.map_or(0, |entry| entry.modified) }
}

/// Whether this is a leader election record.
pub(crate) fn is_of_election(endpoints: &Value) -> bool {
    endpoints.at("metadata.annotations").get(LEADER).is_some()
}

fn labels(service: &Service) -> Value {
    let mut labels: Map<String, Value> =
        service.entry.facts.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
    labels.remove(HEADLESS);
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.insert(ENDPOINTS_MANAGED_BY.to_owned(), MANAGER.into());
    Value::Object(labels)
}

fn desired(view: &View<'_>, service: &Service, pods: &[&Arc<Pod>]) -> Vec<Subset> {
    let eligible = pods.iter().filter(|pod| is_eligible(pod) && (service.publish_not_ready || !pod.deleting));
    let places = eligible.filter_map(|pod| place(view, service, pod));
    subsets::repack(places)
}

/// The address and ports of a Pod; `None` when it has no address of the family, or that of a Service.
fn place(view: &View<'_>, service: &Service, pod: &Pod) -> Option<AddressPorts> {
    let address = pod.addresses_of(*service.families.first()?).next()?;
    if view.cache.services.at(address).is_some() {
        return None;
    }
    let ports: Vec<Port> = service.ports.iter().filter_map(|port| endpoint_port(port, pod)).collect();
    // A headless Service may have no ports; otherwise a Pod without the ports is skipped.
    if ports.is_empty() && !(service.ports.is_empty() && service.is_headless()) {
        return None;
    }
    let address = Address {
        ip: address.to_string().into(),
        hostname: hostname(pod, service).map(Box::from),
        node_name: (!pod.node.is_empty()).then(|| pod.node.clone()),
        target_ref: Some(target(pod)),
    };
    Some(AddressPorts { address, ready: service.publish_not_ready || pod.ready, ports })
}

fn endpoint_port(port: &objects::service::Port, pod: &Pod) -> Option<Port> {
    Some(Port {
        name: port.name.clone(),
        port: resolve(port, pod)?,
        protocol: port.protocol,
        app_protocol: port.app_protocol.clone(),
    })
}
