//! GatewayClasses: the class `waypost` is created at start, if so configured; those of Waypost get a status, and a finalizer while a Gateway names them.

use api::kinds::customresourcedefinition;
use api::value::ValueExt as _;
use api::view::gateway_api::CONTROLLER as CONTROLLER_NAME;
use routing::cluster::ClassState;
use routing::status;
use serde_json::{Value, json};
use store::{Key, Table};

use super::Reported;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::objects::gateway_api::CLASSES;
use crate::write::{Write, drop_finalizer};

/// The name of the class that is created.
const NAME: &str = "waypost";
/// The definition of GatewayClasses: the class can be created when there is one.
const DEFINITION: &str = "gatewayclasses.gateway.networking.k8s.io";
/// The finalizer of classes that a Gateway names.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "gatewayclass", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(customresourcedefinition::KIND.table) && change.key() == DEFINITION {
        if view.settings.gateway_class && !change.deleted {
            affected.add(SINGLETON_KEY);
        }
        return;
    }
    if change.is_of(CLASSES) {
        affected.add(change.key());
    }
    change.routing.iter().flat_map(|touched| &touched.classes).for_each(|name| affected.add(name));
}

fn reconcile(view: &View<'_>, name: &str) -> Outcome {
    if name == SINGLETON_KEY {
        return create(view);
    }
    let Some(state) = view.cache.gateways.cluster().class(name) else { return Outcome::done() };
    let Some(class) = Reported::read(view, CLASSES, name) else { return Outcome::done() };
    match finalized(&class.object, state) {
        Some(object) => Outcome::write(vec![Reported { object, ..class }.write_metadata()]),
        None if class.is_deleting() || !class.is_of(state.generation) => Outcome::done(),
        None => {
            let status = status::class(class.status(), state, &view.now_text());
            Outcome::write(status.map(|status| class.write(status)).into_iter().collect())
        }
    }
}

/// Creates the class `waypost`. A class of this name that exists is kept.
fn create(view: &View<'_>) -> Outcome {
    let key = Key::new(Table::named(CLASSES), NAME);
    let Some(kind) = view.cache.kinds.kinds().by_table(CLASSES) else { return Outcome::done() };
    if view.store.get(&key).is_some() {
        return Outcome::done();
    }
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": NAME},
        "spec": {"controllerName": CONTROLLER_NAME, "description": "Gateways served by Waypost"},
    });
    Outcome::write(vec![Write::create(kind.table, object)])
}

/// The class with or without the finalizer; `None` if it is as it should be.
fn finalized(class: &Value, state: &ClassState) -> Option<Value> {
    let has = class.texts("metadata.finalizers").contains(&FINALIZER);
    let mut class = class.clone();
    match (has, state.is_used) {
        (true, false) => {
            drop_finalizer(&mut class, FINALIZER);
        }
        // Nothing can be added to an object that is being deleted.
        (false, true) if !class.has("metadata.deletionTimestamp") => {
            let mut all = class.items("metadata.finalizers").to_vec();
            all.push(FINALIZER.into());
            class.put("metadata.finalizers", all);
        }
        _ => return None,
    }
    Some(class)
}
