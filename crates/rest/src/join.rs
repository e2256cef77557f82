//! How a machine becomes a node of a cluster, and stays one.
//!
//! ```text
//! HOST:PORT ─▶ cluster-info (nobody is trusted yet) ─▶ proof: hash of the authority's key, or the token's signature ─▶ the authority
//!           ─▶ request for a certificate, with the token ─▶ granted and signed ─▶ <data-dir>/node/kubeconfig
//! ```
//! In: where the server is, a token, perhaps a hash. Out: a kubeconfig of the node's own. A later start finds it and needs no token. Before a
//! certificate ends, and when the cluster has another CA, it is renewed, and so is the one under which the agent serves.

mod ask;
mod discover;
mod keep;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use api::bootstrap_token::Token;
use api::value::ValueExt as _;
use client::http::{Client, ClientError};
use client::kubeconfig::Access;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubeconfig::{self, ClusterInfo};
use crate::pki::{OwnKey, PkiError, files, validity};

pub use ask::Serving;
pub use keep::{Published, keep_client, keep_serving, keep_trust};

/// The group of nodes, which their certificates name.
const NODES: &str = "system:nodes";
/// The file, in the folder of what is known of the cluster.
const KUBECONFIG: &str = "kubeconfig";
/// The key of the certificate that was asked for last.
const KEY: &str = "client.key";
/// What to do to get a token.
macro_rules! new_token {
    () => {
        "make a new one where the server runs, with `waypost token create --print-join-command`"
    };
}

/// Why a machine is not a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Nobody answers there.
    #[error(
        "the server {address} cannot be reached: {why}; is it running, and does it listen on an address that this machine reaches (--listen)?"
    )]
    Unreachable {
        /// Where.
        address: String,
        /// What happened.
        why: String,
    },
    /// Who answers has another name.
    #[error(
        "the server {address} does not prove that it is called so: {why}; join by a name in its certificate, or start it with --tls-san or --advertise-address"
    )]
    OtherName {
        /// Where.
        address: String,
        /// What happened.
        why: String,
    },
    /// It does not say what cluster it is.
    #[error(
        "the server {address} does not describe its cluster ({why}); one of Waypost does so once there is a token: make one there with `waypost token create --print-join-command`"
    )]
    NoDescription {
        /// Where.
        address: String,
        /// What happened.
        why: String,
    },
    /// There is nothing to start from.
    #[error("this machine has not joined yet and no token was given; {}, and start with that", new_token!())]
    NoToken,
    /// What was given is no token.
    #[error("the token is not of the form abcdef.0123456789abcdef; {}", new_token!())]
    NotAToken,
    /// The server does not know the token.
    #[error("the server does not know the token {id}, or its time is over; {}", new_token!())]
    UnknownToken {
        /// Its public part.
        id: String,
    },
    /// Somebody else answers, or somebody else made the token.
    #[error(
        "what the server says of its cluster was not signed with the token {id}: somebody else may be answering; nothing was sent. Compare the address, or give the hash of the authority with --ca-hash"
    )]
    Forged {
        /// Its public part.
        id: String,
    },
    /// Somebody else answers.
    #[error(
        "the authority of the server is {have}, not {want}: somebody else may be answering; nothing was sent. Compare the address and the hash"
    )]
    OtherAuthority {
        /// What it has.
        have: String,
        /// What it should have.
        want: String,
    },
    /// The server says no.
    #[error("the server refuses {what}: {code}: {message}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The code.
        code: u16,
        /// Its words.
        message: String,
    },
    /// Somebody says no.
    #[error("the request {name} for a certificate was refused: {message}; ask who looks after the cluster")]
    Denied {
        /// The CertificateSigningRequest.
        name: String,
        /// Why.
        message: String,
    },
    /// Nobody has decided.
    #[error(
        "nobody has granted the request {name} for a certificate; grant it with `kubectl certificate approve {name}` and start again"
    )]
    Undecided {
        /// The CertificateSigningRequest.
        name: String,
    },
    /// What is there belongs to something else.
    #[error("{path} is for {have}, not for {want}; to join anew give a token, or remove the file", path = path.display())]
    JoinedElsewhere {
        /// The kubeconfig.
        path: PathBuf,
        /// Where it leads.
        have: String,
        /// Where it should lead.
        want: String,
    },
    /// The certificate has ended.
    #[error("the certificate of this node in {path} has expired; {}, and start with that", new_token!(), path = path.display())]
    Expired {
        /// The kubeconfig.
        path: PathBuf,
    },
    /// Keys, certificates and their files.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Talking to the server.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Who wants to join what.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// `host:port`.
    pub server: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// What lets it in; not needed once it is in.
    pub token: Option<&'a str>,
    /// How the authority is recognised, besides by the token.
    pub ca_hash: Option<&'a str>,
    /// Whether whoever answers is believed.
    pub believe: bool,
    /// Where what is learned is kept.
    pub folder: &'a Path,
}

/// Joins, or finds that this was done before. The answer is the kubeconfig.
///
/// # Errors
/// What is missing, and what to do about it.
pub async fn join(wish: &Wish<'_>, now: Timestamp) -> Result<PathBuf, JoinError> {
    let path = wish.folder.join(KUBECONFIG);
    if let Some(found) = Joined::read(&path)? {
        match found.problem(wish, &path, now) {
            None => return Ok(path),
            Some(problem) if wish.token.is_none() => return Err(problem),
            Some(problem) => tracing::info!("joining anew: {problem}"),
        }
    }
    let token = wish.token.ok_or(JoinError::NoToken)?;
    let token = Token::parse(token.trim()).ok_or(JoinError::NotAToken)?;
    let info = discover::discover(wish, &token).await?;
    files::private_dir(wish.folder)?;
    let key = own_key(&wish.folder.join(KEY))?;
    let user = json!({"token": token.text()});
    let mut client = Client::new(access(&info, &user)?.into());
    let pem = ask::client(&mut client, &key, wish.node).await.map_err(|error| match error {
        JoinError::Refused { code: 401, .. } => JoinError::UnknownToken { id: token.id().to_owned() },
        JoinError::Client(ClientError::Connect { address, why }) if why.contains("certificate") => {
            JoinError::OtherName { address, why }
        }
        error => error,
    })?;
    write(&path, &info, wish.node, &key, &pem)?;
    // The kubeconfig has it now; who joins anew gets a new one.
    files::remove(&wish.folder.join(KEY))?;
    keep::forget_serving(wish.folder)?;
    tracing::info!(server = wish.server, node = wish.node, kubeconfig = %path.display(), "joined");
    Ok(path)
}

/// The authority that a kubeconfig trusts, and the server it leads to.
///
/// # Errors
/// When there is none.
pub fn cluster_of(kubeconfig: &Path) -> Result<ClusterInfo, JoinError> {
    let refuse = |why: String| ClientError::Kubeconfig { path: kubeconfig.display().to_string(), why };
    let text = std::fs::read_to_string(kubeconfig).map_err(|error| refuse(error.to_string()))?;
    Ok(ClusterInfo::parse(&text).map_err(|error| refuse(error.to_string()))?)
}

/// A way to the server for somebody.
fn access(info: &ClusterInfo, user: &Value) -> Result<Access, JoinError> {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(&info.ca_pem);
    Ok(Access::from_parts(&json!({"server": info.server, "certificate-authority-data": ca}), user)?)
}

/// The key of a request that was begun before, so that what was granted meanwhile is not lost; or a new one.
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

/// Writes the node's own kubeconfig.
fn write(path: &Path, info: &ClusterInfo, node: &str, key: &OwnKey, pem: &str) -> Result<(), JoinError> {
    let identity = key.certified(pem)?;
    let text = kubeconfig::render(&info.server, &info.ca_pem, &user_of(node), &identity);
    Ok(files::write_private(path, text.as_bytes())?)
}

/// The user that a node is.
fn user_of(node: &str) -> String {
    format!("system:node:{node}")
}

/// What an earlier start has left.
struct Joined {
    server: String,
    user: String,
    certificate: String,
    key: String,
}

impl Joined {
    /// Nothing when there is no file. One that cannot be read counts as expired: a token makes it anew.
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

    /// Why it does not do.
    fn problem(&self, wish: &Wish<'_>, path: &Path, now: Timestamp) -> Option<JoinError> {
        let elsewhere = |have: &str, want: String| {
            Some(JoinError::JoinedElsewhere { path: path.to_owned(), have: have.to_owned(), want })
        };
        if validity(&self.certificate).is_none_or(|(_, end)| end <= now) {
            return Some(JoinError::Expired { path: path.to_owned() });
        }
        if self.server != format!("https://{}", wish.server) {
            return elsewhere(&self.server, format!("https://{}", wish.server));
        }
        let user = user_of(wish.node);
        if self.user == user { None } else { elsewhere(&self.user, user) }
    }
}
