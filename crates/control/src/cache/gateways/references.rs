//! What an object of the Gateway API refers to: Services, Secrets and ConfigMaps. References that are not permitted count, too, because a
//! ReferenceGrant may permit them later.

use std::collections::BTreeSet;

use api::view::gateway_api::{
    BackendRef, CertificateValidation, Filter, Gateway, Listener, Material, ObjectRef, ParentRef,
};

use super::super::references::{Reference, Referenced};
use crate::objects::gateway_api::{Object, service_key};
use crate::objects::split;

/// The references of an object with this key.
pub(super) fn of(object: &Object, key: &str) -> BTreeSet<Reference> {
    let (namespace, _) = split(key);
    let mut found = Found { namespace, all: BTreeSet::new() };
    match object {
        Object::Gateway(Some(gateway)) => found.gateway(gateway, key),
        Object::ListenerSet(Some(set)) => found.listeners(&set.spec.listeners),
        Object::HttpRoute(Some(route)) => {
            found.parents(&route.spec.parent_refs);
            for rule in &route.spec.rules {
                found.filters(&rule.filters);
                found.backends(&rule.backend_refs);
            }
        }
        Object::GrpcRoute(Some(route)) => {
            found.parents(&route.spec.parent_refs);
            for rule in &route.spec.rules {
                found.filters(&rule.filters);
                found.backends(&rule.backend_refs);
            }
        }
        Object::StreamRoute(_, Some(route)) => {
            found.parents(&route.spec.parent_refs);
            route.spec.rules.iter().for_each(|rule| found.backends(&rule.backend_refs));
        }
        Object::BackendTlsPolicy(Some(policy)) => {
            for target in &policy.spec.target_refs {
                if target.group.is_empty() && &*target.kind == "Service" {
                    found.add(Referenced::Service, &format!("{namespace}/{}", target.name));
                }
            }
            found.objects(&policy.spec.validation.ca_certificate_refs, "ConfigMap");
        }
        Object::TrafficPolicy(Some(policy)) => {
            for target in &policy.spec.target_refs {
                if target.group.is_empty() && &*target.kind == "Service" {
                    found.add(Referenced::Service, &format!("{namespace}/{}", target.name));
                }
            }
            let secrets = policy.materials().into_iter().filter_map(|material| match material {
                Material::Secret(key) => Some(key),
                Material::ConfigMap(_) => None,
            });
            secrets.for_each(|key| found.add(Referenced::Secret, &key));
        }
        _ => {}
    }
    found.all
}

fn named(kind: &str) -> Option<Referenced> {
    match kind {
        "Service" => Some(Referenced::Service),
        "Secret" => Some(Referenced::Secret),
        "ConfigMap" => Some(Referenced::ConfigMap),
        _ => None,
    }
}

struct Found<'a> {
    namespace: &'a str,
    all: BTreeSet<Reference>,
}

impl Found<'_> {
    fn add(&mut self, kind: Referenced, key: &str) {
        self.all.insert(Reference { kind, key: key.into() });
    }

    fn object(&mut self, reference: &ObjectRef, default: &str) {
        if let Some(kind) = named(reference.kind_or(default)).filter(|_| reference.group().is_empty()) {
            self.add(kind, &reference.key(self.namespace));
        }
    }

    fn objects(&mut self, references: &[ObjectRef], default: &str) {
        references.iter().for_each(|reference| self.object(reference, default));
    }

    fn gateway(&mut self, gateway: &Gateway, key: &str) {
        self.add(Referenced::Service, &service_key(key));
        self.listeners(&gateway.spec.listeners);
        let tls = &gateway.spec.tls;
        self.objects(tls.backend.client_certificate_ref.as_slice(), "Secret");
        if let Some(frontend) = &tls.frontend {
            let all = std::iter::once(&frontend.default).chain(frontend.per_port.iter().map(|port| &port.tls));
            all.filter_map(|tls| tls.validation.as_ref()).for_each(|validation| self.validation(validation));
        }
    }

    fn validation(&mut self, validation: &CertificateValidation) {
        self.objects(&validation.ca_certificate_refs, "ConfigMap");
    }

    fn listeners(&mut self, listeners: &[Listener]) {
        for tls in listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            self.objects(&tls.certificate_refs, "Secret");
        }
    }

    fn parents(&mut self, parents: &[ParentRef]) {
        for parent in parents.iter().filter(|parent| parent.is_service()) {
            self.add(Referenced::Service, &parent.key(self.namespace));
        }
    }

    fn filters(&mut self, filters: &[Filter]) {
        for filter in filters {
            if let Some(mirror) = &filter.request_mirror {
                self.object(&mirror.backend_ref.object, "Service");
            }
        }
    }

    fn backends(&mut self, backends: &[BackendRef]) {
        for backend in backends {
            self.object(&backend.object, "Service");
            self.filters(&backend.filters);
        }
    }
}
