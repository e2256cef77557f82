//! Equal questions go out once, and the answer is remembered.
//!
//! In: a question that is not (or no longer) known. Out: its answer, to everybody who waits for it. The journey is a task of
//! its own: a client that goes away does not take the answer from the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::answer::Answer;
use super::cache::{Entry, Key};
use super::forward::Nobody;
use super::message::{Extended, Outgoing, rcode};
use super::reply::Ttl;
use super::site::{Found, is_answer};
use super::stats::count;
use super::{Given, Resolver};
use crate::config::Name;

/// After a failure an old answer serves for so long before somebody is asked again.
const QUIET: Duration = Duration::from_secs(5);
/// The TTL of an answer given after its time (RFC 8767).
const STALE_TTL: u32 = 30;

/// What a journey brings.
type Brought = Result<Arc<Entry>, Nobody>;
/// Where to wait for it.
pub(super) type Waiting = watch::Receiver<Option<Brought>>;

impl Resolver {
    /// The answer to a question: from memory, from somebody, or an old one.
    pub(super) async fn ask(self: &Arc<Self>, site: usize, key: &Key) -> Result<Given, Nobody> {
        let now = (self.config.clock)();
        let store = self.sites[site].store(&key.name);
        let found = store.map_or(Found::Nothing, |store| store.find(key.as_ref(), now));
        let old = match found {
            Found::Fresh(entry) => return Ok(self.hit(site, key, entry, now)),
            Found::Stale(entry) => entry,
            Found::Nothing => {
                self.missed(site, key);
                return landed(self.journey(site, key)).await.map(|entry| Given::fresh(entry, None));
            }
        };
        self.missed(site, key);
        let quiet = old.millis(now) < old.quiet_until.load(std::sync::atomic::Ordering::Relaxed);
        let verify = store.is_some_and(|store| store.config.stale_verify);
        if !quiet {
            let waiting = self.journey(site, key);
            if verify
                && let Ok(Ok(entry)) = timeout(self.config.patience, landed(waiting)).await
                && is_answer(&entry.answer)
            {
                return Ok(Given::fresh(entry, None));
            }
            let until = old.millis(now) + u64::try_from(QUIET.as_millis()).unwrap_or(0);
            old.quiet_until.store(until, std::sync::atomic::Ordering::Relaxed);
        }
        if let Some(store) = store {
            count(&store.uses.stale);
        }
        let code = if old.answer.rcode == rcode::NXDOMAIN { Extended::STALE_NXDOMAIN } else { Extended::STALE };
        let extended = Some(Extended::new(code, "nobody knows a newer answer"));
        Ok(Given { entry: old, ttl: Ttl::Fixed(STALE_TTL), remembered: true, extended })
    }

    fn missed(&self, site: usize, key: &Key) {
        let store = self.sites[site].store(&key.name);
        count(store.map_or(&self.counters.misses, |store| &store.uses.misses));
    }

    /// An answer from memory; one that is asked for often is asked for anew before its end.
    pub(super) fn hit(&self, site: usize, key: &Key, entry: Arc<Entry>, now: std::time::Instant) -> Given {
        self.note_hit(site, key.as_ref(), &entry, now);
        let keep = self.sites[site].store.as_ref().is_some_and(|store| store.config.keep_ttl);
        let ttl = Ttl::Aged(if keep { 0 } else { entry.seconds(now) });
        Given { entry, ttl, remembered: true, extended: None }
    }

    /// Joins the journey for a question, or begins it.
    pub(super) fn journey(&self, site: usize, key: &Key) -> Waiting {
        let mut flights = self.flights.lock();
        let whole = (site, key.clone());
        if let Some(waiting) = flights.get(&whole) {
            count(&self.counters.coalesced);
            return waiting.clone();
        }
        let (sender, waiting) = watch::channel(None);
        flights.insert(whole.clone(), waiting.clone());
        drop(flights);
        let Some(resolver) = self.me.upgrade() else { return waiting };
        self.runtime.spawn(async move {
            let landing = Landing { resolver: &resolver, key: &whole };
            let brought = resolver.travel(whole.0, &whole.1).await;
            // First off the list: whoever asks after somebody has this answer must not be given it again as a new one.
            drop(landing);
            sender.send_replace(Some(brought));
        });
        waiting
    }

    async fn travel(&self, site: usize, key: &Key) -> Brought {
        let site = &self.sites[site];
        let nobody = |text| Nobody(Extended::new(Extended::NOT_AUTHORITATIVE, text));
        let group = site.group(&key.name).ok_or_else(|| nobody("nobody is named for this name"))?;
        let outgoing = Outgoing {
            name: Name::from_wire(&key.name).ok_or_else(|| nobody("the name is none"))?,
            qtype: key.qtype,
            qclass: key.qclass,
            recursion: true,
            dnssec: key.dnssec,
            checking_disabled: key.checking_disabled,
        };
        let answer = group.ask(outgoing, Instant::now() + self.config.total).await?;
        let now = (self.config.clock)();
        Ok(match site.store(&key.name) {
            Some(store) => store.remember(key, answer, now),
            None => Arc::new(Entry::new(Answer::pack(&key.name, &answer), now, Duration::ZERO)),
        })
    }
}

/// Waits for what a journey brings.
async fn landed(mut waiting: Waiting) -> Brought {
    let lost = || Nobody(Extended::new(Extended::NETWORK_ERROR, "the question was lost"));
    let brought = waiting.wait_for(Option::is_some).await.map_err(|_| lost())?;
    brought.clone().unwrap_or_else(|| Err(lost()))
}

/// Takes a journey off the list, however it ends.
struct Landing<'a> {
    resolver: &'a Resolver,
    key: &'a (usize, Key),
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.resolver.flights.lock().remove(self.key);
    }
}
