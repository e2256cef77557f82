//! A watch of the API that is read on its own task: what every event says of the status, and when it came.
//!
//! In: a collection. Out: the sightings so far.

use std::collections::HashMap;
use std::collections::hash_map::Values;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::lines::Lines;

/// The interval at which sightings are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What is known of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// The number of routes on all its listeners.
    pub attached: u64,
    /// Whether it is programmed.
    pub is_programmed: bool,
    /// How often it was modified.
    pub modified: usize,
}

/// The objects of a collection. Dropping it ends the watch.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Seen {
    objects: HashMap<String, Sighting>,
    /// When the last event came that changed a sighting otherwise than in its number.
    changed: Option<Instant>,
    has_ended: bool,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
    listeners: Vec<Listener>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Listener {
    attached_routes: u64,
}

impl Watch {
    /// Starts it.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn start(mut client: Client, collection: &str) -> anyhow::Result<Self> {
        let path = format!("{collection}?watch=1");
        let response = client.open(Method::GET, &path, None, Bytes::new()).await?;
        ensure!(response.status().as_u16() == 200, "a watch was answered with {}", response.status());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let (mut body, mut lines) = (response.into_body(), Lines::default());
            while let Some(Ok(frame)) = body.frame().await {
                lines.feed(&frame.into_data().unwrap_or_default(), |line| shared.lock().take(line));
            }
            shared.lock().has_ended = true;
            // The connection belongs to the client.
            drop(client);
        });
        Ok(Self { seen, task: task.abort_handle() })
    }

    /// What is known of an object.
    #[must_use]
    pub fn of(&self, name: &str) -> Sighting {
        self.seen.lock().objects.get(name).copied().unwrap_or_default()
    }

    /// How often objects were modified, all together.
    #[must_use]
    pub fn modified(&self) -> usize {
        self.seen.lock().objects.values().map(|one| one.modified).sum()
    }

    /// Waits until something holds for all objects together; when the event came that made it so.
    ///
    /// # Errors
    /// When it does not in time, or the watch ends.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(Values<'_, String, Sighting>) -> bool,
    ) -> anyhow::Result<Instant> {
        let begun = Instant::now();
        loop {
            {
                let seen = self.seen.lock();
                if holds(seen.objects.values()) {
                    return seen.changed.context("an event");
                }
                ensure!(!seen.has_ended, "the watch ended before it was so that {what}");
            }
            if begun.elapsed() > limit {
                bail!("after {limit:?} it was not yet so that {what}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn take(&mut self, line: &[u8]) {
        let Ok(Event { kind, object }) = serde_json::from_slice::<Event>(line) else { return };
        if kind == "DELETED" {
            self.objects.remove(&object.metadata.name);
            return;
        }
        let attached = object.status.listeners.iter().map(|listener| listener.attached_routes).sum();
        let mut conditions = object.status.conditions.iter();
        let is_programmed = conditions.any(|one| one.kind == "Programmed" && one.status == "True");
        let known = self.objects.entry(object.metadata.name).or_default();
        let modified = known.modified + usize::from(kind == "MODIFIED");
        if (known.attached, known.is_programmed) != (attached, is_programmed) {
            self.changed = Some(Instant::now());
        }
        *known = Sighting { attached, is_programmed, modified };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_what_the_status_says() {
        let mut seen = Seen::default();
        seen.take(br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#);
        seen.take(br#"{"type":"MODIFIED","object":{"metadata":{"name":"a"},"status":{"listeners":[{"attachedRoutes":2},{"attachedRoutes":1}],
            "conditions":[{"type":"Accepted","status":"True"},{"type":"Programmed","status":"True"}]}}}"#);
        seen.take(br#"{"type":"BOOKMARK""#);
        assert_eq!(seen.objects["a"], Sighting { attached: 3, is_programmed: true, modified: 1 });
        seen.take(br#"{"type":"DELETED","object":{"metadata":{"name":"a"}}}"#);
        assert!(seen.objects.is_empty());
    }
}
