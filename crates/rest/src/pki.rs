//! The PKI of the server: CAs, serving certificate, administrator certificate, token signing key.
//!
//! In: a directory, the names of the server, the time. Out: a [`Pki`], from which the TLS configuration, the kubeconfig and the token
//! signer are made. The first start creates everything, later ones reuse it.
//!
//! ```text
//! ca.key ──────────── ca.crt            P-256, ten years, renewed (same key) in its last year
//!   ├─ server.key ─── server.crt        until the CA expires; renewed when a name is missing or in its last 30 days
//!   ├─ admin.key ──── admin.crt         CN=waypost-admin, O=system:masters; the same
//!   ├─ agents.key ─── agents.crt        client certificate of the server for agents, CN=kube-apiserver-kubelet-client; the same
//!   └─ (clients)                        nodes and others, through CertificateSigningRequests; kept by them
//! agent-ca.key ────── agent-ca.crt      like ca.crt, but only this server trusts it
//!   └─ (agents)                         serving certificates of agents; kept by them
//! service-account.key                   ES256, signs ServiceAccount tokens
//! ```
//! While a CA is being replaced ([`rotation`]), the previous one is in `ca-previous.key` and `ca-previous.crt` (or `agent-ca-previous…`): both
//! are trusted, the new one signs for clients, and the certificates of the server itself stay with the old one, which all clients trust.
//! Public keys of former token keys are in `service-account-previous.json`.
//!
//! Serving certificates of agents have a separate CA. A node reports its own addresses, so a compromised one may get a certificate for a name
//! that is not its own; with the cluster CA it could then impersonate the API server to every client that trusts that CA. No
//! kubeconfig and no ConfigMap contains the agent CA.
//!
//! A key is written before its certificate, and a certificate is renewed for the existing key. So a crash leaves at most a key without a
//! certificate, which the next start completes. Any other inconsistency (a CA certificate without its key, a malformed key) was
//! caused from outside, and is reported with the file name instead of being overwritten.
//!
//! The certificates of the server and the administrator are valid as long as the CA: their keys lie beside the key of the CA, so a
//! shorter lifetime would protect nothing and stop a server that runs for long.
//!
//! A client certificate of another CA fails the handshake. (kube-apiserver accepts it and responds 401. Failing earlier means that no
//! later code can take an unverified name for a user; Go clients do not send such a certificate, because the handshake lists the
//! accepted CAs.)

mod agents;
mod certs;
mod clients;
pub(crate) mod files;
pub mod inventory;
mod live;
mod load;
mod requests;
pub mod rotation;
#[cfg(test)]
pub(crate) mod scratch;
mod signing_keys;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};

use certs::Purpose;
use load::{AGENT_CA, Authorities, CLUSTER_CA, Leaf};

pub(crate) use agents::insecure_skip_verify_config;
pub use agents::{AGENT_CLIENT, Served, agent_server_config, may_ask_agents};
pub use clients::{CLIENTS, Clients, LastCertificate, write as write_clients};
pub use live::Live;
pub use requests::{OwnKey, Signing, issuer_key_id, serves, signed_by, until_renewal, validity, validity_of_der};
pub use signing_keys::{RetiredKey, SigningKeys};

/// The user of the admin certificate.
pub const ADMIN_USER: &str = "waypost-admin";
/// The group with all permissions.
pub const MASTERS: &str = "system:masters";

/// The purpose of the administrator certificate.
const ADMIN_PURPOSE: Purpose<'static> = Purpose::Client { name: ADMIN_USER, organization: MASTERS };
/// The purpose of the server's client certificate for agents.
const AGENT_CLIENT_PURPOSE: Purpose<'static> = Purpose::Client { name: AGENT_CLIENT, organization: agents::GROUP };

const DAY: i64 = 86_400;
/// The lifetime of certificates for others (nodes), in seconds.
const CLIENT_LIFETIME: i64 = 365 * DAY;

/// Errors with the files of the PKI.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// An I/O error.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// The operation: `reading`, `writing`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A file cannot be used.
    #[error("{path}: {why}; {remedy}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What the administrator can do.
        remedy: &'static str,
    },
    /// A certificate or key could not be created.
    #[error("creating a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A rotation cannot start or finish now.
    #[error("{0}")]
    Rotation(String),
    /// A usage that is not signed.
    #[error("usage {0:?} is not supported: only usages of clients and servers are")]
    Usage(String),
    /// The TLS library rejects the certificate.
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS library rejects the CA.
    #[error("setting up client certificate verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The names and addresses of the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServingNames {
    /// Addresses; unspecified ones (`0.0.0.0`) are not in the certificate.
    pub ips: Vec<IpAddr>,
    /// Names; invalid DNS names are not in the certificate.
    pub dns: Vec<String>,
}

/// A certificate with its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// The key (PKCS #8).
    pub key_pem: String,
}

impl Debug for Identity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// The loaded PKI of the server.
pub struct Pki {
    cluster: Authorities,
    agent: Authorities,
    admin: Identity,
    signing_keys: SigningKeys,
    server: Arc<ServerConfig>,
    agents: Arc<ClientConfig>,
    /// Hash of everything public, to detect changes.
    digest: Vec<u8>,
}

impl Debug for Pki {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").field("ca", &self.cluster.current.pem()).finish_non_exhaustive()
    }
}

/// Loads the PKI from `dir`: creates what is missing, renews what expires soon and completes an interrupted rotation.
///
/// # Errors
/// When the directory cannot be read or written, or a file in it is damaged; the message names the file.
pub fn load_or_create(dir: &Path, names: &ServingNames, now: Timestamp) -> Result<Pki, PkiError> {
    files::private_dir(dir)?;
    let _lock = files::lock(dir)?;
    rotation::recover(dir)?;
    let cluster = load::authorities(dir, &CLUSTER_CA, now)?;
    let agent = load::authorities(dir, &AGENT_CA, now)?;
    // Clients and agents may only trust the previous CA: certificates of the server stay with it until the rotation is finished.
    let shown = cluster.previous.as_ref().unwrap_or(&cluster.current);
    let serving = load::leaf(dir, "server", shown, &Purpose::server(names), now)?;
    let to_agents = load::leaf(dir, "agents", shown, &AGENT_CLIENT_PURPOSE, now)?;
    let admin = load::leaf(dir, "admin", &cluster.current, &ADMIN_PURPOSE, now)?.identity();
    let signing_keys = signing_keys::load(dir)?;
    let server = server_config(&cluster, &serving)?;
    let agents = agents::client_config(&agent, &to_agents)?;
    let parts = [cluster.bundle(), agent.bundle(), &admin.certificate_pem, serving.pem(), to_agents.pem()];
    let parts = parts.map(str::as_bytes).concat();
    let digest = digest(&SHA256, &[&parts[..], &signing_keys.bytes()].concat()).as_ref().to_vec();
    Ok(Pki { cluster, agent, admin, signing_keys, server, agents, digest })
}

impl Pki {
    /// The CAs that clients of the API trust, PEM: first the one that signs, then the previous one while it is trusted.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.cluster.bundle()
    }

    /// The certificate of the CA that signs, DER.
    #[must_use]
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        self.cluster.current.der()
    }

    /// The key identifier of the agent CA, which serving certificates of agents have as their authority key identifier.
    #[must_use]
    pub fn agent_ca_key_id(&self) -> &str {
        self.agent.current.key_id()
    }

    /// Whether two readings of the directory are equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// The fingerprint of the CA that signed a client certificate (DER); `None` when it is not trusted.
    #[must_use]
    pub fn client_issuer(&self, der: &[u8]) -> Option<&str> {
        let certificate = certs::Certificate::from_der(der)?;
        self.cluster.all().find(|authority| authority.certified(&certificate)).map(|authority| authority.fingerprint())
    }

    /// The fingerprint of the CA that is being replaced, if any.
    #[must_use]
    pub fn previous_ca(&self) -> Option<&str> {
        self.cluster.previous.as_deref().map(certs::Authority::fingerprint)
    }

    /// The administrator certificate.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The key that signs ServiceAccount tokens (PKCS #8, DER).
    #[must_use]
    pub fn signing_key(&self) -> &[u8] {
        &self.signing_keys.current
    }

    /// The signing key, and earlier keys whose tokens are still accepted.
    #[must_use]
    pub fn signing_keys(&self) -> &SigningKeys {
        &self.signing_keys
    }

    /// The TLS configuration: 1.2 and 1.3, `h2` before `http/1.1`, client certificates requested but not required.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The signer for clients of the API.
    #[must_use]
    pub fn signing(&self) -> Signing {
        Signing { authority: Arc::clone(&self.cluster.current) }
    }

    /// The signer for agents.
    #[must_use]
    pub fn agent_signing(&self) -> Signing {
        Signing { authority: Arc::clone(&self.agent.current) }
    }

    /// A new key with a client certificate for a year: the user `name` in the group `organization`.
    ///
    /// # Errors
    /// When the key cannot be created.
    pub fn issue_client(&self, name: &str, organization: &str, now: Timestamp) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let purpose = Purpose::Client { name, organization };
        let certificate = self.cluster.current.certify(&purpose, &key, CLIENT_LIFETIME, now)?;
        Ok(Identity { certificate_pem: certificate.pem().to_owned(), key_pem: key.serialize_pem() })
    }
}

/// The TLS configuration of the API. TLS sessions are cached in the configuration: those of clients whose CA is no longer trusted end with
/// the configuration that trusted it.
fn server_config(trusted: &Authorities, serving: &Leaf) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted.roots()?), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let chain = vec![serving.certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(serving.key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
