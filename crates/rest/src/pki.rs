//! Who the server is: its authority, its certificate, the administrator's certificate and the key of its tokens.
//!
//! In: a folder, the names under which the server is reached, the time. Out: a [`Pki`], from which the TLS settings,
//! the kubeconfig and the token signer are made. The first start makes everything, later ones reuse it.
//!
//! ```text
//! ca.key ──────────── ca.crt            P-256, ten years, certified anew (same key) in its last year
//!   ├─ server.key ─── server.crt        until the authority ends; anew when a name is missing or in its last 30 days
//!   ├─ admin.key ──── admin.crt         CN=waypost-admin, O=system:masters; the same
//!   ├─ agents.key ─── agents.crt        the server before the agents of nodes, CN=kube-apiserver-kubelet-client; the same
//!   └─ (clients)                        nodes and others, through CertificateSigningRequests; kept by them
//! agent-ca.key ────── agent-ca.crt      like ca.crt, but only this server trusts it
//!   └─ (agents)                         serving certificates of agents; kept by them
//! service-account.key                   ES256, signs ServiceAccount tokens
//! ```
//!
//! Agents' serving certificates have a CA of their own. A node says itself where it serves, so one that was taken over may come to a certificate
//! for a name that is not its own; with the cluster's CA it could then be the API server for every client that trusts that CA. No
//! kubeconfig and no ConfigMap holds the agent CA.
//!
//! A key is written before its certificate, and a certificate is renewed for the key that is there. So whatever a
//! crash leaves behind is a key without a certificate, which the next start completes. Everything else that does not
//! fit (a certificate of the authority without its key, text that is no key) was done by someone, and is reported with
//! the file's name instead of being overwritten.
//!
//! The server's and the administrator's certificates live as long as the authority: their keys lie beside the
//! authority's key, so a shorter life would protect nothing and stop a server that runs for long.
//!
//! A client that shows a certificate of another authority does not get through the handshake. (The original lets it in
//! and answers 401. Failing earlier means that no later code can take an unverified name for a user; clients written
//! in Go do not even send such a certificate, because the handshake names the authority that is accepted.)

mod agents;
mod anybody;
mod certs;
pub(crate) mod files;
mod requests;
#[cfg(test)]
pub(crate) mod scratch;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use certs::{Authority, Certificate, Purpose};

pub(crate) use agents::trusting_config;
pub use agents::{AGENT_CLIENT, Served, agent_server_config, may_ask_agents};
pub(crate) use anybody::Anybody;
pub use requests::{OwnKey, Signing, serves, signed_by, until_renewal, validity};

/// The user of the admin certificate.
pub const ADMIN_USER: &str = "waypost-admin";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

const DAY: i64 = 86_400;
/// A certificate in its last days is renewed at the next start.
const RENEW_BEFORE: i64 = 30 * DAY;
/// The authority is renewed earlier, so that what it certifies does not end with it too soon.
const RENEW_AUTHORITY_BEFORE: i64 = 365 * DAY;
/// How long certificates for others (nodes) are good.
const CLIENT_LIFETIME: i64 = 365 * DAY;

/// What can go wrong with the files of the identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// The file system refused.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// What was tried: `reading`, `writing`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is there and cannot be used.
    #[error("{path}: {why}; {remedy}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What the administrator can do.
        remedy: &'static str,
    },
    /// A certificate or key could not be made.
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate is not signed for this.
    #[error("the usage {0:?} is not one of clients and servers")]
    Usage(String),
    /// The TLS library does not accept what was made.
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS library does not accept the authority.
    #[error("setting up the check of client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The names and addresses under which clients reach the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServingNames {
    /// Addresses; unspecified ones (`0.0.0.0`) are left out of the certificate.
    pub ips: Vec<IpAddr>,
    /// Names; what is no DNS name is left out of the certificate.
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

/// The server's identity, loaded.
pub struct Pki {
    authority: Arc<Authority>,
    agent_authority: Arc<Authority>,
    admin: Identity,
    signing_key: Vec<u8>,
    server: Arc<ServerConfig>,
    agents: Arc<ClientConfig>,
}

impl Debug for Pki {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").field("ca", &self.authority.pem()).finish_non_exhaustive()
    }
}

/// Loads the identity from `dir`, making what is missing.
///
/// # Errors
/// When the folder cannot be read or written, or a file in it is damaged; the message names the file.
pub fn load_or_create(dir: &Path, names: &ServingNames, now: Timestamp) -> Result<Pki, PkiError> {
    files::private_dir(dir)?;
    let authority = load_authority(dir, &CLUSTER_CA, now)?;
    let agent_authority = load_authority(dir, &AGENT_CA, now)?;
    let serving = load_leaf(dir, "server", &authority, &Purpose::server(names), now)?;
    let admin = load_leaf(dir, "admin", &authority, &Purpose::Client { name: ADMIN_USER, organization: MASTERS }, now)?;
    let purpose = Purpose::Client { name: AGENT_CLIENT, organization: agents::GROUP };
    let to_agents = load_leaf(dir, "agents", &authority, &purpose, now)?;
    let signing_key = load_key(&dir.join("service-account.key"), SIGNING_KEY_REMEDY)?.serialize_der();
    let server = server_config(&authority, &serving)?;
    let agents = agents::client_config(&agent_authority, &to_agents)?;
    let (authority, agent_authority) = (Arc::new(authority), Arc::new(agent_authority));
    Ok(Pki { authority, agent_authority, admin: admin.identity(), signing_key, server, agents })
}

impl Pki {
    /// The certificate of the authority, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// The certificate of the authority, DER.
    #[must_use]
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        self.authority.der()
    }

    /// The administrator.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The key that signs ServiceAccount tokens (PKCS #8, DER).
    #[must_use]
    pub fn signing_key(&self) -> &[u8] {
        &self.signing_key
    }

    /// The TLS settings: 1.2 and 1.3, `h2` before `http/1.1`, client certificates asked for but not demanded.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The part that signs for clients of the API.
    #[must_use]
    pub fn signing(&self) -> Signing {
        Signing { authority: Arc::clone(&self.authority) }
    }

    /// The part that signs for agents that serve.
    #[must_use]
    pub fn agent_signing(&self) -> Signing {
        Signing { authority: Arc::clone(&self.agent_authority) }
    }

    /// A new key and a certificate for it, good for a year: the user `name` in the group `organization`.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn issue_client(&self, name: &str, organization: &str, now: Timestamp) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let purpose = Purpose::Client { name, organization };
        let certificate = self.authority.certify(&purpose, &key, CLIENT_LIFETIME, now)?;
        Ok(Identity { certificate_pem: certificate.pem().to_owned(), key_pem: key.serialize_pem() })
    }
}

/// A CA: its files, its subject, and what to do when a file is damaged.
struct Ca {
    stem: &'static str,
    name: &'static str,
    remedy: &'static str,
}

/// The CA that clients of the API trust, and that signs for clients.
const CLUSTER_CA: Ca = Ca {
    stem: "ca",
    name: "waypost-ca",
    remedy: "put the original file back, or move the whole folder away to start with a new authority (every kubeconfig, node and \
             ServiceAccount token must then be made anew)",
};

/// The CA of agents' serving certificates, which this server alone trusts.
const AGENT_CA: Ca = Ca {
    stem: "agent-ca",
    name: "waypost-agent-ca",
    remedy: "put the original file back, or remove agent-ca.key and agent-ca.crt to start with a new CA for agents (then remove \
             node/serving.crt in the data directory of every node and restart it)",
};

const SIGNING_KEY_REMEDY: &str = "put the original file back, or remove it to start with a new key (ServiceAccount \
                                  tokens signed so far are then refused)";
const LEAF_REMEDY: &str = "remove this file, and it is made anew at the next start";

fn load_authority(dir: &Path, ca: &Ca, now: Timestamp) -> Result<Authority, PkiError> {
    let Ca { stem, name, remedy } = *ca;
    let (key_path, cert_path) = (dir.join(format!("{stem}.key")), dir.join(format!("{stem}.crt")));
    if !key_path.exists() && cert_path.exists() {
        let why = format!("the key of this authority, {}, is missing", key_path.display());
        return Err(PkiError::Damaged { path: cert_path, why, remedy });
    }
    let key = load_key(&key_path, remedy)?;
    let damaged = |why: String| PkiError::Damaged { path: cert_path.clone(), why, remedy };
    if let Some(certificate) = load_certificate(&cert_path, remedy)? {
        if !certificate.is_for(&key) {
            return Err(damaged(format!("it belongs to another key than {stem}.key")));
        }
        if !certificate.is_ca_named(name) {
            return Err(damaged("it is not an authority that this program made".to_owned()));
        }
        if certificate.remaining(now) >= RENEW_AUTHORITY_BEFORE {
            return Ok(Authority::new(name, key, certificate));
        }
        tracing::warn!(file = %cert_path.display(), "the authority ends soon and is certified anew with the same key");
    }
    let certificate = certs::certify_authority(name, &key, now)?;
    files::write_private(&cert_path, certificate.pem().as_bytes())?;
    Ok(Authority::new(name, key, certificate))
}

/// A key with its certificate.
struct Leaf {
    key: KeyPair,
    certificate: Certificate,
}

impl Leaf {
    fn identity(&self) -> Identity {
        Identity { certificate_pem: self.certificate.pem().to_owned(), key_pem: self.key.serialize_pem() }
    }
}

fn load_leaf(
    dir: &Path,
    stem: &str,
    authority: &Authority,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<Leaf, PkiError> {
    let cert_path = dir.join(format!("{stem}.crt"));
    let key = load_key(&dir.join(format!("{stem}.key")), LEAF_REMEDY)?;
    if let Some(certificate) = load_certificate(&cert_path, LEAF_REMEDY)? {
        let problem = if !certificate.is_for(&key) || !authority.certified(&certificate) {
            Some("it does not fit its key or the authority")
        } else if !purpose.is_served_by(&certificate) {
            Some("a wanted name is not in it")
        } else if certificate.remaining(now) < RENEW_BEFORE || certificate.starts_after(now) {
            Some("it is not valid for another 30 days")
        } else {
            None
        };
        let Some(problem) = problem else { return Ok(Leaf { key, certificate }) };
        tracing::info!(file = %cert_path.display(), "certificate is made anew: {problem}");
    }
    let certificate = authority.certify(purpose, &key, i64::MAX, now)?;
    files::write_private(&cert_path, certificate.pem().as_bytes())?;
    Ok(Leaf { key, certificate })
}

/// The key in a file, made when there is none.
fn load_key(path: &Path, remedy: &'static str) -> Result<KeyPair, PkiError> {
    let Some(pem) = files::read(path)? else {
        let key = KeyPair::generate()?;
        files::write_private(path, key.serialize_pem().as_bytes())?;
        return Ok(key);
    };
    files::tighten(path)?;
    let damaged = |why: &str| PkiError::Damaged { path: path.into(), why: why.into(), remedy };
    let pem = std::str::from_utf8(&pem).map_err(|_| damaged("it is not a PEM file"))?;
    let key = KeyPair::from_pem(pem).map_err(|error| damaged(&format!("it holds no usable private key ({error})")))?;
    if key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) { Ok(key) } else { Err(damaged("it is not a P-256 key")) }
}

fn load_certificate(path: &Path, remedy: &'static str) -> Result<Option<Certificate>, PkiError> {
    let Some(pem) = files::read(path)? else { return Ok(None) };
    Certificate::parse(&pem).map(Some).map_err(|why| PkiError::Damaged { path: path.into(), why, remedy })
}

fn server_config(authority: &Authority, serving: &Leaf) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
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
