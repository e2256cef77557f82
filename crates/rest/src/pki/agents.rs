//! Certificates between the server and the agents of nodes: who asks, who answers.
//!
//! The server shows agents a client certificate of the cluster's CA, and accepts only agents whose certificate the agent CA signed for the
//! address it dialed: the cluster's CA does not sign for agents. An agent accepts only that one client: whoever may speak to it may do everything
//! in its Pods, so a certificate of the cluster's CA alone, which nodes and people have too, is not enough.

use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WantsServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};
use tokio::sync::watch;

use super::anybody::Anybody;
use super::certs::{Authority, Purpose};
use super::{Identity, Leaf, Pki, PkiError, ServingNames};
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
        let certificate = self.agent_authority.certify(&Purpose::server(names), &key, i64::MAX, now)?;
        Ok(Identity { certificate_pem: certificate.pem().to_owned(), key_pem: key.serialize_pem() })
    }

    /// The TLS settings of an agent in the same process. Its key is made anew at each start: nobody keeps it.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn agent_server_config(&self, names: &ServingNames, now: Timestamp) -> Result<Arc<ServerConfig>, PkiError> {
        agent_server_config(self.ca_pem(), &self.issue_server(names, now)?)
    }
}

/// The TLS settings of an agent: a client without a certificate of the authority does not get through the handshake.
///
/// # Errors
/// When the certificates cannot be used.
pub fn agent_server_config(ca_pem: &str, identity: &Identity) -> Result<Arc<ServerConfig>, PkiError> {
    let unusable = |error: rustls::pki_types::pem::Error| PkiError::from(rustls::Error::General(error.to_string()));
    let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(unusable)?;
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).map_err(unusable)?];
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(unusable)?;
    let mut config = only_clients_of(authority)?.with_single_cert(chain, key)?;
    // Streams leave HTTP, which only HTTP/1.1 can.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A certificate that an agent shows, and that may be replaced while it serves. Until there is one, nobody gets through the handshake.
#[derive(Default)]
pub struct Served {
    current: watch::Sender<Option<Arc<CertifiedKey>>>,
}

impl Served {
    /// Shows this one from now on.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn show(&self, identity: &Identity) -> Result<(), PkiError> {
        let unusable = |error: rustls::pki_types::pem::Error| PkiError::from(rustls::Error::General(error.to_string()));
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).map_err(unusable)?];
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(unusable)?;
        let provider = rustls::crypto::ring::default_provider();
        self.current.send_replace(Some(Arc::new(CertifiedKey::from_der(chain, key, &provider)?)));
        Ok(())
    }

    /// Waits until there is one.
    pub async fn shown(&self) {
        // The sender lives as long as `self`, so that waiting cannot fail.
        let _ = self.current.subscribe().wait_for(Option::is_some).await;
    }

    /// The TLS settings of an agent that shows it, to clients of the authority alone.
    ///
    /// # Errors
    /// When the authority cannot be used.
    pub fn config(self: &Arc<Self>, ca_pem: &str) -> Result<Arc<ServerConfig>, PkiError> {
        let unusable = |error: rustls::pki_types::pem::Error| PkiError::from(rustls::Error::General(error.to_string()));
        let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(unusable)?;
        let builder = only_clients_of(authority)?;
        let resolver: Arc<dyn ResolvesServerCert> = self.clone();
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.borrow().clone()
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("shows", &self.current.borrow().is_some()).finish()
    }
}

/// Settings under which a client without a certificate of the authority does not get through the handshake.
fn only_clients_of(
    authority: CertificateDer<'static>,
) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients))
}

/// The TLS settings of the server before agents.
pub(super) fn client_config(authority: &Authority, leaf: &Leaf) -> Result<Arc<ClientConfig>, PkiError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let chain = vec![leaf.certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.serialize_der()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots)
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
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}
