//! Certificates that end are renewed in time, while everything runs on.
//!
//! In: the kubeconfig of a node, the names of its agent, and what the cluster says of itself in `kube-public/cluster-info`, read over a connection to
//! a server that the node trusts already. Out: the same with newer certificates and CAs: the file is replaced as one step and whoever
//! watches reads it anew; the agent shows its new certificate to the next who comes.

use std::path::Path;
use std::time::Duration;

use api::bootstrap_token::{CLUSTER_INFO, KUBECONFIG};
use api::value::ValueExt as _;
use client::http::{Client, Method};
use client::remote::Remote;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::ask::{self, Serving};
use super::{JoinError, Joined, cluster_of, write};
use crate::kubeconfig::ClusterInfo;
use crate::pki::{Identity, OwnKey, Served, files, issuer_key_id, serves, signed_by, until_renewal};

const CERTIFICATE: &str = "serving.crt";
const KEY: &str = "serving.key";
/// How often a node looks whether its certificate ends soon and which CAs the cluster names.
const REFRESH: Duration = Duration::from_secs(10);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// Clocks jump: so often is looked at the time at least.
const LOOK: Duration = Duration::from_secs(3600);
/// Certificates that are nearly over when they come are not asked for all the time.
const AT_MOST: Duration = Duration::from_secs(5);

/// What the cluster says of itself, as far as a node has read it: the CAs to trust, and which CA signs for agents.
pub type Published = watch::Sender<Option<ClusterInfo>>;

/// What is to be done about the kubeconfig of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Upkeep {
    Nothing,
    /// Other CAs are trusted now.
    Trust,
    /// The certificate ends soon, or another CA signs now. The CAs are written with it.
    Renew,
}

/// Decides from what the node has and what the cluster says. `is_due`: the certificate ends soon.
pub(super) fn upkeep(own: &ClusterInfo, certificate: &str, published: &ClusterInfo, is_due: bool) -> Upkeep {
    let is_other = own.ca_pem != published.ca_pem;
    if is_due || is_other && !signed_by(certificate, &published.ca_pem) {
        Upkeep::Renew
    } else if is_other {
        Upkeep::Trust
    } else {
        Upkeep::Nothing
    }
}

/// Keeps a node's own kubeconfig good for ever: renews its certificate in time, and follows the CAs of the cluster.
pub async fn keep_client(kubeconfig: &Path, node: &str, remote: &Remote, published: &Published) {
    let mut client = remote.client();
    loop {
        let certificate = Joined::read(kubeconfig).ok().flatten().map(|joined| joined.certificate).unwrap_or_default();
        tokio::time::sleep(until_renewal(&certificate, Timestamp::now()).clamp(AT_MOST, REFRESH)).await;
        match look(kubeconfig, node, remote, published, &mut client).await {
            Ok(Upkeep::Nothing) => {}
            Ok(done) => {
                tracing::info!(renewed = done == Upkeep::Renew, "updated credentials of this node");
                client = remote.client();
            }
            Err(error) => {
                tracing::warn!("update of the credentials of this node failed: {error}");
                client = remote.client();
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn look(
    kubeconfig: &Path,
    node: &str,
    remote: &Remote,
    published: &Published,
    client: &mut Client,
) -> Result<Upkeep, JoinError> {
    let own = cluster_of(kubeconfig)?;
    let certificate = Joined::read(kubeconfig)?.map(|joined| joined.certificate).unwrap_or_default();
    let is_due = until_renewal(&certificate, Timestamp::now()).is_zero();
    // A server of an earlier version does not let nodes read this: what the node knows then stays.
    let now =
        described(client).await?.map_or_else(|| own.clone(), |now| ClusterInfo { server: own.server.clone(), ..now });
    let wanted = upkeep(&own, &certificate, &now, is_due);
    match wanted {
        Upkeep::Nothing => {}
        Upkeep::Trust => rewrite(kubeconfig, &now, node)?,
        Upkeep::Renew => {
            let key = OwnKey::generate()?;
            let pem = ask::client(&mut remote.client(), &key, node).await?;
            write(kubeconfig, &now, node, &key, &pem)?;
        }
    }
    if wanted != Upkeep::Nothing {
        remote.refresh();
    }
    published.send_if_modified(|last| last.replace(now.clone()) != Some(now));
    Ok(wanted)
}

/// What the cluster says of itself; nothing when it does not say it to this node.
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

/// Has the agent show a certificate of the agent CA, for ever: the one that was kept, or a new one. One that the cluster's CA signed is of the
/// time before there was an agent CA, and the API server does not accept it: it is replaced, and shown meanwhile to a server that does.
pub async fn keep_serving(
    folder: &Path,
    names: &Serving,
    cluster: &ClusterInfo,
    remote: &Remote,
    served: &Served,
    published: &Published,
) {
    let (mut current, mut asked) = (kept(folder, names), false);
    let mut said = published.subscribe();
    loop {
        if let Some(identity) = &current {
            if let Err(error) = served.show(identity) {
                tracing::warn!("the certificate of the agent cannot be used: {error}");
            }
            match (is_superseded(identity, &cluster.ca_pem), asked) {
                (false, _) => until_outdated(identity, &mut said).await,
                // A server of the previous version signs with the cluster's CA; it may be upgraded at any time.
                (true, true) => tokio::time::sleep(LOOK).await,
                (true, false) => tracing::info!("request serving certificate: the old one is not of the agent CA"),
            }
        }
        match fetch(folder, names, remote).await {
            Ok(identity) => (current, asked) = (Some(identity), true),
            Err(error) => {
                tracing::warn!(
                    "the agent has no new certificate: {error}; without one, logs, exec, attach and port-forward do not work"
                );
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Has an agent trust the CAs that the cluster names, for as long as something is said about them.
pub async fn keep_trust(served: &Served, published: &Published) {
    let mut said = published.subscribe();
    while said.changed().await.is_ok() {
        let info = said.borrow_and_update().clone();
        if let Some(error) = info.and_then(|info| served.trust(&info.ca_pem).err()) {
            tracing::warn!("the CAs of the cluster cannot be used: {error}");
        }
    }
}

/// Waits until a serving certificate ends soon or another CA signs for agents.
async fn until_outdated(identity: &Identity, said: &mut watch::Receiver<Option<ClusterInfo>>) {
    let pem = &identity.certificate_pem;
    loop {
        let agent_ca = said.borrow_and_update().as_ref().and_then(|info| info.agent_ca.clone());
        if until_renewal(pem, Timestamp::now()).is_zero() || is_of_another_ca(pem, agent_ca.as_deref()) {
            return;
        }
        tokio::select! {
            () = wait(pem) => {}
            // Without a sender there is nothing more to come; the time is still looked at.
            Ok(()) = said.changed() => {}
        }
    }
}

/// Whether another CA than the one that signed a serving certificate signs for agents now.
pub(super) fn is_of_another_ca(certificate: &str, agent_ca: Option<&str>) -> bool {
    agent_ca.is_some_and(|current| issuer_key_id(certificate).is_some_and(|own| own != current))
}

/// Whether a serving certificate is of the time before agents had a CA of their own.
fn is_superseded(identity: &Identity, cluster_ca: &str) -> bool {
    signed_by(&identity.certificate_pem, cluster_ca)
}

/// The certificate that an earlier start got, if it still does.
fn kept(folder: &Path, names: &Serving) -> Option<Identity> {
    let read = |name: &str| files::read(&folder.join(name)).ok().flatten().and_then(|pem| String::from_utf8(pem).ok());
    let (certificate, key) = (read(CERTIFICATE)?, OwnKey::from_pem(&read(KEY)?).ok()?);
    let good =
        serves(&certificate, &names.node, &names.ips) && !until_renewal(&certificate, Timestamp::now()).is_zero();
    key.certified(&certificate).ok().filter(|_| good)
}

async fn fetch(folder: &Path, names: &Serving, remote: &Remote) -> Result<Identity, JoinError> {
    files::private_dir(folder)?;
    let key = OwnKey::generate()?;
    let pem = ask::serving(&mut remote.client(), &key, names).await?;
    let identity = key.certified(&pem)?;
    // Whatever a crash leaves of the two does not fit together, and is asked for anew.
    files::write_private(&folder.join(KEY), identity.key_pem.as_bytes())?;
    files::write_private(&folder.join(CERTIFICATE), identity.certificate_pem.as_bytes())?;
    Ok(identity)
}

/// Another cluster has another authority: what an earlier one signed is of no use.
pub(super) fn forget_serving(folder: &Path) -> Result<(), JoinError> {
    Ok(files::remove(&folder.join(CERTIFICATE))?)
}

async fn wait(certificate: &str) {
    tokio::time::sleep(until_renewal(certificate, Timestamp::now()).clamp(AT_MOST, LOOK)).await;
}
