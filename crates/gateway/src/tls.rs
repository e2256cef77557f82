//! TLS configurations towards clients, with a replaceable certificate, and towards pods, without verification.
//!
//! In: certificates. Out: rustls configurations. A new certificate applies to new handshakes. Certificates of pods are
//! not verified, as with the load balancers that define these annotations; TLS towards pods only protects against
//! passive eavesdropping.

pub(crate) mod backend;
pub(crate) mod frontend;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use client::tls::InsecureSkipVerify;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

use crate::annotations::Mode;

const H3: &[u8] = b"h3";
const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

/// Current certificate of a Service. Without one, handshakes fail.
#[derive(Default)]
pub(crate) struct Certificate {
    current: ArcSwapOption<CertifiedKey>,
}

impl Certificate {
    pub(crate) fn set(&self, key: Arc<CertifiedKey>) {
        self.current.store(Some(key));
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.current.load().is_some()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.is_loaded())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS configuration of a listener.
///
/// # Errors
/// When rustls rejects it, which is a bug.
pub(crate) fn server_config(certificate: Arc<Certificate>, mode: Mode) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificate);
    // Allow session resumption.
    config.ticketer = ring::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    if mode == Mode::Http {
        config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    }
    Ok(Arc::new(config))
}

/// TLS configurations towards pods: without ALPN, for HTTP/1.1 and for HTTP/2.
#[derive(Clone)]
pub(crate) struct UpstreamTls {
    /// Server name; that of the pod's address if none.
    pub(crate) name: Option<ServerName<'static>>,
    pub(crate) tcp: Arc<ClientConfig>,
    pub(crate) h1: Arc<ClientConfig>,
    pub(crate) h2: Arc<ClientConfig>,
}

impl UpstreamTls {
    /// # Errors
    /// When rustls rejects it, which is a bug.
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let verifier = Arc::new(InsecureSkipVerify::new(provider()));
        let mut tcp = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // Pods are reached by address, so there is no server name.
        tcp.enable_sni = false;
        Ok(Self::of(None, tcp))
    }
}

impl UpstreamTls {
    /// The configurations for this server name from the one without ALPN.
    pub(crate) fn of(name: Option<ServerName<'static>>, tcp: ClientConfig) -> Self {
        let with = |protocol: &[u8]| {
            let mut config = tcp.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Self { name, h1: with(H1), h2: with(H2), tcp: Arc::new(tcp) }
    }
}

/// Whether ALPN negotiated HTTP/2.
pub(crate) fn is_h2(protocol: Option<&[u8]>) -> bool {
    protocol == Some(H2)
}
