//! TLS of webhooks: trusted CAs, and error messages.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{CertificateError, ClientConfig};

use client::tls::system_roots;

use crate::bundle_verifier::BundleVerifier;

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
    pub(super) fn get(&self, authorities: &[u8]) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.0.lock().get(authorities) {
            return Ok(config.clone());
        }
        let unusable = |_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = match authorities {
            [] => builder.with_root_certificates(system_roots().map_err(|error| error.to_string())?),
            pem => {
                let verifier = BundleVerifier::new(pem, provider).map_err(unusable)?;
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

/// The message for a handshake error.
pub(super) fn words(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "certificate has expired or is not yet valid".to_owned(),
        Some(rustls::Error::InvalidCertificate(error)) => error.to_string(),
        Some(error) => return format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        None => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// The message for a connection error.
pub(super) fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
