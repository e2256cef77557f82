//! Servers for external authentication that are not Services: their addresses, and connections to them.
//!
//! In: scheme, host and port of a URL. Out: an upstream with the addresses of the host that may be used. They are
//! resolved once for all requests that wait for them; nothing is resolved for each request. The number of hosts that are
//! remembered is limited, because a URL may depend on the request. Each namespace has hosts and places for lookups of its
//! own: one that fills them, or whose name servers are slow, does not delay the requests of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::Uri;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use super::external_auth::is_tls;
use super::resolver::Resolver;
use crate::clock::Clock;
use crate::endpoints::EndpointSet;
use crate::upstream::{Counters, Upstream};

/// Hosts that are remembered for a namespace.
const MAX_HOSTS: usize = 128;
/// Lookups at a time for a namespace.
const MAX_LOOKUPS: usize = 4;
/// How long addresses are used.
const LIFETIME: Duration = Duration::from_secs(30);
/// How long nothing is looked up after a lookup without result.
const PAUSE: Duration = Duration::from_secs(3);

/// Where a URL leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) is_tls: bool,
    /// In lower case, without brackets and final dot.
    pub(super) host: Box<str>,
    pub(super) port: u16,
}

/// All hosts that are known for the rules of a namespace.
pub(super) struct Destinations {
    known: Mutex<HashMap<Place, Arc<Destination>>>,
    /// Order of use.
    clock: AtomicU64,
    lookups: Arc<Semaphore>,
    resolver: Arc<Resolver>,
}

struct Destination {
    upstream: Arc<Upstream>,
    used: AtomicU64,
    /// None before the first lookup.
    lookup: AsyncMutex<Option<Lookup>>,
}

/// A lookup of addresses.
#[derive(Clone, Copy)]
struct Lookup {
    at: Instant,
    /// How long what was found is used.
    lifetime: Duration,
}

impl Place {
    /// Where a URL leads, if that is well-formed and has no user name.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let (is_tls, authority) = (is_tls(uri)?, uri.authority()?);
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // What follows the host is no port, such as 99999.
            None if authority.as_str() != authority.host() => return None,
            None => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
        };
        (!host.is_empty() && port != 0).then(|| Self { is_tls, host: host.to_ascii_lowercase().into(), port })
    }
}

impl Destinations {
    pub(super) fn new(resolver: &Arc<Resolver>) -> Self {
        Self {
            known: Mutex::default(),
            clock: AtomicU64::new(0),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            resolver: Arc::clone(resolver),
        }
    }

    /// The upstream of a place; none if it has no address that may be used.
    pub(super) async fn find(&self, place: &Place) -> Option<Arc<Upstream>> {
        let destination = self.known(place).unwrap_or_else(|| self.insert(place));
        let mut lookup = destination.lookup.lock().await;
        if lookup.is_none_or(|last| last.at.elapsed() >= last.lifetime) {
            // Without CAs there is no address: a connection to it would be without TLS, or fail.
            let resolver = &self.resolver;
            let is_secure = !place.is_tls || resolver.secure(&destination.upstream, place).await;
            let found = if is_secure { resolver.resolve(place, &self.lookups).await } else { None };
            let has_some = found.as_ref().is_some_and(|usable| !usable.is_empty());
            let lifetime = if has_some { LIFETIME } else { PAUSE };
            *lookup = Some(Lookup { at: Instant::now(), lifetime });
            // What was found before is better than nothing, unless it may not be used any longer.
            if let Some(usable) = found {
                destination.upstream.update(&EndpointSet { usable, elsewhere: 0 }, resolver.workers);
            }
        }
        drop(lookup);
        let has_address = !destination.upstream.backends.load().all().is_empty();
        has_address.then(|| Arc::clone(&destination.upstream))
    }

    /// Has the addresses of a place looked up soon: the server there did not answer as expected.
    pub(super) fn doubt(&self, place: &Place) {
        let Some(destination) = self.known(place) else { return };
        // Otherwise a lookup is on the way.
        if let Ok(mut lookup) = destination.lookup.try_lock()
            && let Some(last) = lookup.as_mut()
        {
            last.lifetime = PAUSE;
        }
    }

    /// Closes connections that are idle since before `before`.
    pub(super) fn sweep(&self, before: Instant) {
        let all: Vec<_> = self.known.lock().values().cloned().collect();
        all.iter().for_each(|one| one.upstream.sweep(before));
    }

    /// What is known of a place.
    fn known(&self, place: &Place) -> Option<Arc<Destination>> {
        let known = self.known.lock();
        let destination = known.get(place)?;
        destination.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        Some(Arc::clone(destination))
    }

    /// A place that is known from now on. The one that was not used for the longest time makes room.
    fn insert(&self, place: &Place) -> Arc<Destination> {
        let now = self.clock.fetch_add(1, Relaxed);
        let mut known = self.known.lock();
        if let Some(destination) = known.get(place) {
            return Arc::clone(destination);
        }
        if known.len() >= MAX_HOSTS {
            let oldest = known.iter().min_by_key(|(_, one)| one.used.load(Relaxed)).map(|(place, _)| place.clone());
            oldest.iter().for_each(|place| drop(known.remove(place)));
        }
        // It is named in messages of error pages, which no client sees.
        let upstream = Arc::new(Upstream::new(
            &place.host,
            false,
            self.resolver.limits,
            None,
            Counters::default(),
            Clock::default(),
        ));
        let (used, lookup) = (AtomicU64::new(now), AsyncMutex::default());
        let destination = Arc::new(Destination { upstream, used, lookup });
        known.insert(place.clone(), Arc::clone(&destination));
        destination
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::AtomicBool;

    use client::tls::RootsError;
    use rustls::RootCertStore;
    use tokio::sync::Notify;

    use super::*;
    use crate::limits::Limits;

    fn place(url: &str) -> Option<Place> {
        Place::of(&url.parse().ok()?)
    }

    fn resolver(permits: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Resolver {
        Resolver::new(Limits::default(), 1, Box::new(permits))
    }

    fn destinations(permits: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Destinations {
        Destinations::new(&Arc::new(resolver(permits)))
    }

    #[test]
    fn urls_lead_to_places() {
        let some = |is_tls, host: &str, port| Some(Place { is_tls, host: host.into(), port });
        for (url, expected) in [
            ("http://Auth.Example/x", some(false, "auth.example", 80)),
            ("https://auth.example./", some(true, "auth.example", 443)),
            ("https://auth.example:8443", some(true, "auth.example", 8443)),
            ("http://[2001:db8::1]:80/", some(false, "2001:db8::1", 80)),
            ("http://a@auth.example/", None),
            ("http://auth.example:0/", None),
            ("http://auth.example:99999/", None),
            ("ftp://auth.example/", None),
            ("/relative", None),
            ("auth.example", None),
        ] {
            assert_eq!(place(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn addresses_that_are_not_permitted_are_not_used() {
        let [good, bad] = ["http://192.0.2.1:80/", "http://127.0.0.1:80/"].map(|url| place(url).expect("a place"));
        let all = destinations(|address| crate::policy::may_connect(address, &[]));
        let upstream = all.find(&good).await.expect("an upstream");
        assert!(Arc::ptr_eq(&upstream, &all.find(&good).await.expect("an upstream")), "connections are shared");
        assert!(all.find(&bad).await.is_none());
    }

    #[tokio::test]
    async fn addresses_that_are_no_longer_permitted_are_given_up() {
        let is_own = Arc::new(AtomicBool::new(false));
        let permits = Arc::clone(&is_own);
        let all = destinations(move |_| !permits.load(Relaxed));
        let place = place("http://192.0.2.1/").expect("a place");
        assert!(all.find(&place).await.is_some());
        is_own.store(true, Relaxed);
        *all.known(&place).expect("a destination").lookup.lock().await = None;
        assert!(all.find(&place).await.is_none());
    }

    #[tokio::test]
    async fn a_place_with_tls_has_no_upstream_until_cas_can_be_read() {
        static IS_READABLE: AtomicBool = AtomicBool::new(false);
        let mut resolver = resolver(|_| true);
        resolver.read_roots = || match IS_READABLE.load(Relaxed) {
            true => Ok(RootCertStore::empty()),
            false => Err(RootsError::NoSystemBundle),
        };
        let all = Destinations::new(&Arc::new(resolver));
        let [secure, plain] = ["https://192.0.2.1/", "http://192.0.2.1/"].map(|url| place(url).expect("a place"));
        assert!(all.find(&secure).await.is_none() && all.find(&plain).await.is_some());
        let lookup = all.known(&secure).expect("a destination").lookup.lock().await.expect("a lookup");
        assert_eq!(lookup.lifetime, PAUSE, "they are not read for each request");
        IS_READABLE.store(true, Relaxed);
        assert!(all.find(&secure).await.is_none());
        *all.known(&secure).expect("a destination").lookup.lock().await = None;
        let upstream = all.find(&secure).await.expect("an upstream");
        assert!(upstream.tls.load().is_some());
    }

    #[tokio::test]
    async fn addresses_that_do_not_answer_are_looked_up_again_after_a_pause() {
        let all = destinations(|_| true);
        let place = place("http://192.0.2.1/").expect("a place");
        all.doubt(&place);
        assert!(all.known(&place).is_none(), "what is not known is not remembered for that");
        assert!(all.find(&place).await.is_some());
        let destination = all.known(&place).expect("a destination");
        let first = destination.lookup.lock().await.expect("a lookup");
        assert_eq!(first.lifetime, LIFETIME);
        all.doubt(&place);
        let doubted = destination.lookup.lock().await.expect("a lookup");
        assert_eq!((doubted.at, doubted.lifetime), (first.at, PAUSE));
    }

    #[tokio::test]
    async fn hosts_without_tls_do_not_wait_until_cas_are_read() {
        let all = Arc::new(destinations(|_| true));
        let (begun, read) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let reading = tokio::spawn({
            let (all, begun, read) = (Arc::clone(&all), Arc::clone(&begun), Arc::clone(&read));
            async move {
                let slow = async {
                    begun.notify_one();
                    read.notified().await;
                    Arc::new(RootCertStore::empty())
                };
                all.resolver.roots.get_or_init(|| slow).await;
            }
        });
        begun.notified().await;
        let secure = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.find(&place("https://192.0.2.1/").expect("a place")).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(all.find(&place("http://192.0.2.2/").expect("a place")).await.is_some());
        assert!(!secure.is_finished());
        read.notify_one();
        assert!(secure.await.expect("a task"));
        reading.await.expect("a task");
    }

    #[tokio::test]
    async fn the_number_of_hosts_is_limited() {
        let all = destinations(|_| true);
        let first = place("http://192.0.2.1/").expect("a place");
        let kept = all.find(&first).await.expect("an upstream");
        for port in 1..=u16::try_from(2 * MAX_HOSTS).expect("a port") {
            all.find(&Place { port, ..first.clone() }).await.expect("an upstream");
            all.find(&first).await.expect("an upstream");
        }
        assert_eq!(all.known.lock().len(), MAX_HOSTS);
        assert!(Arc::ptr_eq(&kept, &all.find(&first).await.expect("an upstream")), "the one in use stays");
    }

    #[tokio::test]
    async fn slow_lookups_of_one_namespace_do_not_delay_those_of_another() {
        let mut resolver = resolver(|_| true);
        resolver.ask = |name, _| match name.starts_with("slow") {
            true => Box::pin(std::future::pending()),
            false => Box::pin(async { Ok(vec![SocketAddr::from(([192, 0, 2, 1], 80))]) }),
        };
        let resolver = Arc::new(resolver);
        let [loud, quiet] = [(), ()].map(|()| Arc::new(Destinations::new(&resolver)));
        let name = |text: &str| place(&format!("http://{text}.example/")).expect("a place");
        for number in 0..100 {
            let (loud, name) = (Arc::clone(&loud), name(&format!("slow{number}")));
            tokio::spawn(async move { loud.find(&name).await.is_some() });
        }
        tokio::task::yield_now().await;
        assert_eq!(loud.lookups.available_permits(), 0, "its own places are taken");
        assert!(quiet.find(&name("auth")).await.is_some());
    }
}
