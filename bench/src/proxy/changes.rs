//! One change after the other, each written through the API and awaited by real connections.
//!
//! An endpoint moves from an open port to a closed one, or back: a single connection shows whether the kernel already
//! applies the change. For additions, endpoints with closed ports join one with an open port: the first refusal shows it,
//! after two connections on average at most. A new Service is two writes, itself and its slice.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::http::{Client, Method};
use tokio::time::sleep;

use super::caller::{self, Outcome};
use super::objects::{HERE, PROBES, Probe, THERE};
use super::running::Running;
use super::stage::Seat;
use crate::load::Work;

/// How long a change may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause after each, in which whatever else it causes happens.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two calls: often enough to measure, rarely enough not to load the machine.
const BETWEEN_CALLS: Duration = Duration::from_micros(100);
/// How long the endpoint change of a restart may be behind the API.
const SETTLE: Duration = Duration::from_secs(1);

/// What changes came to.
#[derive(Debug, Default)]
pub struct Changes {
    /// How long the server took to answer the writes of each.
    pub answered: Vec<Duration>,
    /// From sending the first write to the first connection that was led by it.
    pub effective: Vec<Duration>,
    /// From the answer to the last write to that connection; 0 when that came first.
    pub after: Vec<Duration>,
    /// The processor time of the proxy.
    pub cpu: Duration,
}

/// The writer of changes, and the client that detects them.
pub struct Hand<'a> {
    /// Sends the writes.
    pub client: Client,
    /// Where the proxy is.
    pub seat: &'a Seat,
    /// The proxy.
    pub running: &'a Running<'a>,
}

impl Hand<'_> {
    /// Moves endpoints this many times, an even number; in the end all are where they were.
    ///
    /// # Errors
    /// When a write fails or does not take effect.
    pub async fn moves(&mut self, count: usize) -> anyhow::Result<Changes> {
        self.connect().await?;
        let (mut changes, cpu) = (Changes::default(), self.running.cpu()?);
        for number in 0..count.next_multiple_of(2) {
            let probe = Probe::standing(number / 2 % PROBES);
            let (to, outcome) = if number % 2 == 0 { (THERE, Outcome::Refused) } else { (HERE, Outcome::Accepted) };
            self.one(&probe, &[probe.lead_to(&[to])], outcome, &mut changes).await?;
        }
        changes.cpu = self.running.cpu()?.saturating_sub(cpu);
        Ok(changes)
    }

    /// Adds endpoints to one Service after the other, this many times, and removes them again, which is not timed.
    ///
    /// # Errors
    /// When a write fails or does not take effect.
    pub async fn joins(&mut self, count: usize, more: &[Ipv4Addr]) -> anyhow::Result<Changes> {
        self.connect().await?;
        let mut changes = Changes::default();
        let all = [&[HERE], more].concat();
        for number in 0..count {
            let probe = Probe::standing(number % PROBES);
            let cpu = self.running.cpu()?;
            self.one(&probe, &[probe.lead_to(&all)], Outcome::Refused, &mut changes).await?;
            changes.cpu += self.running.cpu()?.saturating_sub(cpu);
            // The next one to join is another's: when it is this one's turn again, nothing is left of this.
            probe.lead_to(&[HERE]).send(&mut self.client).await?;
            sleep(PAUSE).await;
        }
        sleep(SETTLE).await;
        Ok(changes)
    }

    /// Creates this number of Services; and removes them.
    ///
    /// # Errors
    /// When a write fails or does not take effect.
    pub async fn services(&mut self, count: usize) -> anyhow::Result<Changes> {
        self.connect().await?;
        let (mut changes, cpu) = (Changes::default(), self.running.cpu()?);
        for probe in (0..count).map(Probe::new) {
            self.one(&probe, &probe.create(), Outcome::Accepted, &mut changes).await?;
        }
        changes.cpu = self.running.cpu()?.saturating_sub(cpu);
        for probe in (0..count).map(Probe::new) {
            for work in probe.delete() {
                work.send(&mut self.client).await?;
            }
        }
        sleep(SETTLE).await;
        Ok(changes)
    }

    async fn one(
        &mut self,
        probe: &Probe,
        writes: &[Work],
        wanted: Outcome,
        changes: &mut Changes,
    ) -> anyhow::Result<()> {
        let sentry = caller::post(&self.seat.client, probe.vip(), wanted, BETWEEN_CALLS).await?;
        let sent = Instant::now();
        for work in writes {
            work.send(&mut self.client).await?;
        }
        let answered = Instant::now();
        let effective = sentry.seen(TIMEOUT).await?;
        changes.answered.push(answered - sent);
        changes.effective.push(effective.saturating_duration_since(sent));
        changes.after.push(effective.saturating_duration_since(answered));
        sleep(PAUSE).await;
        Ok(())
    }

    /// The first request opens the connection.
    async fn connect(&mut self) -> anyhow::Result<()> {
        self.client.json(Method::GET, "/version", None).await.context("connecting").map(drop)
    }
}
