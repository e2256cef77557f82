//! Ingresses as objects of the Gateway API.
//!
//! In: Ingresses of any class, and the Services they refer to. Out: one Gateway for each namespace and class, HTTPRoutes and
//! BackendTLSPolicies, and notes on everything that has no equivalent. The Ingresses are merged first, as for serving
//! them, so that hosts that several of them share, canaries and conflicts come out as they behave.

mod filters;
mod gateway;
mod paths;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::annotations::INGRESS_CLASS;
use api::view::ingress::IngressBackend;
use api::view::{Ingress, IngressClass, Service};
use serde_json::{Value, json};

use super::{Change, Ingresses, Options};
use crate::cluster::SecretState;

use gateway::gateways;
use route::routes;

/// The result of a conversion.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conversion {
    /// The objects, Gateways first.
    pub objects: Vec<Value>,
    /// What has no equivalent, by Ingress.
    pub notes: Vec<Note>,
}

/// Something of an Ingress that has no equivalent, or another one than may be expected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Note {
    /// `namespace/name` of the Ingress.
    pub ingress: Arc<str>,
    /// What it is, and what to do.
    pub message: String,
}

/// The class of Ingresses that name none.
const DEFAULT_CLASS: &str = "default";

/// Converts Ingresses. Services are needed for ports by name only; a Service that is not given is assumed to exist.
#[must_use]
pub fn convert(ingresses: &[Ingress], services: &[Service], gateway_class: &str) -> Conversion {
    let all = load(ingresses, services);
    let mut conversion = Conversion::default();
    for gateway in all.gateways() {
        conversion.objects.extend(gateways(gateway, gateway_class));
    }
    for gateway in all.gateways() {
        routes(gateway, &mut conversion);
    }
    for ingress in ingresses {
        let key: Arc<str> = ingress.metadata.key().into();
        let findings = all.state(&key).unwrap_or_default().findings;
        // A path of another Ingress, an invalid value, a certificate for a host of others: all of it is missing from the
        // result.
        conversion
            .notes
            .extend(findings.into_iter().map(|finding| Note { ingress: key.clone(), message: finding.message }));
    }
    conversion.notes.sort();
    conversion.notes.dedup();
    conversion
}

/// The Ingresses as if all their classes were implemented here, and all Services and certificates existed.
fn load(ingresses: &[Ingress], services: &[Service]) -> Ingresses {
    let mut all = Ingresses::new(Options::default());
    let mut known: BTreeMap<String, Service> =
        services.iter().map(|service| (service.metadata.key(), service.clone())).collect();
    let mut classes = BTreeSet::new();
    for ingress in ingresses {
        let mut ingress = ingress.clone();
        let class = class_name(&ingress).to_owned();
        ingress.metadata.annotations = without_class(&ingress);
        ingress.spec.ingress_class_name = Some(class.as_str().into());
        classes.insert(class);
        assume_services(&ingress, &mut known);
        for tls in &ingress.spec.tls {
            let key = format!("{}/{}", ingress.metadata.namespace, tls.secret_name);
            all.apply(Change::Secret(key.into(), Some(SecretState::Certificate)));
        }
        all.apply(Change::Ingress(ingress.metadata.key().into(), Some(Arc::new(ingress))));
    }
    for (key, service) in known {
        all.apply(Change::Service(key.into(), Some(Arc::new(service))));
    }
    for name in classes {
        let mut class = IngressClass::default();
        class.spec.controller = super::CONTROLLER.into();
        all.apply(Change::Class(name.into(), Some(Arc::new(class))));
    }
    all
}

fn class_name(ingress: &Ingress) -> &str {
    let named = ingress.metadata.annotation(INGRESS_CLASS).or(ingress.spec.ingress_class_name.as_deref());
    named.unwrap_or(DEFAULT_CLASS)
}

fn without_class(ingress: &Ingress) -> api::view::StringMap {
    let pairs = ingress.metadata.annotations.iter().filter(|(key, _)| **key != *INGRESS_CLASS);
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Adds the ports by number of Services that are not known.
fn assume_services(ingress: &Ingress, known: &mut BTreeMap<String, Service>) {
    let paths = ingress.spec.rules.iter().flat_map(|rule| &rule.http.paths).map(|path| &path.backend);
    let backends: Vec<&IngressBackend> = paths.chain(&ingress.spec.default_backend).collect();
    for wanted in backends.into_iter().filter_map(|backend| backend.service.as_ref()) {
        let key = format!("{}/{}", ingress.metadata.namespace, wanted.name);
        let is_assumed = known.get(&key).is_none_or(|service| service.metadata.name.is_empty());
        if is_assumed && wanted.port.number != 0 {
            let service = known.entry(key).or_default();
            if service.spec.ports.iter().all(|port| port.port != wanted.port.number) {
                let port = json!({"port": wanted.port.number});
                service.spec.ports.extend(serde_json::from_value(port).ok());
            }
        }
    }
}

/// A name of a host in names of objects and listeners.
fn slug(host: Option<&str>) -> String {
    host.map_or_else(|| "all".to_owned(), |host| host.replace("*.", "wildcard-").replace('.', "-"))
}
