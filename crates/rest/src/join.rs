//! Joins a machine to a cluster as a node, and renews its certificates.
//!
//! ```text
//! HOST:PORT ─▶ cluster-info (unauthenticated) ─▶ verified by the hash of the CA's key or the signature of the token ─▶ CA
//!           ─▶ CertificateSigningRequest, with the token ─▶ approved and signed ─▶ <data-dir>/node/kubeconfig
//! ```
//! In: the address of the server, a bootstrap token, optionally the CA hash. Out: a kubeconfig of the node. A later start uses it and needs
//! no token. Client and serving certificates are renewed before they expire, and when the CA changes.

mod csr;
mod discover;
mod renewal;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use api::bootstrap_token::Token;
use api::value::ValueExt as _;
use client::http::{Client, ClientError};
use client::kubeconfig::{Access, KubeconfigError};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubeconfig::{self, ClusterInfo};
use crate::pki::{OwnKey, PkiError, files, validity};

pub use csr::Serving;
pub use renewal::{Published, follow_trust, renew_client, renew_serving};

/// The group of nodes in their certificates.
const NODES: &str = "system:nodes";
/// The file name of the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";
/// The key of the last CertificateSigningRequest.
const KEY: &str = "client.key";
/// How to get a token.
macro_rules! new_token {
    () => {
        "create one on the server with `waypost token create --print-join-command`"
    };
}

/// Why a machine could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The server cannot be reached.
    #[error(
        "the server {address} cannot be reached: {why}; check that it is running and listens on an address that this machine can reach (--listen)"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// The error.
        why: String,
    },
    /// The certificate of the server has another name.
    #[error(
        "the certificate of the server is not valid for {address}: {why}; join by a name in its certificate, or start it with --tls-san or --advertise-address"
    )]
    NameMismatch {
        /// The address.
        address: String,
        /// The error.
        why: String,
    },
    /// The server does not publish cluster-info.
    #[error(
        "the server {address} does not publish cluster-info ({why}); Waypost publishes it once a token exists: create one on the server with `waypost token create --print-join-command`"
    )]
    NoClusterInfo {
        /// The address.
        address: String,
        /// The error.
        why: String,
    },
    /// No token, and the machine has not joined before.
    #[error("this machine has not joined yet and no token was given; {}, and start with it", new_token!())]
    NoToken,
    /// The token is malformed.
    #[error("the token is not of the form abcdef.0123456789abcdef; {}", new_token!())]
    InvalidToken,
    /// The token is unknown or has expired.
    #[error("the token {id} is unknown or has expired; {}", new_token!())]
    UnknownToken {
        /// The id of the token.
        id: String,
    },
    /// The signature of cluster-info does not match the token.
    #[error(
        "cluster-info is not signed with the token {id}: this may be another server; nothing was sent. Check the address, or pass the hash of the CA with --ca-hash"
    )]
    BadSignature {
        /// The id of the token.
        id: String,
    },
    /// The server has another CA.
    #[error(
        "the CA of the server is {have}, not {want}: this may be another server; nothing was sent. Check the address and the hash"
    )]
    CaMismatch {
        /// The hash of its CA.
        have: String,
        /// The expected hash.
        want: String,
    },
    /// The server refused a request.
    #[error("the server refuses {what}: {code}: {message}")]
    Refused {
        /// The request.
        what: &'static str,
        /// The HTTP status.
        code: u16,
        /// Its message.
        message: String,
    },
    /// The CertificateSigningRequest was denied.
    #[error("CertificateSigningRequest {name} was denied: {message}; contact the administrator of the cluster")]
    Denied {
        /// The CertificateSigningRequest.
        name: String,
        /// The reason.
        message: String,
    },
    /// The CertificateSigningRequest was not approved in time.
    #[error(
        "CertificateSigningRequest {name} was not approved; approve it with `kubectl certificate approve {name}` and start again"
    )]
    NotApproved {
        /// The CertificateSigningRequest.
        name: String,
    },
    /// The kubeconfig is for another server or node.
    #[error("{path} is for {have}, not for {want}; to join again pass a token, or remove the file", path = path.display())]
    JoinedElsewhere {
        /// The kubeconfig.
        path: PathBuf,
        /// Its server or user.
        have: String,
        /// The expected one.
        want: String,
    },
    /// The client certificate has expired.
    #[error("the certificate of this node in {path} has expired; {}, and start with it", new_token!(), path = path.display())]
    Expired {
        /// The kubeconfig.
        path: PathBuf,
    },
    /// An error with keys, certificates or their files.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// An error of the API client.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Options of a join.
#[derive(Clone, Debug)]
pub struct JoinOptions<'a> {
    /// `host:port`.
    pub server: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// The bootstrap token; not needed once the machine has joined.
    pub token: Option<&'a str>,
    /// The expected hash of the CA.
    pub ca_hash: Option<&'a str>,
    /// Whether an unverified CA is accepted.
    pub skip_ca_verification: bool,
    /// The directory for kubeconfig and keys.
    pub dir: &'a Path,
}

/// Joins, unless the machine has joined before. Returns the path of the kubeconfig.
///
/// # Errors
/// See [`JoinError`].
pub async fn join(options: &JoinOptions<'_>, now: Timestamp) -> Result<PathBuf, JoinError> {
    let path = options.dir.join(KUBECONFIG);
    if let Some(found) = Joined::read(&path)? {
        match found.problem(options, &path, now) {
            None => return Ok(path),
            Some(problem) if options.token.is_none() => return Err(problem),
            Some(problem) => tracing::info!(reason = %problem, "join again"),
        }
    }
    let token = options.token.ok_or(JoinError::NoToken)?;
    let token = Token::parse(token.trim()).ok_or(JoinError::InvalidToken)?;
    let info = discover::discover(options, &token).await?;
    files::private_dir(options.dir)?;
    let key = own_key(&options.dir.join(KEY))?;
    let user = json!({"token": token.text()});
    let mut client = Client::new(access(&info, &user)?.into());
    let pem = csr::client(&mut client, &key, options.node).await.map_err(|error| match error {
        JoinError::Refused { code: 401, .. } => JoinError::UnknownToken { id: token.id().to_owned() },
        JoinError::Client(ClientError::Connect { address, why }) if why.is_certificate() => {
            JoinError::NameMismatch { address, why: why.to_string() }
        }
        error => error,
    })?;
    write(&path, &info, options.node, &key, &pem)?;
    // The kubeconfig has it now; another join makes a new one.
    files::remove(&options.dir.join(KEY))?;
    renewal::remove_serving(options.dir)?;
    tracing::info!(server = options.server, node = options.node, kubeconfig = %path.display(), "joined cluster");
    Ok(path)
}

/// The CA and the server of a kubeconfig.
///
/// # Errors
/// When it cannot be read.
pub fn cluster_of(kubeconfig: &Path) -> Result<ClusterInfo, JoinError> {
    let refuse = |why| ClientError::Kubeconfig { path: kubeconfig.display().to_string(), why };
    let text = std::fs::read_to_string(kubeconfig).map_err(|error| refuse(error.into()))?;
    Ok(ClusterInfo::parse(&text).map_err(|error| refuse(KubeconfigError::Entries(error.into())))?)
}

/// The client configuration for a user.
fn access(info: &ClusterInfo, user: &Value) -> Result<Access, JoinError> {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(&info.ca_pem);
    Ok(Access::from_parts(&json!({"server": info.server, "certificate-authority-data": ca}), user)?)
}

/// The key of an earlier CertificateSigningRequest, so that its approval is not lost; or a new one.
fn own_key(path: &Path) -> Result<OwnKey, JoinError> {
    if let Some(key) =
        files::read(path)?.and_then(|pem| String::from_utf8(pem).ok()).and_then(|pem| OwnKey::from_pem(&pem).ok())
    {
        return Ok(key);
    }
    let key = OwnKey::generate()?;
    files::write_private(path, key.pem().as_bytes())?;
    Ok(key)
}

/// Writes the kubeconfig of the node.
fn write(path: &Path, info: &ClusterInfo, node: &str, key: &OwnKey, pem: &str) -> Result<(), JoinError> {
    let identity = key.certified(pem)?;
    let text = kubeconfig::render(&info.server, &info.ca_pem, &user_of(node), &identity);
    Ok(files::write_private(path, text.as_bytes())?)
}

/// The user of a node.
fn user_of(node: &str) -> String {
    format!("system:node:{node}")
}

/// The kubeconfig of an earlier join.
struct Joined {
    server: String,
    user: String,
    certificate: String,
    key: String,
}

impl Joined {
    /// `None` when there is no file. One that cannot be parsed counts as expired: a token replaces it.
    fn read(path: &Path) -> Result<Option<Self>, JoinError> {
        use base64::Engine as _;
        let Some(bytes) = files::read(path)? else { return Ok(None) };
        let config = api::yaml::from_yaml(&bytes).map(|(config, _)| config).unwrap_or_default();
        let user = config.items("users").first().cloned().unwrap_or_default();
        let decode = |field: &str| {
            let bytes = base64::engine::general_purpose::STANDARD.decode(user.text(field)).ok()?;
            String::from_utf8(bytes).ok()
        };
        let cluster = config.items("clusters").first().cloned().unwrap_or_default();
        Ok(Some(Self {
            server: cluster.text("cluster.server").to_owned(),
            user: user.text("name").to_owned(),
            certificate: decode("user.client-certificate-data").unwrap_or_default(),
            key: decode("user.client-key-data").unwrap_or_default(),
        }))
    }

    /// Why it cannot be used.
    fn problem(&self, options: &JoinOptions<'_>, path: &Path, now: Timestamp) -> Option<JoinError> {
        let elsewhere = |have: &str, want: String| {
            Some(JoinError::JoinedElsewhere { path: path.to_owned(), have: have.to_owned(), want })
        };
        if validity(&self.certificate).is_none_or(|(_, end)| end <= now) {
            return Some(JoinError::Expired { path: path.to_owned() });
        }
        if self.server != format!("https://{}", options.server) {
            return elsewhere(&self.server, format!("https://{}", options.server));
        }
        let user = user_of(options.node);
        if self.user == user { None } else { elsewhere(&self.user, user) }
    }
}
