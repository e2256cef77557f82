//! Certificates between the server and the agents of nodes: who asks, who answers.
//!
//! The server shows agents a client certificate of the cluster's CA, and accepts only agents whose certificate the agent CA signed for the
//! address it dialed: the cluster's CA does not sign for agents. An agent accepts only that one client: whoever may speak to it may do everything
//! in its Pods, so a certificate of the cluster's CA alone, which nodes and people have too, is not enough.

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

/// The server, as agents know it.
pub const AGENT_CLIENT: &str = "kube-apiserver-kubelet-client";
/// Its group; no rule of the API names it.
pub(super) const GROUP: &str = "waypost:api-servers";

/// Whether a client certificate, which the cluster's authority signed, is the server's.
#[must_use]
pub fn may_ask_agents(der: &[u8], now: Timestamp) -> bool {
    let user = certificate::user(der, now).ok().flatten();
    user.is_some_and(|user| user.name == AGENT_CLIENT && user.is_in(GROUP))
}

impl Pki {
    /// The TLS settings with which the server speaks to agents.
    #[must_use]
    pub fn agents_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.agents)
    }

    /// A new key and a certificate of the agent CA for an agent that serves under these names, as long as that CA lives.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn issue_server(&self, names: &ServingNames, now: Timestamp) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = self.agent.current.certify(&Purpose::server(names), &key, i64::MAX, now)?;
        Ok(Identity { certificate_pem: certificate.pem().to_owned(), key_pem: key.serialize_pem() })
    }
}

/// The TLS settings of an agent: a client without a certificate of one of these CAs (PEM) does not get through the handshake.
///
/// # Errors
/// When the certificates cannot be used.
pub fn agent_server_config(ca_pem: &str, identity: &Identity) -> Result<Arc<ServerConfig>, PkiError> {
    let unusable = |error: rustls::pki_types::pem::Error| PkiError::from(rustls::Error::General(error.to_string()));
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).map_err(unusable)?];
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(unusable)?;
    let mut config = only_clients_of(ca_pem)?.with_single_cert(chain, key)?;
    // Streams leave HTTP, which only HTTP/1.1 can.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What an agent shows, and whom it trusts; both may be replaced while it serves. Until it has a certificate, nobody gets through the handshake.
pub struct Served {
    state: Mutex<State>,
    config: watch::Sender<Option<Arc<ServerConfig>>>,
}

struct State {
    ca_pem: String,
    identity: Option<Identity>,
}

impl Served {
    /// Trusts clients of these CAs (PEM), and has no certificate yet.
    #[must_use]
    pub fn new(ca_pem: &str) -> Self {
        let state = State { ca_pem: ca_pem.to_owned(), identity: None };
        Self { state: Mutex::new(state), config: watch::Sender::default() }
    }

    /// Shows this certificate from now on.
    ///
    /// # Errors
    /// When it cannot be used; the one before stays.
    pub fn show(&self, identity: &Identity) -> Result<(), PkiError> {
        let mut state = self.state.lock();
        self.config.send_replace(Some(agent_server_config(&state.ca_pem, identity)?));
        state.identity = Some(identity.clone());
        Ok(())
    }

    /// Trusts clients of these CAs (PEM) from now on, and no others.
    ///
    /// # Errors
    /// When they cannot be used; those before stay.
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
        // The sender lives as long as `self`, so that waiting cannot fail.
        let _ = self.config.subscribe().wait_for(Option::is_some).await;
    }

    /// The TLS settings of each next connection; none before there is a certificate.
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

/// Settings under which a client without a certificate of one of these CAs does not get through the handshake.
fn only_clients_of(ca_pem: &str) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = roots(ca_pem.as_bytes()).map_err(rustls::Error::General)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients))
}

/// The TLS settings of the server before agents.
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

/// TLS settings that take any certificate: for Pods behind `proxy`, whose authority nobody knows.
pub(crate) fn trusting_config() -> Arc<ClientConfig> {
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
