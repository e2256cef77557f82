//! IngressClasses: the class `waypost` is created at start, if so configured; those that are implemented here have a Service while they have Ingresses.
//!
//! The Service belongs to its class: garbage collection deletes it after the class. Pool and addresses are requested by annotations of the class.

use api::value::ValueExt as _;
use api::view::annotations::{DEFAULT_INGRESS_CLASS, GATEWAY_OF_CLASS};
use api::view::ingress::CONTROLLER as CONTROLLER_NAME;
use routing::model::GatewayConfig;
use serde_json::{Map, Value, json};
use store::{Key, Table};

use crate::bootstrap;
use crate::cache::{CLASSES, Change};
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::frontend::{self, Current, Frontend, LONGEST_LABEL, Port};
use crate::gateways::Reported;
use crate::objects::load_balancer::annotations::concerns_address;
use crate::objects::split;
use crate::settings::ClassCreation;
use crate::write::Write;

/// The name of the class that is created.
const NAME: &str = "waypost";
/// The version of the API of IngressClasses.
const API_VERSION: &str = "networking.k8s.io/v1";
/// Their kind.
const KIND: &str = "IngressClass";
/// The table of namespaces.
const NAMESPACES: &str = "namespaces";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "ingress-class", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let ingresses = &view.cache.ingresses;
    if change.is_of(CLASSES) {
        affected.add(change.key());
    } else if change.is_of(NAMESPACES) {
        // Every cluster has this namespace: the class is created when the controllers start.
        if change.initial && change.key() == "default" && view.settings.ingress_class != ClassCreation::Off {
            affected.add(SINGLETON_KEY);
        }
        if change.key() == &*view.settings.ingress.namespace {
            ingresses.classes().for_each(|class| affected.add(class));
        }
    } else if change.is_of(frontend::TABLE)
        && let Some(class) = ingresses.class_of_service(change.key())
    {
        affected.add(class);
    }
    change.ingresses.iter().flat_map(|altered| &altered.classes).for_each(|class| affected.add(class));
}

fn reconcile(view: &View<'_>, name: &str) -> Outcome {
    if name == SINGLETON_KEY {
        return create(view);
    }
    let Some(class) = Reported::read(view, CLASSES, name).filter(|class| !class.is_deleting()) else {
        return Outcome::done();
    };
    let key = view.settings.ingress.service_of(name);
    let current = Current::read(view, &key, class.object.text("metadata.uid"));
    let Some(gateway) = view.cache.ingresses.gateway(name) else {
        return Outcome::write(current.deletion().into_iter().collect());
    };
    let Some(write) = service(&class.object, &gateway.config, view.settings.gateway_http3).write(&current) else {
        return Outcome::done();
    };
    let namespace = missing_namespace(view).map(|write| vec![write]);
    Outcome { transactions: namespace.into_iter().chain([vec![write]]).collect(), ..Outcome::done() }
}

/// Creates the class `waypost`. A class of this name that exists is kept.
fn create(view: &View<'_>) -> Outcome {
    let key = Key::new(Table::named(CLASSES), NAME);
    if view.store.get(&key).is_some() {
        return Outcome::done();
    }
    let mut class = json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": NAME},
        "spec": {"controller": CONTROLLER_NAME},
    });
    if view.settings.ingress_class == ClassCreation::Default && !view.cache.ingresses.has_default() {
        class.put("metadata.annotations", json!({DEFAULT_INGRESS_CLASS: "true"}));
    }
    Outcome::write(vec![Write::create(CLASSES, class)])
}

/// The write that creates the namespace of the Services, if there is none.
fn missing_namespace(view: &View<'_>) -> Option<Write> {
    let name = &*view.settings.ingress.namespace;
    let is_missing = view.store.get(&Key::new(Table::named(NAMESPACES), name)).is_none();
    is_missing.then(|| Write::create(NAMESPACES, bootstrap::namespace(name, &view.now_text())))
}

/// What a class determines about its Service.
fn service<'a>(class: &Value, config: &'a GatewayConfig, http3: bool) -> Frontend<'a> {
    let name = class.text("metadata.name");
    let mut annotations = class.map("metadata.annotations").cloned().unwrap_or_default();
    annotations.retain(|key, _| concerns_address(key));
    annotations.insert(GATEWAY_OF_CLASS.to_owned(), name.into());
    // Names may be longer than labels.
    let label = (name.len() <= LONGEST_LABEL).then(|| (GATEWAY_OF_CLASS.to_owned(), Value::from(name)));
    Frontend {
        key: &config.service,
        owner: json!({
            "apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": class.text("metadata.uid"),
            "controller": true, "blockOwnerDeletion": true,
        }),
        labels: label.into_iter().collect::<Map<String, Value>>(),
        annotations,
        ports: Port::all(config, http3),
    }
}

/// Why the Service of a class cannot have its name: another object has it.
pub(super) fn conflict(view: &View<'_>, class: &str) -> String {
    let key = view.settings.ingress.service_of(class);
    let (namespace, name) = split(&key);
    format!(
        "Service {key} exists and does not belong to IngressClass {class}; delete it: kubectl delete service -n {namespace} {name}"
    )
}
