//! The gateway of a machine, put together: Services come in, listeners and Events come out, and the proxy is told where they are.

use std::net::IpAddr;
use std::sync::Arc;

use client::events::{EventRecorder, ObjectEvent};
use client::remote::Remote;
use client::watch::Source;
use gateway::split::Split;
use gateway::{Limits, Notice, Settings};
use kernel::addresses::Addresses as _;

use crate::config::{ProxyArguments, ProxyMode};

/// As whom we speak in Events.
const COMPONENT: &str = "waypost-gateway";

/// A gateway, which may not run.
pub(super) struct Gateway {
    running: Option<gateway::Gateway>,
    node: String,
}

impl Gateway {
    /// Starts it, if this machine has load balancers' addresses (`announces`).
    pub(super) fn start(
        source: Arc<dyn Source>,
        remote: &Remote,
        proxy: &ProxyArguments,
        announces: bool,
    ) -> anyhow::Result<Self> {
        let node = super::agent::node_name(proxy.node_name.as_deref());
        if !announces || proxy.proxy_mode == ProxyMode::None {
            return Ok(Self { running: None, node });
        }
        let recorder = EventRecorder::start(remote, COMPONENT, &node);
        let settings = Settings {
            node: node.clone(),
            addresses: own_addresses(),
            limits: Limits::default(),
            events: Arc::new(move |notice| recorder.record(finding(notice))),
        };
        let running = gateway::Gateway::start(source, settings).map_err(|why| anyhow::anyhow!(why))?;
        Ok(Self { running: Some(running), node })
    }

    /// What the proxy is to hear in place of this source. Where no gateway runs, what it should serve is refused: whoever asked for TLS
    /// does not get pods without it.
    pub(super) fn seen<'a>(&self, source: &'a dyn Source) -> Split<'a> {
        let listening = match &self.running {
            Some(running) => running.listening(),
            None => tokio::sync::watch::channel(Arc::default()).1,
        };
        Split::new(source, &self.node, listening)
    }

    /// What it counts, if it runs.
    pub(super) fn figures(&self) -> Option<gateway::GatewayMetrics> {
        self.running.as_ref().map(gateway::Gateway::metrics)
    }

    /// Lets connections end.
    pub(super) async fn stop(self) {
        if let Some(running) = self.running {
            running.stop().await;
        }
    }
}

/// The addresses by which others reach this machine, the first interface's first.
fn own_addresses() -> Vec<IpAddr> {
    let known = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list()).unwrap_or_default();
    let is_fit = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut fit: Vec<_> = known.into_iter().filter(|address| is_fit(address.ip)).collect();
    fit.sort_by_key(|address| (address.interface, address.ip));
    fit.into_iter().map(|address| address.ip).collect()
}

/// A notice as an Event of its Service.
fn finding(notice: Notice) -> ObjectEvent {
    ObjectEvent {
        kind: &api::kinds::service::KIND,
        namespace: notice.namespace,
        name: notice.name,
        uid: String::new(),
        normal: false,
        reason: notice.reason,
        message: notice.message,
    }
}
