//! Certificates and CAs that objects refer to: who serves a Gateway must read these Secrets and ConfigMaps.

use super::{BackendTlsPolicy, CertificateValidation, Gateway, Listener, ListenerSet, ObjectRef};

/// A Secret or a ConfigMap, by `namespace/name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Material {
    /// A Secret with a certificate and its key.
    Secret(Box<str>),
    /// A ConfigMap with CA certificates.
    ConfigMap(Box<str>),
}

impl Gateway {
    /// Certificates of its listeners and towards backends, CAs for certificates of clients.
    #[must_use]
    pub fn materials(&self) -> Vec<Material> {
        let (own, tls) = (&*self.metadata.namespace, &self.spec.tls);
        let mut all = of_listeners(&self.spec.listeners, own);
        all.extend(tls.backend.client_certificate_ref.as_ref().map(|secret| Material::Secret(secret.key(own))));
        if let Some(frontend) = &tls.frontend {
            let ports = frontend.per_port.iter().map(|port| &port.tls);
            let validations = [&frontend.default].into_iter().chain(ports).filter_map(|tls| tls.validation.as_ref());
            let refs = validations.flat_map(|CertificateValidation { ca_certificate_refs, .. }| ca_certificate_refs);
            all.extend(refs.map(|map| Material::ConfigMap(map.key(own))));
        }
        all
    }
}

impl ListenerSet {
    /// Certificates of its listeners.
    #[must_use]
    pub fn materials(&self) -> Vec<Material> {
        of_listeners(&self.spec.listeners, &self.metadata.namespace)
    }
}

impl BackendTlsPolicy {
    /// CAs for certificates of endpoints.
    #[must_use]
    pub fn materials(&self) -> Vec<Material> {
        let refs = self.spec.validation.ca_certificate_refs.iter();
        refs.map(|map| Material::ConfigMap(map.key(&self.metadata.namespace))).collect()
    }
}

fn of_listeners(listeners: &[Listener], own: &str) -> Vec<Material> {
    let refs = listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificate_refs);
    refs.map(|secret: &ObjectRef| Material::Secret(secret.key(own))).collect()
}
