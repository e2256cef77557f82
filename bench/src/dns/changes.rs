//! One change after the other, each written through the API and detected by queries.
//!
//! The endpoint of a headless Service moves: a single response shows where it is. A new Service has an address as soon as it is
//! known.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::http::{Client, Method};
use tokio::time::sleep;

use super::ask;
use super::{LISTEN, objects};
use crate::load::Work;
use crate::sentry::Sentry;

/// How long a change may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after each, in which whatever else it causes happens.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two queries: often enough to measure, rarely enough not to load the machine.
const BETWEEN: Duration = Duration::from_micros(100);

/// What changes came to.
#[derive(Debug, Default)]
pub struct Changes {
    /// How long the server took to answer the write of each.
    pub answered: Vec<Duration>,
    /// From sending each to the answer that shows it.
    pub visible: Vec<Duration>,
    /// From the answer to the write to the answer that shows it; zero when that came first.
    pub after: Vec<Duration>,
}

/// Moves the endpoint of the probe this many times. In the end it is where it was, if the number is even.
///
/// # Errors
/// When a write is refused or a change is not seen.
pub async fn moves(client: &mut Client, count: usize) -> anyhow::Result<Changes> {
    connect(client).await?;
    let (mut changes, name) = (Changes::default(), objects::probe_name());
    for round in 0..count {
        let (work, to) = objects::move_probe(round);
        let sentry = ask::post(LISTEN, &name, Some(vec![to]), BETWEEN).await?;
        changes.one(client, &work, sentry).await?;
    }
    Ok(changes)
}

/// Creates this number of Services, and removes each again.
///
/// # Errors
/// When a write is refused or a Service is not seen.
pub async fn services(client: &mut Client, count: usize) -> anyhow::Result<Changes> {
    connect(client).await?;
    let mut changes = Changes::default();
    for round in 0..count {
        let (name, at, create, delete) = objects::newcomer(round);
        let sentry = ask::post(LISTEN, &name, Some(vec![at]), BETWEEN).await?;
        changes.one(client, &create, sentry).await?;
        delete.send(client).await?;
    }
    Ok(changes)
}

impl Changes {
    async fn one(&mut self, client: &mut Client, work: &Work, sentry: Sentry) -> anyhow::Result<()> {
        anyhow::ensure!(!sentry.has_seen(), "what is to come was answered before it was written");
        let sent = Instant::now();
        work.send(client).await?;
        let answered = Instant::now();
        let visible = sentry.seen(TIMEOUT).await?;
        self.answered.push(answered - sent);
        self.visible.push(visible.saturating_duration_since(sent));
        self.after.push(visible.saturating_duration_since(answered));
        sleep(PAUSE).await;
        Ok(())
    }
}

/// The first request opens the connection.
async fn connect(client: &mut Client) -> anyhow::Result<()> {
    client.json(Method::GET, "/version", None).await.context("connecting").map(drop)
}
