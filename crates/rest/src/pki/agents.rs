//! TLS between the server and the agents of nodes.
//!
//! The server uses a client certificate of the cluster CA, and accepts only agents whose certificate the agent CA signed for the dialed
//! address: the cluster CA does not sign for agents. An agent accepts only that one client: a client of an agent can do everything in
//! its Pods, so any certificate of the cluster CA, which nodes and users have too, is not enough.

use std::sync::Arc;

use client::tls::{InsecureSkipVerify, roots};
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ClientConfig, ConfigBuilder, ServerConfig};
use tokio::sync::watch;

use super::certs::Purpose;
use super::load::{Authorities, Leaf};
use super::{Identity, Pki, PkiError, ServingNames};
use crate::auth::certificate;

/// The user name of the server for agents.
pub const AGENT_CLIENT: &str = "kube-apiserver-kubelet-client";
/// Its group; no role of the API names it.
pub(super) const GROUP: &str = "waypost:api-servers";

/// Whether a client certificate, which the cluster CA signed, is that of the server.
#[must_use]
pub fn may_ask_agents(der: &[u8], now: Timestamp) -> bool {
    let user = certificate::user(der, now).ok().flatten();
    user.is_some_and(|user| user.name == AGENT_CLIENT && user.is_in(GROUP))
}

impl Pki {
    /// The TLS configuration for connections to agents.
    #[must_use]
    pub fn agents_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.agents)
    }

    /// A new key with a serving certificate of the agent CA for these names, valid as long as that CA.
    ///
    /// # Errors
    /// When the key cannot be created.
    pub fn issue_server(&self, names: &ServingNames, now: Timestamp) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = self.agent.current.certify(&Purpose::server(names), &key, i64::MAX, now)?;
        Ok(Identity { certificate_pem: certificate.pem().to_owned(), key_pem: key.serialize_pem() })
    }
}

/// The TLS configuration of an agent: clients need a certificate of one of these CAs (PEM).
///
/// # Errors
/// When the certificates cannot be used.
pub fn agent_server_config(ca_pem: &str, identity: &Identity) -> Result<Arc<ServerConfig>, PkiError> {
    let unusable = |error: rustls::pki_types::pem::Error| PkiError::from(rustls::Error::General(error.to_string()));
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).map_err(unusable)?];
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(unusable)?;
    let mut config = only_clients_of(ca_pem)?.with_single_cert(chain, key)?;
    // Streams upgrade the connection, which only HTTP/1.1 supports.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificate and the trusted CAs of an agent; both can be replaced at run time. Without a certificate every handshake fails.
pub struct Served {
    state: Mutex<State>,
    config: watch::Sender<Option<Arc<ServerConfig>>>,
}

struct State {
    ca_pem: String,
    identity: Option<Identity>,
}

impl Served {
    /// Trusts clients of these CAs (PEM); no certificate yet.
    #[must_use]
    pub fn new(ca_pem: &str) -> Self {
        let state = State { ca_pem: ca_pem.to_owned(), identity: None };
        Self { state: Mutex::new(state), config: watch::Sender::default() }
    }

    /// Replaces the certificate.
    ///
    /// # Errors
    /// When it cannot be used; the previous one stays in use.
    pub fn show(&self, identity: &Identity) -> Result<(), PkiError> {
        let mut state = self.state.lock();
        self.config.send_replace(Some(agent_server_config(&state.ca_pem, identity)?));
        state.identity = Some(identity.clone());
        Ok(())
    }

    /// Replaces the trusted CAs (PEM).
    ///
    /// # Errors
    /// When they cannot be used; the previous ones stay in use.
    pub fn trust(&self, ca_pem: &str) -> Result<(), PkiError> {
        let mut state = self.state.lock();
        if state.ca_pem == ca_pem {
            return Ok(());
        }
        if let Some(identity) = &state.identity {
            self.config.send_replace(Some(agent_server_config(ca_pem, identity)?));
        }
        ca_pem.clone_into(&mut state.ca_pem);
        Ok(())
    }

    /// Waits until there is a certificate.
    pub async fn shown(&self) {
        // The sender exists as long as `self`, so waiting cannot fail.
        let _ = self.config.subscribe().wait_for(Option::is_some).await;
    }

    /// The TLS configuration of new connections; `None` without a certificate.
    #[must_use]
    pub fn configs(&self) -> watch::Receiver<Option<Arc<ServerConfig>>> {
        self.config.subscribe()
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("shows", &self.config.borrow().is_some()).finish()
    }
}

/// A TLS configuration that requires a client certificate of one of these CAs.
fn only_clients_of(ca_pem: &str) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = roots(ca_pem.as_bytes()).map_err(|error| rustls::Error::General(error.to_string()))?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients))
}

/// The TLS configuration of the server for agents.
pub(super) fn client_config(trusted: &Authorities, leaf: &Leaf) -> Result<Arc<ClientConfig>, PkiError> {
    let chain = vec![leaf.certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.serialize_der()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(trusted.roots()?)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A TLS configuration that skips verification: for Pods behind `proxy`, for which there is no CA.
pub(crate) fn insecure_skip_verify_config() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(InsecureSkipVerify::new(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}
