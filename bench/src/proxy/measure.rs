//! What is measured, and in which order: for each size one server and its load, and one proxy after the other on it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use client::http::Client;
use tempfile::TempDir;
use tokio::time::sleep;

use super::caller::{self, Outcome};
use super::changes::{Changes, Hand};
use super::contender::Contender;
use super::objects::{HERE, MANY, PROBES, Probe, Size, THERE};
use super::running::{self, Running};
use super::stage::{Seat, Stage};
use super::writes::Writes;
use super::{connects, scrape};
use crate::load::{self, Work};
use crate::program::home;
use crate::report::{Figures, key};
use crate::stats::{each, megabytes, percentile, seconds};
use crate::subject::{self, Subject as _};
use crate::waypost::Waypost;

/// How long the load may take.
const FILL: Duration = Duration::from_secs(3600);
/// How many clients write it.
const CLIENTS: usize = 32;
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(1);
/// How long a proxy is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);
/// Between two calls to something that takes a while.
const BETWEEN_CALLS: Duration = Duration::from_millis(1);

/// How much is measured of a contender.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Moves of endpoints.
    pub changes: usize,
    /// New Services.
    pub services: usize,
    /// Connections to each target.
    pub connects: usize,
}

/// One API server with one size of the load.
pub struct Loaded {
    server: subject::Running,
    home: TempDir,
    size: Size,
}

impl Loaded {
    /// Starts a server on the stage and gives it the load. Must be called on its machine.
    ///
    /// # Errors
    /// When the server fails at something.
    pub async fn new(stage: &Stage, size: Size) -> anyhow::Result<Self> {
        let home = home()?;
        // The heartbeats of the Nodes are not renewed here.
        let server = Waypost::find()?.at(stage.api()).with(&["--node-monitor-grace-period", "86400"]);
        let server = server.start(home.path()).await?;
        eprintln!("{size}: objects are made");
        let mut client = server.client();
        load::make_namespace(&mut client).await?;
        let mut work = size.create();
        work.extend((0..PROBES).flat_map(|number| Probe::standing(number).create()));
        work.extend(Probe::pair());
        let wanted = work.len();
        let load = load::run(&client, CLIENTS, work, FILL).await?;
        ensure!(load.done == wanted, "only {} of {wanted} objects were made in time", load.done);
        Ok(Self { server, home, size })
    }

    /// Measures one proxy on it.
    ///
    /// # Errors
    /// When the proxy fails at something.
    pub async fn measure(
        &self,
        stage: &Stage,
        contender: &Contender,
        plan: Plan,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let seat = self.seat(stage, contender).await?;
        let one = One { stage, seat, contender, plan, size: self.size, home: self.home.path() };
        one.run(self.server.client(), figures).await.with_context(|| format!("{} with {}", contender.name(), self.size))
    }

    /// A node for a proxy, and its object.
    ///
    /// # Errors
    /// When the server refuses that.
    pub async fn seat(&self, stage: &Stage, contender: &Contender) -> anyhow::Result<Seat> {
        let seat = stage.seat(&format!("{}-{}", contender.short(), self.size.services));
        contender.prepare(&seat.node);
        self.add([Work::create("/api/v1/nodes", &seat.object())]).await?;
        Ok(seat)
    }

    /// Adds objects to the load.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn add(&self, work: impl IntoIterator<Item = Work>) -> anyhow::Result<()> {
        for one in work {
            one.send(&mut self.server.client()).await?;
        }
        Ok(())
    }

    /// Where its kubeconfig is.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the server does not end.
    pub async fn end(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}

/// One proxy with one size of the load.
struct One<'a> {
    stage: &'a Stage,
    seat: Seat,
    contender: &'a Contender,
    plan: Plan,
    size: Size,
    home: &'a Path,
}

impl One<'_> {
    async fn run(&self, mut client: Client, figures: &mut Figures) -> anyhow::Result<()> {
        let running = self.start(figures).await?;
        self.idle(&running, figures).await?;
        self.tell("connections");
        let connects = connects::measure(&self.seat, self.size, self.plan.connects)?;
        self.set(figures, "direct_us", connects.direct * 1e6);
        self.set(figures, "first_us", connects.first * 1e6);
        self.set(figures, "last_us", connects.last * 1e6);
        self.set(figures, "first_ratio", connects.first / connects.direct);
        self.set(figures, "last_ratio", connects.last / connects.direct);
        let mut hand = Hand { client: client.another(), seat: &self.seat, running: &running };
        if !self.contender.is_relay() {
            self.refusals(&mut hand, figures).await?;
        }
        self.tell("Services are made, one after the other");
        let changes = hand.services(self.plan.services).await?;
        self.changes("new", &changes, figures);
        self.memory("worked", &running, figures)?;
        running.stop();
        if self.contender.is_relay() {
            return Ok(());
        }
        let running = self.restart(&mut client, figures).await?;
        self.memory("restart", &running, figures)?;
        running.stop();
        Ok(())
    }

    /// The result of a refused client.
    async fn refusals(&self, hand: &mut Hand<'_>, figures: &mut Figures) -> anyhow::Result<()> {
        self.tell("endpoints move, one after the other");
        let changes = hand.moves(self.plan.changes).await?;
        self.changes("move", &changes, figures);
        self.tell("endpoints join, one after the other");
        let changes = hand.joins(self.plan.changes, &[THERE]).await?;
        self.changes("join", &changes, figures);
        self.tell("Services outgrow all others, one after the other");
        let changes = hand.joins(self.plan.changes, &MANY).await?;
        self.changes("outgrow", &changes, figures);
        Ok(())
    }

    /// From nothing until every Service works.
    async fn start(&self, figures: &mut Figures) -> anyhow::Result<Running<'_>> {
        self.tell("started");
        let last = self.size.vip(self.size.services - 1);
        let sentry = caller::post(&self.seat.client, last, Outcome::Accepted, BETWEEN_CALLS).await?;
        let running = Running::start(self.contender, &self.seat, self.home)?;
        let seen = running.until(sentry).await?;
        let late = tokio::task::block_in_place(|| running::sweep(&self.seat, self.size))?;
        let all = late.unwrap_or(seen) - running.begun;
        self.tell(&format!("every Service works after {all:.2?}"));
        running::complete(self.stage, &self.seat, self.size).await?;
        self.set(figures, "start_s", all.as_secs_f64());
        running.calm().await?;
        self.set(figures, "start_cpu_s", running.cpu()?.as_secs_f64());
        if let Some(sync) = scrape::full_syncs(&self.seat.node)? {
            self.set(figures, "start_sync_s", sync);
        }
        Ok(running)
    }

    async fn idle(&self, running: &Running<'_>, figures: &mut Figures) -> anyhow::Result<()> {
        sleep(SETTLE).await;
        self.memory("start", running, figures)?;
        let cpu = running.cpu()?;
        sleep(IDLE).await;
        let used = running.cpu()?.saturating_sub(cpu);
        self.set(figures, "idle_cpu_ms", used.as_secs_f64() * 1e3);
        Ok(())
    }

    /// Stops it, changes something while it is stopped, and starts it again.
    async fn restart(&self, client: &mut Client, figures: &mut Figures) -> anyhow::Result<Running<'_>> {
        self.tell("restarted");
        let probe = Probe::standing(0);
        probe.lead_to(&[THERE]).send(client).await?;
        let writes = self.contender.is_announced().then(|| Writes::count(&self.seat.node)).transpose()?;
        let sentry = caller::post(&self.seat.client, probe.vip(), Outcome::Refused, BETWEEN_CALLS).await?;
        ensure!(!sentry.has_seen(), "the rules did not stay when the proxy ended");
        let running = Running::start(self.contender, &self.seat, self.home)?;
        let seen = running.until(sentry).await?;
        self.set(figures, "restart_s", (seen - running.begun).as_secs_f64());
        running.calm().await?;
        self.set(figures, "restart_cpu_s", running.cpu()?.as_secs_f64());
        if let Some(writes) = writes {
            #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52")]
            self.set(figures, "restart_writes", writes.so_far() as f64);
        }
        let sentry = caller::post(&self.seat.client, probe.vip(), Outcome::Accepted, BETWEEN_CALLS).await?;
        let begun = Instant::now();
        probe.lead_to(&[HERE]).send(client).await?;
        let seen = running.until(sentry).await?;
        self.tell(&format!("the next change took {:.1?}", seen.saturating_duration_since(begun)));
        Ok(running)
    }

    fn changes(&self, what: &str, changes: &Changes, figures: &mut Figures) {
        for (name, times) in [("", &changes.effective), ("_write", &changes.answered), ("_after", &changes.after)] {
            let times = seconds(times);
            for (part_name, part) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
                self.set(figures, &format!("{what}{name}_{part_name}_ms"), percentile(&times, part) * 1e3);
            }
        }
        self.set(figures, &format!("{what}_cpu_us"), each(changes.cpu, changes.effective.len()));
    }

    fn memory(&self, when: &str, running: &Running<'_>, figures: &mut Figures) -> anyhow::Result<()> {
        let memory = running.memory()?;
        self.set(figures, &format!("memory_{when}_mb"), megabytes(memory.resident));
        self.set(figures, &format!("memory_{when}_peak_mb"), megabytes(memory.peak.max(running.peak())));
        Ok(())
    }

    fn set(&self, figures: &mut Figures, what: &str, value: f64) {
        figures.set(&key(what, self.size), value);
    }

    fn tell(&self, text: &str) {
        eprintln!("{}: {}: {text}", self.contender.name(), self.size);
    }
}
