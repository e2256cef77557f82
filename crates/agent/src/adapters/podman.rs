//! Containers of podman and docker, which speak the same language over a socket, as Pods.
//!
//! In: the list of containers that run, and what is told of each; events say when to look again. Out: all of them, whole, whenever something has
//! changed. Not every podman tells when the health of a container changes, so those that have one are looked at every few seconds. When the
//! socket goes away, containers may well go on: what was found stays until somebody answers again.

mod container;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::value::ValueExt as _;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::wire::{Events, WireError, get};
use super::{Found, Inbox, News};

/// How often containers with a health of their own are looked at.
const HEALTH: Duration = Duration::from_secs(2);
/// How often everything is looked at though nothing was heard.
const EVERYTHING: Duration = Duration::from_secs(30);
/// Events that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(50);
/// How long to wait for a socket that does not answer, at first and at most.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(15);

/// Follows the containers of a socket for ever.
pub async fn follow(how: &'static str, socket: PathBuf, inbox: Inbox) {
    let mut wait = FIRST;
    let mut told = false;
    loop {
        let begun = Instant::now();
        let Err(error) = listen(how, &socket, &inbox).await;
        if inbox.is_closed() {
            return;
        }
        // One that was well for a while is asked again soon.
        if begun.elapsed() > LONGEST {
            (wait, told) = (FIRST, false);
        }
        if !std::mem::replace(&mut told, true) {
            let advice = match how {
                api::adopted::PODMAN => {
                    "start it with `systemctl start podman.socket` or `podman system service --time=0`"
                }
                _ => "is docker running?",
            };
            tracing::warn!(%error, socket = %socket.display(), "{how} does not answer, its containers stay as they were; {advice}");
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST);
    }
}

/// Follows them until the connection is lost.
async fn listen(how: &'static str, socket: &Path, inbox: &Inbox) -> Result<std::convert::Infallible, WireError> {
    // First the events, then the list: what happens between the two is not missed.
    let mut events = Events::open(socket).await?;
    let mut shelf = Shelf { how, socket, known: BTreeMap::new() };
    shelf.look(None).await?;
    shelf.tell(inbox);
    tracing::info!(containers = shelf.known.len(), socket = %socket.display(), "containers of {how} are Pods");
    let mut health = interval(HEALTH);
    health.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut whole = Instant::now();
    loop {
        let mut stale = BTreeSet::new();
        tokio::select! {
            id = events.next() => {
                stale.insert(id?);
                let until = Instant::now() + TOGETHER;
                while let Ok(id) = tokio::time::timeout_at(until, events.next()).await {
                    stale.insert(id?);
                }
            }
            _ = health.tick() => stale.extend(shelf.with_health()),
        }
        let everything = whole.elapsed() >= EVERYTHING;
        if everything {
            whole = Instant::now();
        }
        if everything || !stale.is_empty() {
            shelf.look((!everything).then_some(&stale)).await?;
            shelf.tell(inbox);
        }
    }
}

/// The containers of a socket.
struct Shelf<'a> {
    how: &'static str,
    socket: &'a Path,
    /// What is told of each, by id.
    known: BTreeMap<String, Value>,
}

impl Shelf<'_> {
    /// Looks at the list, and at those of it that are new or named; at all of them when none are named.
    async fn look(&mut self, named: Option<&BTreeSet<String>>) -> Result<(), WireError> {
        let list = get(self.socket, "/containers/json").await?;
        let ids: BTreeSet<&str> = list.as_array().into_iter().flatten().map(|entry| entry.text("Id")).collect();
        self.known.retain(|id, _| ids.contains(id.as_str()));
        for id in ids {
            if named.is_some_and(|named| !named.contains(id)) && self.known.contains_key(id) {
                continue;
            }
            match get(self.socket, &format!("/containers/{id}/json")).await {
                Ok(told) => drop(self.known.insert(id.to_owned(), told)),
                // It went meanwhile.
                Err(WireError::Refused(404, _)) => drop(self.known.remove(id)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn with_health(&self) -> impl Iterator<Item = String> {
        self.known.iter().filter(|(_, told)| container::has_health(told)).map(|(id, _)| id.clone())
    }

    fn tell(&self, inbox: &Inbox) {
        let mut all: BTreeMap<(String, String), Found> = BTreeMap::new();
        for found in self.known.values().filter_map(|told| container::read(self.how, told)) {
            all.insert((found.draft.namespace.clone(), found.draft.name.clone()), found);
        }
        let _ = inbox.send(News::Found(self.how, all.into_values().collect()));
    }
}
