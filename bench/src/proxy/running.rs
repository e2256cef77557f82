//! A proxy at work on its node: from its start until everything works, and its end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use testbed::net::Process;
use tokio::time::sleep;

use super::caller::{self, Outcome};
use super::contender::Contender;
use super::objects::Size;
use super::stage::{Seat, Stage};
use super::usage::{self, Peak};
use crate::sentry::Sentry;
use crate::subject::Memory;

/// How long it may take until everything works.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// The interval at which a starting proxy is polled.
const LOOK: Duration = Duration::from_millis(20);
/// A busy process uses processor time within this period.
const MOMENT: Duration = Duration::from_secs(1);
/// How many Services are checked for all their endpoints.
const COMPLETE: usize = 5;
/// With this number of calls per endpoint none is missed, except in one run of many millions.
const CALLS: usize = 30;

/// A running proxy. Dropping it kills it.
pub struct Running<'a> {
    contender: &'a Contender,
    process: Process,
    peak: Peak,
    /// When it was started.
    pub begun: Instant,
}

impl<'a> Running<'a> {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be prepared.
    pub fn start(contender: &'a Contender, seat: &Seat, home: &Path) -> anyhow::Result<Self> {
        let command = contender.command(&home.join("kubeconfig"), seat.node.name(), home)?;
        let begun = Instant::now();
        let process = seat.node.spawn(command);
        let peak = Peak::watch(process.pid())?;
        Ok(Self { contender, process, peak, begun })
    }

    /// The moment the sentry saw what it waits for.
    ///
    /// # Errors
    /// When the proxy ends before, or takes too long.
    pub async fn until(&self, sentry: Sentry) -> anyhow::Result<Instant> {
        while !sentry.has_seen() {
            ensure!(self.process.is_running(), "{} has ended:\n{}", self.contender.name(), self.last_words());
            ensure!(self.begun.elapsed() < TIMEOUT, "{} takes too long:\n{}", self.contender.name(), self.last_words());
            sleep(LOOK).await;
        }
        sentry.seen(LOOK).await
    }

    /// Waits until it has been without work, and without programs that it runs, for a moment.
    ///
    /// # Errors
    /// When it ends.
    pub async fn calm(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut before = self.cpu()?;
        while begun.elapsed() < TIMEOUT {
            sleep(MOMENT).await;
            let now = self.cpu()?;
            if now == before && !usage::has_children(self.process.pid()) {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Its memory.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        usage::memory(self.process.pid()).with_context(|| self.last_words())
    }

    /// The most memory that it and the programs it runs had together.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.most()
    }

    /// Its processor time so far, that of the programs it ran included.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        usage::cpu(self.process.pid()).with_context(|| self.last_words())
    }

    /// Sends SIGTERM.
    pub fn stop(mut self) {
        tokio::task::block_in_place(|| self.process.terminate());
    }

    fn last_words(&self) -> String {
        let log = self.process.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

/// Calls every Service but the last, of which it is known that it works. The moment the last one that did not work at first began to, if there was one.
///
/// # Errors
/// When one never does.
pub fn sweep(seat: &Seat, size: Size) -> anyhow::Result<Option<Instant>> {
    let deadline = Instant::now() + TIMEOUT;
    seat.client.in_namespace(|| {
        let mut late = None;
        for number in 0..size.services - 1 {
            let mut calls = 0;
            while caller::call(size.vip(number), caller::TIMEOUT) != Outcome::Accepted {
                ensure!(Instant::now() < deadline, "Service {number} does not work");
                calls += 1;
            }
            if calls > 0 {
                late = Some(Instant::now());
            }
        }
        Ok(late)
    })
}

/// Calls a few Services often enough that each of their endpoints is reached.
///
/// # Errors
/// When one is not reached, or an endpoint of another Service is.
pub async fn complete(stage: &Stage, seat: &Seat, size: Size) -> anyhow::Result<()> {
    let step = (size.services / COMPLETE).max(1);
    for number in (0..size.services).step_by(step).take(COMPLETE) {
        stage.forget_reached().await;
        seat.client.in_namespace(|| {
            for _ in 0..size.endpoints * CALLS {
                let _ = caller::call(size.vip(number), caller::TIMEOUT);
            }
        });
        // The remote machine may be a little behind.
        let begun = Instant::now();
        while stage.reached() != size.endpoints {
            if begun.elapsed() > Duration::from_secs(2) {
                bail!("Service {number} led to {} endpoints instead of {}", stage.reached(), size.endpoints);
            }
            sleep(LOOK).await;
        }
    }
    Ok(())
}
