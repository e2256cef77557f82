//! Secrets and ConfigMaps that Gateways, ListenerSets and BackendTLSPolicies refer to. Pure.

use std::sync::Arc;

use api::view::gateway_api::{BackendTlsPolicy, CertificateValidation, Gateway, Listener, ListenerSet, ObjectRef};

use super::feed::Topic;

/// A reference.
pub(super) type Reference = (Topic, Arc<str>);

/// References of a Gateway.
pub(super) fn of_gateway(gateway: &Gateway) -> Vec<Reference> {
    let own = &gateway.metadata.namespace;
    let tls = &gateway.spec.tls;
    let mut all = of_listeners(&gateway.spec.listeners, own);
    let client = tls.backend.client_certificate_ref.as_ref();
    all.extend(client.map(|secret| reference(Topic::Secret, secret, own)));
    if let Some(frontend) = &tls.frontend {
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        let validations = [&frontend.default].into_iter().chain(ports).filter_map(|tls| tls.validation.as_ref());
        all.extend(validations.flat_map(|validation| authorities(validation, own)));
    }
    all
}

/// References of a ListenerSet.
pub(super) fn of_listener_set(set: &ListenerSet) -> Vec<Reference> {
    of_listeners(&set.spec.listeners, &set.metadata.namespace)
}

/// References of a BackendTLSPolicy.
pub(super) fn of_policy(policy: &BackendTlsPolicy) -> Vec<Reference> {
    let refs = policy.spec.validation.ca_certificate_refs.iter();
    refs.map(|one| reference(Topic::ConfigMap, one, &policy.metadata.namespace)).collect()
}

fn of_listeners(listeners: &[Listener], own: &str) -> Vec<Reference> {
    let refs = listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificate_refs);
    refs.map(|secret| reference(Topic::Secret, secret, own)).collect()
}

fn authorities(validation: &CertificateValidation, own: &str) -> Vec<Reference> {
    validation.ca_certificate_refs.iter().map(|one| reference(Topic::ConfigMap, one, own)).collect()
}

fn reference(topic: Topic, to: &ObjectRef, own: &str) -> Reference {
    (topic, (*to.key(own)).into())
}
