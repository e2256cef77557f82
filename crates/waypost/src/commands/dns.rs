//! The DNS server of a machine, put together: watches and a configuration go in, answers and figures come out.
//!
//! `up` and `node` differ only in where objects come from and where it listens.

mod pages;
mod parts;
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

use self::pages::{Pages, Plan};
use self::parts::Builder;
pub(super) use self::service::publish;
use super::server;
use crate::config::DnsArguments;

/// Where `up` answers: the port of DNS is often taken on a machine that has users, and the Service leads here.
const UP_PORT: u16 = 10053;

/// A server that runs. Dropping it ends it.
pub(super) struct Dns {
    state: Arc<pages::State>,
    server: Server,
    _tasks: JoinSet<()>,
    /// Those that stay where they are; those of a Corefile are with whoever follows it.
    _pages: Option<Pages>,
}

impl Dns {
    /// Starts to listen; names are answered as soon as all of them are known.
    ///
    /// # Errors
    /// When the configuration cannot be used, or an address not be had.
    pub(super) async fn start(
        source: Arc<dyn Source>,
        arguments: &DnsArguments,
        domain: &str,
        listen: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let content = arguments.corefile.as_deref().map(dns::reload::read);
        let config = settings::config(content.as_ref(), arguments, domain)?;
        let listen = if content.is_some() { config.listen_addresses().map_err(anyhow::Error::msg)? } else { listen };
        let quirks = arguments.dns_quirks.into();
        let builder = Builder { source, domain: domain.to_owned(), listen: listen.clone(), quirks };
        let (parts, metrics) = builder.first(&config)?;
        let clients = settings::client_limits(arguments);
        let options = Options { listen: listen.clone(), clients, ..Options::default() };
        let listening = Server::start(parts.book.clone(), parts.resolver.clone(), metrics.clone(), &options).await;
        let server = listening.with_context(|| format!("listening for DNS on {listen:?}; choose with --dns-listen"))?;
        let figures = content.as_ref().map(|content| Arc::new(ReloadMetrics::new(&content.version)));
        let state = Arc::new(pages::State::new(parts, metrics, figures.clone()));
        let mut pages = Pages::new(state.clone());
        pages.follow(if content.is_some() { Plan::of_corefile(&config) } else { Plan::of_flags(arguments) }).await;
        let (mut tasks, mut pages) = (JoinSet::new(), Some(pages));
        if let (Some(path), Some(first), Some(figures)) = (&arguments.corefile, content, figures) {
            let taker =
                reload::Taker { builder, state: state.clone(), switch: server.handler_swap(), pages: pages.take() };
            reload::follow(&mut tasks, path, first, figures, taker);
        }
        tracing::info!(addresses = ?server.addresses(), domain, "DNS listening");
        Ok(Self { state, server, _tasks: tasks, _pages: pages })
    }

    /// Waits until every name is known.
    pub(super) async fn ready(&self) {
        self.state.parts().book.wait_ready().await;
    }

    /// Is not ready any more, and goes on answering for as long as the Corefile says (`lameduck`): whoever sends questions here
    /// has to hear of it first. Who is told to end once more ends at once.
    pub(super) async fn leave(&self) {
        let rest = self.state.leave();
        if rest.is_zero() {
            return;
        }
        tracing::info!(?rest, "told to end: not ready any more, and answering for a while");
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = server::stop_signal() => {}
        }
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }
}

/// Where to listen: as it was said, or else there; nowhere when that was said.
///
/// # Errors
/// When something that was said is no address with a port.
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
        said => said.iter().map(parse).collect(),
    }
}

/// The first address of each family that others on this machine's networks can reach; loopback where there is none.
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

/// By which addresses others may know a server that listens there: those that were named, and those that a wildcard stands for.
/// Loopback is a different machine for everybody.
fn known_as(listen: &[SocketAddr]) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let named = listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
    let mut others = Vec::new();
    if listen.iter().any(|at| at.ip().is_unspecified()) {
        let machine = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list());
        others.extend(machine.unwrap_or_default().iter().map(|address| address.ip).filter(|ip| !ip.is_loopback()));
    }
    (named.collect(), others)
}
