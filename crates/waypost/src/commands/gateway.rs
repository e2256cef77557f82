//! Wires the gateway of a machine: Services in, listeners, Events and redirects for the proxy out.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::sync::Arc;

use client::events::{EventRecorder, ObjectEvent};
use client::remote::Remote;
use client::watch::Source;
use gateway::{AccessLog, Limits, Notice, Settings};
use kernel::addresses::Addresses as _;
use plan::Redirect;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::config::{AccessLogArguments, IngressArguments, ProxyArguments, ProxyMode};

/// Event source component.
const COMPONENT: &str = "waypost-gateway";

/// A gateway, which may not run.
pub(super) struct Gateway(Option<gateway::Gateway>);

impl Gateway {
    /// Starts it, if the proxy of this machine serves addresses of load balancers (`balances`): packets for them come
    /// from other machines where they are announced, and from local Pods everywhere.
    pub(super) fn start(
        source: Arc<dyn Source>,
        remote: &Remote,
        (proxy, ingress, access_log): (&ProxyArguments, &IngressArguments, &AccessLogArguments),
        balances: bool,
    ) -> anyhow::Result<Self> {
        if !balances || proxy.proxy_mode == ProxyMode::None {
            return Ok(Self(None));
        }
        let node = super::agent::node_name(proxy.node_name.as_deref());
        let recorder = EventRecorder::start(remote, COMPONENT, &node);
        let access_log = access_log.open()?.map(Arc::new);
        access_log.iter().cloned().for_each(reopen_on_hangup);
        let settings = Settings {
            node,
            addresses: own_addresses(),
            limits: Limits::default(),
            ingress: ingress.options(),
            access_log,
            events: Arc::new(move |notice| recorder.record(finding(notice))),
        };
        let running = gateway::Gateway::start(source, settings)?;
        Ok(Self(Some(running)))
    }

    /// Redirects for the proxy. Where no gateway runs there are none, and the proxy rejects connections to its ports.
    pub(super) fn redirects(&self) -> watch::Receiver<Arc<BTreeSet<Redirect>>> {
        self.0.as_ref().map_or_else(|| watch::channel(Arc::default()).1, gateway::Gateway::redirects)
    }

    /// Its metrics, if it runs.
    pub(super) fn figures(&self) -> Option<gateway::GatewayMetrics> {
        self.0.as_ref().map(gateway::Gateway::metrics)
    }

    /// Drains connections.
    pub(super) async fn stop(self) {
        if let Some(running) = self.0 {
            running.stop().await;
        }
    }
}

/// Opens the file of the access log again on SIGHUP. On a terminal SIGHUP ends the process, as usual.
fn reopen_on_hangup(log: Arc<AccessLog>) {
    if std::io::stdin().is_terminal() {
        return;
    }
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => drop(tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                log.reopen();
            }
        })),
        Err(error) => tracing::warn!(%error, "SIGHUP: the access log cannot be reopened"),
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
