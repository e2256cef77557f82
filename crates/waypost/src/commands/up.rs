//! `waypost up`: everything on this machine, in one process: a server, and a proxy that reads its store.

use super::proxy::{Proxy, Surroundings};
use super::server;
use crate::config::UpArguments;

/// Runs the command.
pub(crate) fn exec(arguments: UpArguments) -> anyhow::Result<()> {
    let UpArguments { server: settings, proxy } = arguments;
    let settings = settings.for_one_machine();
    server::runtime()?.block_on(async {
        let running = server::start(&settings).await?;
        let around = Surroundings {
            source: &running.source(),
            kubeconfig: &running.kubeconfig,
            pods: &settings.cluster_cidr,
            // There may be no Node object that names its addresses.
            node_ports: "all",
        };
        let proxy = Proxy::start(&around, &proxy)?;
        let ready = async {
            if let Some(proxy) = &proxy {
                proxy.served().await;
            }
            tracing::info!(address = %running.address, kubeconfig = %running.kubeconfig.display(), "ready");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = ready => {}
            () = server::stop_signal() => {}
        }
        tracing::info!("stopping; rules stay until `waypost cleanup`");
        drop(proxy);
        running.stop().await;
        Ok(())
    })
}
