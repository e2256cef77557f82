//! TLS of webhooks: trusted CAs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
use thiserror::Error;

use client::tls::{RootsError, system_roots};

use crate::bundle_verifier::{BundleError, BundleVerifier};

/// Why there is no TLS configuration for a CA bundle.
#[derive(Debug, Error)]
pub(super) enum ConfigError {
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    Bundle(#[source] BundleError),
    #[error(transparent)]
    SystemRoots(#[from] RootsError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The largest number of cached configurations; there is one for each CA bundle.
const MAX_CONFIGS: usize = 64;

/// TLS configurations by CA bundle, cached so that sessions are resumed.
#[derive(Default)]
pub(super) struct TlsConfigs(Mutex<HashMap<Vec<u8>, Arc<ClientConfig>>>);

impl TlsConfigs {
    /// A configuration that trusts the CAs of a PEM bundle, or those of the system if it is empty.
    ///
    /// # Errors
    /// When the bundle has no valid certificate.
    pub(super) fn get(&self, authorities: &[u8]) -> Result<Arc<ClientConfig>, ConfigError> {
        if let Some(config) = self.0.lock().get(authorities) {
            return Ok(config.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match authorities {
            [] => builder.with_root_certificates(system_roots()?),
            pem => {
                let verifier = BundleVerifier::new(pem, provider).map_err(ConfigError::Bundle)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut kept = self.0.lock();
        if kept.len() >= MAX_CONFIGS {
            kept.clear();
        }
        kept.insert(authorities.to_vec(), config.clone());
        Ok(config)
    }
}
