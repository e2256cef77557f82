//! Certificates, CAs and passwords that Gateways and policies refer to, and the TLS configurations that are made of them.
//!
//! In: Secrets and ConfigMaps. Out: TLS towards clients for a listener, and towards the endpoints of a Service; passwords
//! for basic authentication. While something is missing, handshakes fail: TLS never becomes plain.

use std::collections::HashMap;
use std::sync::Arc;

use api::view::{ObjectMeta, Secret, StringMap};
use client::tls::{roots, system_roots};
use jiff::Timestamp;
use routing::cluster::{CaState, SecretState};
use routing::model::{BackendTls, ListenerConfig, ListenerProtocol};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;

use crate::certificates;
use crate::policy::PasswordStore;
use crate::tls::UpstreamTls;
use crate::tls::backend::{self, Expected};
use crate::tls::frontend::{self, Certificates, ClientCertificates};

/// The key of CA certificates in a ConfigMap.
const CA: &str = "ca.crt";

/// A ConfigMap.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ConfigMap {
    metadata: ObjectMeta,
    pub(super) data: StringMap,
}

/// Certificates and CAs by `namespace/name`.
#[derive(Default)]
pub(super) struct Trust {
    certificates: HashMap<Arc<str>, Arc<CertifiedKey>>,
    authorities: HashMap<Arc<str>, Arc<RootCertStore>>,
    /// Passwords of Secrets, for the policies of rules.
    pub(super) passwords: PasswordStore,
}

impl Trust {
    /// Reads a Secret.
    pub(super) fn apply_secret(&mut self, key: &Arc<str>, secret: Option<&Secret>) -> Option<SecretState> {
        self.passwords.apply(key, secret);
        let Some(secret) = secret else {
            self.certificates.remove(key);
            return None;
        };
        Some(match certificates::load(secret, Timestamp::now()) {
            Ok(loaded) => {
                self.certificates.insert(Arc::clone(key), loaded.key);
                SecretState::Certificate
            }
            Err(why) => {
                self.certificates.remove(key);
                if secret.has_passwords() { SecretState::Passwords } else { SecretState::Invalid(why.to_string()) }
            }
        })
    }

    /// The certificate of a Secret.
    pub(super) fn certificate(&self, key: &str) -> Option<&Arc<CertifiedKey>> {
        self.certificates.get(key)
    }

    /// Reads a ConfigMap.
    pub(super) fn apply_config_map(&mut self, key: &Arc<str>, map: Option<&ConfigMap>) -> Option<CaState> {
        self.authorities.remove(key);
        let map = map?;
        let Some(pem) = map.data.get(CA) else {
            return Some(CaState::Invalid(format!("ConfigMap {} has no key {CA}", map.metadata.key())));
        };
        Some(match roots(pem.as_bytes()) {
            Ok(found) => {
                self.authorities.insert(Arc::clone(key), Arc::new(found));
                CaState::Bundle
            }
            Err(why) => CaState::Invalid(format!("{CA} of ConfigMap {}: {why}", map.metadata.key())),
        })
    }

    /// TLS towards the clients of a listener; none without a certificate.
    pub(super) fn of_listener(&self, listener: &ListenerConfig) -> Option<Arc<ServerConfig>> {
        let found: Vec<_> =
            listener.certificates.iter().filter_map(|key| self.certificates.get(key).cloned()).collect();
        let certificates = Certificates::new(&found)?;
        let clients = match &listener.client_validation {
            None => ClientCertificates::None,
            Some(validation) if validation.insecure_fallback => ClientCertificates::Requested,
            Some(validation) => ClientCertificates::Required(self.union(&validation.authorities)),
        };
        let is_http = listener.protocol == ListenerProtocol::Https;
        frontend::config(Arc::new(certificates), clients, is_http)
            .map_err(|error| tracing::warn!(listener = ?listener.id, %error, "cannot configure TLS of listener"))
            .ok()
    }

    /// TLS towards the endpoints of a Service.
    pub(super) fn towards(&self, tls: &BackendTls, client: Option<&Arc<str>>) -> Arc<UpstreamTls> {
        let roots = if tls.authorities.is_empty() {
            let found = system_roots().map_err(|error| tracing::warn!(%error, "cannot read CAs of this machine"));
            Arc::new(found.unwrap_or_else(|()| RootCertStore::empty()))
        } else {
            self.union(&tls.authorities)
        };
        let expected = Expected { name: &tls.hostname, names: &tls.subject_alt_names, verify: tls.verify };
        let key = client.and_then(|secret| self.certificates.get(secret)).cloned();
        Arc::new(backend::config(&expected, roots, key))
    }

    /// All CAs of several ConfigMaps.
    fn union(&self, keys: &[Arc<str>]) -> Arc<RootCertStore> {
        let mut found = keys.iter().filter_map(|key| self.authorities.get(key));
        match (found.next(), keys) {
            (Some(one), [_]) => Arc::clone(one),
            (first, _) => {
                let mut all = RootCertStore::empty();
                all.roots.extend(first.into_iter().chain(found).flat_map(|store| store.roots.iter().cloned()));
                Arc::new(all)
            }
        }
    }
}
