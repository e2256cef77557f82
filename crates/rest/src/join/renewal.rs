//! Renewal of a node's certificates and CAs at run time.
//!
//! In: the kubeconfig of a node, the names of its agent, and `kube-public/cluster-info`, read over an authenticated connection. Out: new
//! certificates and CAs: the kubeconfig is replaced atomically and read again; the agent uses its new certificate for new
//! connections.

use std::path::Path;
use std::time::Duration;

use api::bootstrap_token::{CLUSTER_INFO, KUBECONFIG};
use api::value::ValueExt as _;
use client::http::{Client, Method};
use client::remote::Remote;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::csr::{self, Serving};
use super::{JoinError, Joined, cluster_of, write};
use crate::kubeconfig::ClusterInfo;
use crate::pki::{Identity, OwnKey, Served, files, issuer_key_id, serves, signed_by, until_renewal};

const CERTIFICATE: &str = "serving.crt";
const KEY: &str = "serving.key";
/// The interval at which a node checks its certificate and the CAs of the cluster.
const REFRESH: Duration = Duration::from_secs(10);
/// The retry interval after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The longest sleep before the time is checked again, because clocks jump.
const MAX_SLEEP: Duration = Duration::from_secs(3600);
/// The shortest interval between renewals, for certificates that expire soon after they are issued.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The latest cluster-info: the CAs to trust, and the CA that signs for agents.
pub type Published = watch::Sender<Option<ClusterInfo>>;

/// What to do with the kubeconfig of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    Nothing,
    /// The CAs have changed.
    Trust,
    /// The certificate expires soon, or another CA signs now. The CAs are written with it.
    Renew,
}

/// Decides from the kubeconfig and cluster-info. `is_due`: the certificate expires soon.
pub(super) fn renewal(own: &ClusterInfo, certificate: &str, published: &ClusterInfo, is_due: bool) -> Renewal {
    let is_other = own.ca_pem != published.ca_pem;
    if is_due || is_other && !signed_by(certificate, &published.ca_pem) {
        Renewal::Renew
    } else if is_other {
        Renewal::Trust
    } else {
        Renewal::Nothing
    }
}

/// Renews the client certificate of a node in time, and follows the CAs of the cluster. Never returns.
pub async fn renew_client(kubeconfig: &Path, node: &str, remote: &Remote, published: &Published) {
    let mut client = remote.client();
    loop {
        let certificate = Joined::read(kubeconfig).ok().flatten().map(|joined| joined.certificate).unwrap_or_default();
        tokio::time::sleep(until_renewal(&certificate, Timestamp::now()).clamp(MIN_INTERVAL, REFRESH)).await;
        match renew(kubeconfig, node, remote, published, &mut client).await {
            Ok(Renewal::Nothing) => {}
            Ok(done) => {
                tracing::info!(renewed = done == Renewal::Renew, "updated credentials of this node");
                client = remote.client();
            }
            Err(error) => {
                tracing::warn!(%error, "failed to update credentials of this node");
                client = remote.client();
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

async fn renew(
    kubeconfig: &Path,
    node: &str,
    remote: &Remote,
    published: &Published,
    client: &mut Client,
) -> Result<Renewal, JoinError> {
    let own = cluster_of(kubeconfig)?;
    let certificate = Joined::read(kubeconfig)?.map(|joined| joined.certificate).unwrap_or_default();
    let is_due = until_renewal(&certificate, Timestamp::now()).is_zero();
    // Servers of earlier versions do not let nodes read it: the CAs stay as they are.
    let now =
        described(client).await?.map_or_else(|| own.clone(), |now| ClusterInfo { server: own.server.clone(), ..now });
    let wanted = renewal(&own, &certificate, &now, is_due);
    match wanted {
        Renewal::Nothing => {}
        Renewal::Trust => rewrite(kubeconfig, &now, node)?,
        Renewal::Renew => {
            let key = OwnKey::generate()?;
            let pem = csr::client(&mut remote.client(), &key, node).await?;
            write(kubeconfig, &now, node, &key, &pem)?;
        }
    }
    if wanted != Renewal::Nothing {
        remote.refresh();
    }
    published.send_if_modified(|last| last.replace(now.clone()) != Some(now));
    Ok(wanted)
}

/// The cluster-info; `None` when this node may not read it.
async fn described(client: &mut Client) -> Result<Option<ClusterInfo>, JoinError> {
    let (namespace, name) = CLUSTER_INFO;
    let (code, map) =
        client.json(Method::GET, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), None).await?;
    let text = map.at("data").get(KUBECONFIG).and_then(Value::as_str).unwrap_or_default();
    Ok((code == 200).then(|| ClusterInfo::parse(text).ok()).flatten())
}

/// Writes the kubeconfig with other CAs.
fn rewrite(kubeconfig: &Path, info: &ClusterInfo, node: &str) -> Result<(), JoinError> {
    let Some(joined) = Joined::read(kubeconfig)? else { return Ok(()) };
    write(kubeconfig, info, node, &OwnKey::from_pem(&joined.key)?, &joined.certificate)
}

/// Keeps a valid serving certificate of the agent CA in use: the stored one, or a new one. Never returns. A certificate of the cluster CA predates
/// the agent CA and is not accepted by current servers: it is replaced, and used until then.
pub async fn renew_serving(
    dir: &Path,
    names: &Serving,
    cluster: &ClusterInfo,
    remote: &Remote,
    served: &Served,
    published: &Published,
) {
    let (mut current, mut asked) = (stored(dir, names), false);
    let mut said = published.subscribe();
    loop {
        if let Some(identity) = &current {
            if let Err(error) = served.show(identity) {
                tracing::warn!(%error, "cannot use serving certificate of the agent");
            }
            match (is_superseded(identity, &cluster.ca_pem), asked) {
                (false, _) => until_outdated(identity, &mut said).await,
                // Servers of the previous version sign with the cluster CA; they may be upgraded at any time.
                (true, true) => tokio::time::sleep(MAX_SLEEP).await,
                (true, false) => tracing::info!("request serving certificate: the old one is not of the agent CA"),
            }
        }
        match fetch(dir, names, remote).await {
            Ok(identity) => (current, asked) = (Some(identity), true),
            Err(error) => {
                tracing::warn!(
                    "the agent has no new certificate: {error}; without one, logs, exec, attach and port-forward do not work"
                );
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

/// Updates the CAs that an agent trusts, until the sender is dropped.
pub async fn follow_trust(served: &Served, published: &Published) {
    let mut said = published.subscribe();
    while said.changed().await.is_ok() {
        let info = said.borrow_and_update().clone();
        if let Some(error) = info.and_then(|info| served.trust(&info.ca_pem).err()) {
            tracing::warn!(%error, "cannot use CAs of the cluster");
        }
    }
}

/// Waits until a serving certificate expires soon or another CA signs for agents.
async fn until_outdated(identity: &Identity, said: &mut watch::Receiver<Option<ClusterInfo>>) {
    let pem = &identity.certificate_pem;
    loop {
        let agent_ca = said.borrow_and_update().as_ref().and_then(|info| info.agent_ca.clone());
        if until_renewal(pem, Timestamp::now()).is_zero() || is_of_another_ca(pem, agent_ca.as_deref()) {
            return;
        }
        tokio::select! {
            () = wait(pem) => {}
            // Without a sender there are no more changes; the time is still checked.
            Ok(()) = said.changed() => {}
        }
    }
}

/// Whether the CA for agents is another than the one that signed a serving certificate.
pub(super) fn is_of_another_ca(certificate: &str, agent_ca: Option<&str>) -> bool {
    agent_ca.is_some_and(|current| issuer_key_id(certificate).is_some_and(|own| own != current))
}

/// Whether a serving certificate predates the agent CA.
fn is_superseded(identity: &Identity, cluster_ca: &str) -> bool {
    signed_by(&identity.certificate_pem, cluster_ca)
}

/// The stored certificate, if it is still valid.
fn stored(dir: &Path, names: &Serving) -> Option<Identity> {
    let read = |name: &str| files::read(&dir.join(name)).ok().flatten().and_then(|pem| String::from_utf8(pem).ok());
    let (certificate, key) = (read(CERTIFICATE)?, OwnKey::from_pem(&read(KEY)?).ok()?);
    let good =
        serves(&certificate, &names.node, &names.ips) && !until_renewal(&certificate, Timestamp::now()).is_zero();
    key.certified(&certificate).ok().filter(|_| good)
}

async fn fetch(dir: &Path, names: &Serving, remote: &Remote) -> Result<Identity, JoinError> {
    files::private_dir(dir)?;
    let key = OwnKey::generate()?;
    let pem = csr::serving(&mut remote.client(), &key, names).await?;
    let identity = key.certified(&pem)?;
    // After a crash between the two, they do not match and are requested again.
    files::write_private(&dir.join(KEY), identity.key_pem.as_bytes())?;
    files::write_private(&dir.join(CERTIFICATE), identity.certificate_pem.as_bytes())?;
    Ok(identity)
}

/// Removes the serving certificate: another cluster has another CA.
pub(super) fn remove_serving(dir: &Path) -> Result<(), JoinError> {
    Ok(files::remove(&dir.join(CERTIFICATE))?)
}

async fn wait(certificate: &str) {
    tokio::time::sleep(until_renewal(certificate, Timestamp::now()).clamp(MIN_INTERVAL, MAX_SLEEP)).await;
}
