//! Wiring of the DNS server of a machine: watches and a configuration in, listeners and metrics out.
//!
//! `up` and `node` differ only in the source of objects and the listen addresses.

mod components;
mod http;
mod reload;
mod service;
mod settings;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use client::watch::Source;
use dns::reload::ReloadMetrics;
use dns::serve::{Options, Server};
use kernel::addresses::Addresses as _;
use tokio::task::JoinSet;

use self::components::Builder;
use self::http::{Endpoints, HttpListeners};
pub(super) use self::service::publish;
use super::server;
use crate::config::DnsArguments;

/// The DNS port of `up`: port 53 is often taken by the resolver of the host, and the Service forwards here.
const UP_PORT: u16 = 10053;

/// A running server. Dropping it stops it.
pub(super) struct Dns {
    state: Arc<http::State>,
    server: Server,
    _tasks: JoinSet<()>,
    /// The HTTP listeners without a Corefile; with one, the reload task owns them.
    _listeners: Option<HttpListeners>,
}

impl Dns {
    /// Opens the listeners; queries are answered once the zone is synced.
    ///
    /// # Errors
    /// When the configuration is invalid, or an address is not available.
    pub(super) async fn start(
        source: Arc<dyn Source>,
        arguments: &DnsArguments,
        domain: &str,
        listen: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let content = arguments.corefile.as_deref().map(dns::reload::read);
        let config = settings::config(content.as_ref(), arguments, domain)?;
        let listen = if content.is_some() { config.listen_addresses()? } else { listen };
        let quirks = arguments.dns_quirks.into();
        let builder = Builder { source, domain: domain.to_owned(), listen: listen.clone(), quirks };
        let (components, metrics) = builder.first(&config)?;
        let clients = settings::client_limits(arguments);
        let options = Options { listen: listen.clone(), clients, ..Options::default() };
        let listening =
            Server::start(components.snapshot.clone(), components.resolver.clone(), metrics.clone(), &options).await;
        let server = listening.with_context(|| format!("listening for DNS on {listen:?}; choose with --dns-listen"))?;
        let reload_metrics = content.as_ref().map(|content| Arc::new(ReloadMetrics::new(&content.version)));
        let state = Arc::new(http::State::new(components, metrics, reload_metrics.clone()));
        let mut listeners = HttpListeners::new(state.clone());
        listeners
            .follow(if content.is_some() { Endpoints::of_corefile(&config) } else { Endpoints::of_flags(arguments) })
            .await;
        let (mut tasks, mut listeners) = (JoinSet::new(), Some(listeners));
        if let (Some(path), Some(first), Some(metrics)) = (&arguments.corefile, content, reload_metrics) {
            let applier = reload::ConfigApplier {
                builder,
                state: state.clone(),
                switch: server.handler_swap(),
                listeners: listeners.take(),
            };
            reload::follow(&mut tasks, path, first, metrics, applier);
        }
        tracing::info!(addresses = ?server.addresses(), domain, "DNS listening");
        Ok(Self { state, server, _tasks: tasks, _listeners: listeners })
    }

    /// Waits until the zone is synced.
    pub(super) async fn ready(&self) {
        self.state.components().snapshot.wait_ready().await;
    }

    /// Reports not ready and continues to answer for the `lameduck` duration of the Corefile, so that clients can move. A second
    /// signal ends this at once.
    pub(super) async fn drain(&self) {
        let rest = self.state.drain();
        if rest.is_zero() {
            return;
        }
        tracing::info!(?rest, "stopping DNS: not ready, still answering queries");
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = server::stop_signal() => {}
        }
    }

    /// Its listen addresses.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }
}

/// The listen addresses: those of the flag, or a default; empty for `none`.
///
/// # Errors
/// When one is not an address with a port.
pub(super) fn listen(
    arguments: &DnsArguments,
    otherwise: impl FnOnce() -> Vec<SocketAddr>,
) -> anyhow::Result<Vec<SocketAddr>> {
    let parse = |text: &String| {
        text.parse().with_context(|| format!("--dns-listen {text}: expected IP:PORT, such as 127.0.0.1:53, or none"))
    };
    match &arguments.dns_listen[..] {
        [] => Ok(otherwise()),
        [none] if none == "none" => Ok(Vec::new()),
        listed => listed.iter().map(parse).collect(),
    }
}

/// The first non-loopback address of each family; loopback where there is none.
pub(super) fn own_addresses() -> Vec<SocketAddr> {
    let known = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list()).unwrap_or_default();
    let is_public = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let first = |v4: bool| {
        let fit = known.iter().filter(|address| address.ip.is_ipv4() == v4 && is_public(address.ip));
        fit.min_by_key(|address| address.interface).map(|address| SocketAddr::new(address.ip, UP_PORT))
    };
    let found: Vec<SocketAddr> = [first(true), first(false)].into_iter().flatten().collect();
    if found.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], UP_PORT))] } else { found }
}

/// The addresses by which other machines reach a server that listens there: the named ones, and those of a wildcard. Loopback
/// addresses are omitted.
fn known_as(listen: &[SocketAddr]) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let named = listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
    let mut others = Vec::new();
    if listen.iter().any(|at| at.ip().is_unspecified()) {
        let machine = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list());
        others.extend(machine.unwrap_or_default().iter().map(|address| address.ip).filter(|ip| !ip.is_loopback()));
    }
    (named.collect(), others)
}
