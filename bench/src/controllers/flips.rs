//! One Pod stops being ready, then is ready again; another one does; and so on, one change at a time.
//!
//! Of each change: how long the write took, and how long after it was sent the slice that shows it came through a watch.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::time::Instant;

use super::objects::Size;
use super::tracker::{Tracker, Writes};
use crate::subject::Running;

/// How long a change may take to show.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after each, in which whatever else it causes happens.
const PAUSE: Duration = Duration::from_millis(50);
/// After the last one.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Steps through the Services so that neighbours do not follow each other; a prime.
const STRIDE: usize = 7919;

/// What changes came to.
#[derive(Debug, Default)]
pub struct Flips {
    /// How long the server took to answer each write.
    pub answered: Vec<Duration>,
    /// From sending the write to the arrival of the slice.
    pub shown: Vec<Duration>,
    /// From the answer to the arrival of the slice; 0 when that came first.
    pub after: Vec<Duration>,
    /// All events they caused.
    pub writes: Writes,
    /// The processor time of all processes of the server.
    pub cpu: Duration,
}

/// Changes Pods this many times; in the end all are ready.
///
/// # Errors
/// When a write fails or does not show.
pub async fn measure(running: &Running, tracker: &mut Tracker, size: Size, count: usize) -> anyhow::Result<Flips> {
    let mut client = running.client();
    // The first request opens the connection.
    client.json(client::http::Method::GET, "/version", None).await.context("connecting")?;
    tracker.pause(LAST_PAUSE).await?;
    let (writes, cpu) = (tracker.writes(), running.cpu()?);
    let mut flips = Flips::default();
    for number in 0..count.next_multiple_of(2) {
        let (round, ready) = (number / 2, number % 2 == 1);
        let pod = size.pod(round * STRIDE % size.services, round * STRIDE % size.pods);
        let change = pod.turn(ready, Timestamp::now());
        let sent = Instant::now();
        let took = change.send(&mut client).await?;
        let shown = tracker.until_shown(&pod.name(), ready, TIMEOUT).await?;
        flips.answered.push(took);
        flips.shown.push(shown.saturating_duration_since(sent));
        flips.after.push(shown.saturating_duration_since(sent + took));
        tracker.pause(PAUSE).await?;
    }
    flips.cpu = running.cpu()?.saturating_sub(cpu);
    tracker.pause(LAST_PAUSE).await?;
    flips.writes = tracker.writes().since(writes);
    Ok(flips)
}
