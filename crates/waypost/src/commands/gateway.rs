//! Wires the gateway of a machine: Services in, listeners, Events and redirects for the proxy out.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::events::{EventRecorder, ObjectEvent};
use client::remote::Remote;
use client::watch::Source;
use gateway::{AccessLog, Limits, Notice, OwnAddresses, Settings};
use kernel::addresses::Addresses as _;
use parking_lot::Mutex;
use plan::Redirect;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use super::proxy::Proxy;
use crate::config::{AccessLogArguments, IngressArguments, ProxyArguments, ProxyMode};

/// How long the addresses of this machine are used before they are read again.
const FRESH: Duration = Duration::from_secs(1);
/// How long the proxy may take to write the rules without redirects when the process stops.
const WITHDRAWAL_LIMIT: Duration = Duration::from_secs(5);
/// Event source component.
const COMPONENT: &str = "waypost-gateway";

/// A gateway, which may not run.
pub(super) struct Gateway(Option<gateway::Gateway>);

impl Gateway {
    /// Starts it, if a proxy with kernel rules runs on this machine (`proxies`): packets for addresses of load balancers come from
    /// other machines where they are announced, and from local Pods everywhere; those for cluster IPs from local Pods.
    pub(super) fn start(
        source: Arc<dyn Source>,
        remote: &Remote,
        (proxy, ingress, access_log): (&ProxyArguments, &IngressArguments, &AccessLogArguments),
        proxies: bool,
    ) -> anyhow::Result<Self> {
        if !proxies || proxy.proxy_mode == ProxyMode::None {
            return Ok(Self(None));
        }
        let node = super::agent::node_name(proxy.node_name.as_deref());
        let recorder = EventRecorder::start(remote, COMPONENT, &node);
        let access_log = access_log.open()?.map(Arc::new);
        access_log.iter().cloned().for_each(reopen_on_hangup);
        let settings = Settings {
            node,
            addresses: cached(FRESH, own_addresses),
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

    /// Drains connections. Cluster IPs lead to endpoints before the listeners close, if the proxy can see to it in time: its
    /// rules stay.
    pub(super) async fn stop(self, proxy: Option<&Proxy>) {
        let Some(running) = self.0 else { return };
        running.withdraw();
        if let Some(proxy) = proxy
            && timeout(WITHDRAWAL_LIMIT, proxy.health().wait_without_redirects()).await.is_err()
        {
            tracing::warn!("stopping with cluster IPs redirected: the proxy did not write its rules in time");
        }
        running.stop().await;
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

/// Addresses that are read again when they were read `fresh` ago. While they cannot be read, the last ones count.
fn cached(fresh: Duration, read: impl Fn() -> Option<Vec<IpAddr>> + Send + Sync + 'static) -> OwnAddresses {
    let known = Mutex::new((None::<Instant>, Vec::new()));
    Arc::new(move || {
        let mut known = known.lock();
        if known.0.is_none_or(|at| at.elapsed() >= fresh) {
            known.0 = Some(Instant::now());
            if let Some(found) = read() {
                known.1 = found;
            }
        }
        known.1.clone()
    })
}

/// The addresses by which others reach this machine, the first interface's first; none if they cannot be read.
fn own_addresses() -> Option<Vec<IpAddr>> {
    let known = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list());
    let known = known.map_err(|error| tracing::warn!(%error, "cannot read addresses of this machine")).ok()?;
    let is_fit = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut fit: Vec<_> = known.into_iter().filter(|address| is_fit(address.ip)).collect();
    fit.sort_by_key(|address| (address.interface, address.ip));
    Some(fit.into_iter().map(|address| address.ip).collect())
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::*;

    /// An address that is another one each time; every third time it cannot be read.
    fn changing() -> impl Fn() -> Option<Vec<IpAddr>> + Send + Sync + 'static {
        let count = AtomicU8::new(0);
        move || match count.fetch_add(1, Relaxed) {
            count if count % 3 == 2 => None,
            count => Some(vec![[192, 0, 2, count].into()]),
        }
    }

    #[test]
    fn addresses_of_this_machine_are_followed() {
        let take = |addresses: OwnAddresses| [(); 4].map(|()| addresses());
        let all = |numbers: [u8; 4]| numbers.map(|number| vec![IpAddr::from([192, 0, 2, number])]);
        assert_eq!(take(cached(Duration::ZERO, changing())), all([0, 1, 1, 3]));
        assert_eq!(take(cached(Duration::from_secs(3600), changing())), all([0; 4]));
    }
}
