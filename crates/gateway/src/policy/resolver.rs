//! Addresses of servers for external authentication, and the CAs that verify them.
//!
//! In: where a URL leads. Out: the addresses of the host that may be used; TLS. Names are resolved by the machine, absolute,
//! by a limited number of threads, which all namespaces share.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::tls::RootsError;
use rustls::RootCertStore;
use tokio::net::lookup_host;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::Permits;
use super::destinations::Place;
use crate::limits::Limits;
use crate::tls::backend::{self, Expected};
use crate::upstream::Upstream;

/// Addresses of a host that are used.
const MAX_ADDRESSES: usize = 16;
/// Lookups at a time.
const MAX_LOOKUPS: usize = 16;
/// Time limit of a lookup.
const LOOKUP: Duration = Duration::from_secs(2);

/// Addresses of a name.
pub(super) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// What the hosts of all namespaces share.
pub(super) struct Resolver {
    lookups: Arc<Semaphore>,
    /// Asks the resolver of this machine.
    pub(super) ask: fn(String, u16) -> Found,
    pub(super) roots: OnceCell<Arc<RootCertStore>>,
    /// Reads the CAs of this machine.
    pub(super) read_roots: fn() -> Result<RootCertStore, RootsError>,
    pub(super) limits: Limits,
    pub(super) workers: usize,
    permits: Permits,
}

impl Resolver {
    pub(super) fn new(limits: Limits, workers: usize, permits: Permits) -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            ask: |name, port| Box::pin(async move { lookup_host((name, port)).await.map(Iterator::collect) }),
            roots: OnceCell::new(),
            read_roots: client::tls::system_roots,
            limits,
            workers,
            permits,
        }
    }

    /// Has an upstream use TLS; false while the CAs of this machine cannot be read.
    pub(super) async fn secure(&self, upstream: &Upstream, place: &Place) -> bool {
        if upstream.tls.load().is_some() {
            return true;
        }
        let Ok(roots) = self.roots.get_or_try_init(|| load(self.read_roots)).await else { return false };
        let expected = Expected { name: &place.host, names: &[], verify: true };
        upstream.tls.store(Some(Arc::new(backend::config(&expected, Arc::clone(roots), None))));
        true
    }

    /// The addresses of a place that may be used; none if it cannot be resolved. A lookup takes one of `places`, too.
    pub(super) async fn resolve(&self, place: &Place, places: &Arc<Semaphore>) -> Option<BTreeSet<SocketAddr>> {
        let all = match place.host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, place.port)],
            Err(_) => self.look_up(absolute(&place.host)?, place.port, places).await?,
        };
        Some(all.into_iter().filter(|address| (self.permits)(*address)).take(MAX_ADDRESSES).collect())
    }

    async fn look_up(&self, name: String, port: u16, places: &Arc<Semaphore>) -> Option<Vec<SocketAddr>> {
        let (own, shared, ask) = (Arc::clone(places), Arc::clone(&self.lookups), self.ask);
        let lookup = async {
            // In this order: who waits for a place of its own holds none of those that are shared.
            let turn = (own.acquire_owned().await.ok()?, shared.acquire_owned().await.ok()?);
            // A task, because the thread of a lookup keeps running when nobody waits for it any longer.
            let lookup = tokio::spawn(async move {
                let _turn = turn;
                ask(name, port).await
            });
            lookup.await.ok()?.ok()
        };
        timeout(LOOKUP, lookup).await.ok()?
    }
}

/// The CAs of this machine. Files are read, so this is done on another thread.
async fn load(read: fn() -> Result<RootCertStore, RootsError>) -> Result<Arc<RootCertStore>, ()> {
    let found = tokio::task::spawn_blocking(read).await.map_err(drop)?;
    found.map(Arc::new).map_err(|error| tracing::warn!(%error, "cannot read CAs of this machine"))
}

/// A name that the search path of the machine does not change: several labels, with a dot at the end.
fn absolute(host: &str) -> Option<String> {
    let is_name = host.contains('.') && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_name.then(|| format!("{host}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_absolute() {
        assert_eq!(absolute("auth.example").as_deref(), Some("auth.example."));
        for bad in ["auth", "localhost", "a b.example", "a.example/", "ä.example"] {
            assert_eq!(absolute(bad), None, "{bad}");
        }
    }
}
