//! Certificates that end are renewed in time, while everything runs on.
//!
//! In: the kubeconfig of a node, and the names of its agent. Out: the same with newer certificates: the file is replaced as one step and whoever
//! watches reads it anew; the agent shows its new certificate to the next who comes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::ask::{self, Serving};
use super::{JoinError, Joined, cluster_of, write};
use crate::pki::{Identity, OwnKey, Served, files, serves, signed_by, until_renewal};
use crate::remote::Remote;

const CERTIFICATE: &str = "serving.crt";
const KEY: &str = "serving.key";
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// Clocks jump: so often is looked at the time at least.
const LOOK: Duration = Duration::from_secs(3600);
/// Certificates that are nearly over when they come are not asked for all the time.
const AT_MOST: Duration = Duration::from_secs(5);

/// Renews the certificate of a node's own kubeconfig for ever.
pub async fn keep_client(kubeconfig: &Path, node: &str, remote: &Remote) {
    loop {
        let certificate = Joined::read(kubeconfig).ok().flatten().map(|joined| joined.certificate).unwrap_or_default();
        wait(&certificate).await;
        if !until_renewal(&certificate, Timestamp::now()).is_zero() {
            continue;
        }
        match renew(kubeconfig, node, remote).await {
            Ok(()) => tracing::info!("the certificate of this node was renewed"),
            Err(error) => {
                tracing::warn!("the certificate of this node could not be renewed: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn renew(kubeconfig: &Path, node: &str, remote: &Remote) -> Result<(), JoinError> {
    let info = cluster_of(kubeconfig)?;
    let key = OwnKey::generate()?;
    let pem = ask::client(&mut remote.client(), &key, node).await?;
    write(kubeconfig, &info, node, &key, &pem)?;
    remote.refresh();
    Ok(())
}

/// Has the agent show a certificate of the agent CA, for ever: the one that was kept, or a new one. One that the cluster's CA signed is of the
/// time before there was an agent CA, and the API server does not accept it: it is replaced, and shown meanwhile to a server that does.
pub async fn keep_serving(folder: &Path, names: &Serving, cluster_ca: &str, remote: &Remote, served: &Arc<Served>) {
    let (mut current, mut asked) = (kept(folder, names), false);
    loop {
        if let Some(identity) = &current {
            if let Err(error) = served.show(identity) {
                tracing::warn!("the certificate of the agent cannot be used: {error}");
            }
            match (is_superseded(identity, cluster_ca), asked) {
                (false, _) => wait_for_renewal(identity).await,
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

/// Whether a serving certificate is of the time before agents had a CA of their own.
fn is_superseded(identity: &Identity, cluster_ca: &str) -> bool {
    signed_by(&identity.certificate_pem, cluster_ca)
}

async fn wait_for_renewal(identity: &Identity) {
    loop {
        wait(&identity.certificate_pem).await;
        if until_renewal(&identity.certificate_pem, Timestamp::now()).is_zero() {
            return;
        }
    }
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
