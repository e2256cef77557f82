//! TLS towards clients, with a certificate that can change at any time, and towards pods, whatever certificate they have.
//!
//! In: certificates of Secrets. Out: configurations of rustls. A new certificate is for new handshakes; connections that are there know
//! nothing of it. Pods are not asked who they are, as the load balancers do not whose annotations these are: what is gained is that nobody
//! between the node and the pod reads along without effort.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use client::tls::InsecureSkipVerify;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

use crate::wanted::Mode;

const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

/// The certificate of a Service, at present. Without one, handshakes are refused.
#[derive(Default)]
pub(crate) struct Certificate {
    current: ArcSwapOption<CertifiedKey>,
}

impl Certificate {
    pub(crate) fn set(&self, key: Arc<CertifiedKey>) {
        self.current.store(Some(key));
    }

    pub(crate) fn is_there(&self) -> bool {
        self.current.load().is_some()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.is_there())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS of a listener.
///
/// # Errors
/// When rustls cannot, which would be a fault in the program.
pub(crate) fn front(certificate: Arc<Certificate>, mode: Mode) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificate);
    // Whoever comes back need not begin from nothing.
    config.ticketer = ring::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    if mode == Mode::Http {
        config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    }
    Ok(Arc::new(config))
}

/// TLS towards pods: one way for bytes, one for HTTP/1.1, one for HTTP/2.
#[derive(Clone)]
pub(crate) struct Back {
    pub(crate) bytes: Arc<ClientConfig>,
    pub(crate) h1: Arc<ClientConfig>,
    pub(crate) h2: Arc<ClientConfig>,
}

impl Back {
    /// # Errors
    /// When rustls cannot, which would be a fault in the program.
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let verifier = Arc::new(InsecureSkipVerify::new(provider()));
        let mut bytes = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // Pods are reached by address; which name to say nobody knows.
        bytes.enable_sni = false;
        let with = |protocol: &[u8]| {
            let mut config = bytes.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self { h1: with(H1), h2: with(H2), bytes: Arc::new(bytes) })
    }
}

/// Whether HTTP/2 was agreed upon.
pub(crate) fn is_h2(protocol: Option<&[u8]>) -> bool {
    protocol == Some(H2)
}
