//! `waypost node`: the proxy of this machine, against any Kubernetes API.

use anyhow::Context as _;
use rest::remote::Remote;

use super::proxy::{Proxy, Surroundings};
use super::server;
use crate::config::NodeArguments;

/// Runs the command.
pub(crate) fn exec(arguments: &NodeArguments) -> anyhow::Result<()> {
    server::runtime()?.block_on(async {
        let remote = Remote::new(&arguments.kubeconfig)
            .with_context(|| format!("reading the kubeconfig {}", arguments.kubeconfig.display()))?;
        let around = Surroundings {
            source: &remote,
            kubeconfig: &arguments.kubeconfig,
            pods: &arguments.cluster_cidr,
            node_ports: "primary",
        };
        let proxy = Proxy::start(&around, &arguments.proxy)?;
        let ready = async {
            if let Some(proxy) = &proxy {
                proxy.served().await;
            }
            tracing::info!("ready");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = ready => {}
            () = server::stop_signal() => tracing::info!("stopping; rules stay until `waypost cleanup`"),
        }
        Ok(())
    })
}
