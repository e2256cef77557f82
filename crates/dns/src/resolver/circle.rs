//! Upstreams that lead back to us.
//!
//! In: the upstreams of blocks that want it, and every question that arrives. Out: which upstreams are circles. Each upstream is sent
//! a question for a name that nobody else knows; when that question arrives here, the upstream asked us. It is then left
//! alone and said, and tried again later: the file it came from may be changed under us.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::Resolver;
use super::message::Outgoing;
use super::upstream::Upstream;
use crate::config::Name;

/// The type of the question, which hardly anybody asks for.
pub(super) const HINFO: u16 = 13;
/// How long the question may travel.
const TRAVEL: Duration = Duration::from_secs(2);
/// When a circle is looked at again.
const AGAIN: Duration = Duration::from_secs(30);
/// When an upstream that said nothing is looked at again: perhaps it is ourselves, and we do not serve yet.
const SOON: Duration = Duration::from_secs(1);

/// What came of a question.
enum Outcome {
    CameBack,
    Answered,
    Silence,
}

/// Names on their way.
#[derive(Default)]
pub(super) struct Circles {
    underway: Mutex<HashMap<Box<[u8]>, Arc<AtomicBool>>>,
}

impl Circles {
    /// Whether a question is one of ours that came back.
    pub(super) fn came_back(&self, lower: &[u8], qtype: u16) -> bool {
        if qtype != HINFO {
            return false;
        }
        let underway = self.underway.lock();
        let seen = underway.get(lower);
        if let Some(seen) = seen {
            seen.store(true, Ordering::Release);
        }
        seen.is_some()
    }

    /// Sends a question and sees whether it comes back.
    async fn try_round(&self, upstream: &Upstream, zone: &Name) -> Outcome {
        let labels = [fastrand::u64(..), fastrand::u64(..)].map(|number| format!("\x10{number:016x}"));
        let Ok(name) = Name::join(labels.concat().as_bytes(), zone) else { return Outcome::Answered };
        let seen = Arc::new(AtomicBool::new(false));
        let key: Box<[u8]> = name.as_wire().into();
        self.underway.lock().insert(key.clone(), seen.clone());
        let answered = upstream.try_once(&Outgoing::new(name, HINFO), TRAVEL).await;
        self.underway.lock().remove(&key);
        match (seen.load(Ordering::Acquire), answered) {
            (true, _) => Outcome::CameBack,
            (false, true) => Outcome::Answered,
            (false, false) => Outcome::Silence,
        }
    }
}

/// Watches the upstreams of a resolver.
pub(super) fn watch(resolver: &Arc<Resolver>) {
    for site in resolver.sites.iter() {
        for group in &site.groups {
            for upstream in &group.upstreams {
                if resolver.config.own.contains(&upstream.address) {
                    upstream.set_circle(Some("this is the address we serve at".into()));
                } else if site.block.detect_loop {
                    let zone = group.from.clone();
                    resolver.runtime.spawn(follow(Arc::downgrade(resolver), upstream.clone(), zone));
                }
            }
        }
    }
}

/// Looks until the upstream answers and is no circle.
async fn follow(resolver: Weak<Resolver>, upstream: Arc<Upstream>, zone: Name) {
    loop {
        let Some(strong) = resolver.upgrade() else { return };
        let outcome = strong.circles.try_round(&upstream, &zone).await;
        drop(strong);
        match outcome {
            Outcome::Answered => return upstream.set_circle(None),
            Outcome::Silence => sleep(SOON).await,
            Outcome::CameBack => {
                tracing::warn!(upstream = %upstream.address, "an upstream leads back to this server and is left out");
                upstream.set_circle(Some("it leads back to this server; name another upstream".into()));
                sleep(AGAIN).await;
            }
        }
    }
}
