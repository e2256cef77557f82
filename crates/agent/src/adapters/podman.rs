//! Adapter for containers of podman and docker, which serve the same API on a socket.
//!
//! In: the list of running containers, the inspection of each, and events. Out: the full list, whenever something changed. Not every podman
//! reports health changes as events, so containers with a health check are polled. While the socket is unavailable the last list stays: the
//! containers may still run.

mod container;
mod http;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::value::ValueExt as _;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::http::{Events, SocketError, get};
use super::{AdapterEvent, Discovered, Queue};

/// How often containers with a health check are polled.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);
/// How often all containers are listed and inspected.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);
/// Events within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Backoff of reconnects, doubled from the minimum to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Watches the containers of a socket; reconnects with backoff.
pub async fn watch_socket(how: &'static str, socket: PathBuf, queue: Queue) {
    let mut wait = MIN_BACKOFF;
    let mut reported = false;
    loop {
        let begun = Instant::now();
        let Err(error) = sync(how, &socket, &queue).await;
        if queue.is_closed() {
            return;
        }
        // The backoff is reset after a connection that lasted.
        if begun.elapsed() > MAX_BACKOFF {
            (wait, reported) = (MIN_BACKOFF, false);
        }
        if !std::mem::replace(&mut reported, true) {
            let advice = match how {
                api::adopted::PODMAN => {
                    "start it with `systemctl start podman.socket` or `podman system service --time=0`"
                }
                _ => "is docker running?",
            };
            tracing::warn!(%error, socket = %socket.display(), "{how} is unavailable, its Pods are left unchanged; {advice}");
        }
        sleep(wait).await;
        wait = (wait * 2).min(MAX_BACKOFF);
    }
}

/// Lists and watches containers until the connection is lost.
async fn sync(how: &'static str, socket: &Path, queue: &Queue) -> Result<std::convert::Infallible, SocketError> {
    // Subscribe before listing, so that no change in between is missed.
    let mut events = Events::open(socket).await?;
    let mut containers = Containers { how, socket, known: BTreeMap::new() };
    containers.refresh(None).await?;
    containers.publish(queue);
    tracing::info!(containers = containers.known.len(), socket = %socket.display(), "adopting containers of {how}");
    let mut health = interval(HEALTH_INTERVAL);
    health.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut whole = Instant::now();
    loop {
        let mut stale = BTreeSet::new();
        tokio::select! {
            id = events.next() => {
                stale.insert(id?);
                let until = Instant::now() + DEBOUNCE;
                while let Ok(id) = tokio::time::timeout_at(until, events.next()).await {
                    stale.insert(id?);
                }
            }
            _ = health.tick() => stale.extend(containers.with_health()),
        }
        let everything = whole.elapsed() >= RELIST_INTERVAL;
        if everything {
            whole = Instant::now();
        }
        if everything || !stale.is_empty() {
            containers.refresh((!everything).then_some(&stale)).await?;
            containers.publish(queue);
        }
    }
}

/// The containers of a socket.
struct Containers<'a> {
    how: &'static str,
    socket: &'a Path,
    /// Inspection results by container ID.
    known: BTreeMap<String, Value>,
}

impl Containers<'_> {
    /// Lists containers and inspects those that are new or named; all of them with `None`.
    async fn refresh(&mut self, named: Option<&BTreeSet<String>>) -> Result<(), SocketError> {
        let list = get(self.socket, "/containers/json").await?;
        let ids: BTreeSet<&str> = list.as_array().into_iter().flatten().map(|entry| entry.text("Id")).collect();
        self.known.retain(|id, _| ids.contains(id.as_str()));
        for id in ids {
            if named.is_some_and(|named| !named.contains(id)) && self.known.contains_key(id) {
                continue;
            }
            match get(self.socket, &format!("/containers/{id}/json")).await {
                Ok(inspected) => drop(self.known.insert(id.to_owned(), inspected)),
                // Removed between list and inspection.
                Err(SocketError::Refused(404, _)) => drop(self.known.remove(id)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn with_health(&self) -> impl Iterator<Item = String> {
        self.known.iter().filter(|(_, inspected)| container::has_health(inspected)).map(|(id, _)| id.clone())
    }

    fn publish(&self, queue: &Queue) {
        let mut all: BTreeMap<(String, String), Discovered> = BTreeMap::new();
        for found in self.known.values().filter_map(|inspected| container::read(self.how, inspected)) {
            all.insert((found.draft.namespace.clone(), found.draft.name.clone()), found);
        }
        let _ = queue.send(AdapterEvent::Discovered(self.how, all.into_values().collect()));
    }
}
