//! Credentials of `waypost node`, and their renewal: wiring of [`rest::join`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::remote::Remote;
use jiff::Timestamp;
use rest::join::{self, JoinOptions, Serving};
use rest::pki::Served;
use tokio::task::JoinSet;

use super::agent;
use crate::config::NodeArguments;

/// The credentials of a node.
pub(super) struct Credentials {
    /// The kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// Its name.
    node: String,
    /// The directory of its keys and certificates.
    folder: PathBuf,
    /// Whether the kubeconfig is renewed here.
    joined: bool,
    /// The certificate of its agent, if it runs one.
    served: Option<Arc<Served>>,
    /// The CAs of the cluster.
    published: join::Published,
    tasks: JoinSet<()>,
}

/// How long the start waits for the agent's certificate; if it must be approved by hand, the node starts without it.
const SERVING_TIMEOUT: Duration = Duration::from_secs(10);

/// The credentials; joins the cluster with `--join`.
pub(super) async fn credentials(arguments: &NodeArguments) -> anyhow::Result<Credentials> {
    let folder = arguments.place.data_dir.join("node");
    let node = agent::node_name(arguments.proxy.node_name.as_deref());
    let known = |kubeconfig, joined| Credentials {
        kubeconfig,
        node: node.clone(),
        folder: folder.clone(),
        joined,
        served: None,
        published: join::Published::default(),
        tasks: JoinSet::new(),
    };
    let Some(server) = &arguments.join.join else {
        let Some(kubeconfig) = arguments.kubeconfig.clone() else {
            bail!("set --kubeconfig FILE, or --join HOST:PORT with a token of `waypost token create`");
        };
        return Ok(known(kubeconfig, false));
    };
    let token = token(arguments)?;
    let options = JoinOptions {
        server: server.strip_prefix("https://").unwrap_or(server).trim_end_matches('/'),
        node: &node,
        token: token.as_deref(),
        ca_hash: arguments.join.ca_hash.as_deref(),
        skip_ca_verification: arguments.join.unsafe_skip_ca_verification,
        dir: &folder,
    };
    let kubeconfig =
        join::join(&options, Timestamp::now()).await.with_context(|| format!("joining {server} as {node}"))?;
    Ok(known(kubeconfig, true))
}

fn token(arguments: &NodeArguments) -> anyhow::Result<Option<String>> {
    let Some(file) = &arguments.join.token_file else { return Ok(arguments.join.token.clone()) };
    match std::fs::read_to_string(file) {
        Ok(token) => Ok(Some(token.trim().to_owned())),
        // The token is used once; its file may have been removed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading the token in {}", file.display())),
    }
}

impl Credentials {
    /// Renews the certificate of the node in time, and follows the CAs of the cluster.
    pub(super) fn keep(&mut self, remote: &Remote) {
        if self.joined {
            let (kubeconfig, node, remote) = (self.kubeconfig.clone(), self.node.clone(), remote.clone());
            let published = self.published.clone();
            self.tasks.spawn(async move { join::renew_client(&kubeconfig, &node, &remote, &published).await });
        }
    }

    /// The TLS settings of the agent's port: its certificate is requested when the Node has addresses.
    pub(super) fn serving(&mut self, remote: &Remote) -> Option<::agent::serve::Tls> {
        let Ok(cluster) = join::cluster_of(&self.kubeconfig) else {
            tracing::warn!("the kubeconfig embeds no authority; logs, exec, attach and port-forward will not work");
            return None;
        };
        let served = Arc::new(Served::new(&cluster.ca_pem));
        let tls = served.configs();
        let names = Serving { node: self.node.clone(), ips: agent::serving_ips() };
        self.served = Some(Arc::clone(&served));
        let (trusting, published) = (Arc::clone(&served), self.published.clone());
        self.tasks.spawn(async move { join::follow_trust(&trusting, &published).await });
        let (folder, remote, published) = (self.folder.clone(), remote.clone(), self.published.clone());
        self.tasks.spawn(async move {
            join::renew_serving(&folder, &names, &cluster, &remote, &served, &published).await;
        });
        Some(tls)
    }

    /// Waits for the agent's certificate up to a timeout, so that logs and reports of a ready node can be read.
    pub(super) async fn served(&self) {
        let Some(served) = &self.served else { return };
        if tokio::time::timeout(SERVING_TIMEOUT, served.shown()).await.is_err() {
            tracing::warn!(node = self.node, "no serving certificate yet; approve its CertificateSigningRequest");
        }
    }
}
