//! What is measured, and in which order: one server for each size of the load, from its first object to its second life.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::check::check;
use super::flips;
use super::from_nothing::{Begun, Controlled};
use super::objects::{self, Size};
use super::tracker::{Tracker, Writes};
use crate::load::{self, Work};
use crate::program::{home, tell};
use crate::report::{Figures, key};
use crate::stats::{each, megabytes, percentile, seconds};
use crate::subject::Running;

/// How long one step of the load may take.
const FILL: Duration = Duration::from_secs(3600);
/// How long it may take after that until everything is right.
const CONVERGE: Duration = Duration::from_secs(1800);
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(1);

/// A part that can be left out; the load itself cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// One Pod after the other changes its readiness.
    Flips,
    /// The controllers start with Services and Pods and without slices.
    Nothing,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts.
    pub parts: Vec<Part>,
    /// How many clients write the load.
    pub clients: usize,
    /// How many changes of readiness.
    pub flips: usize,
}

/// Measures one subject with one size of the load.
///
/// # Errors
/// When the subject fails at something, or gets something wrong.
pub async fn measure(subject: &dyn Controlled, size: Size, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let one = One { subject, size, plan };
    one.run(figures).await.with_context(|| format!("{} with {size} Pods", subject.name()))
}

/// One subject with one size of the load.
struct One<'a> {
    subject: &'a dyn Controlled,
    size: Size,
    plan: &'a Plan,
}

impl One<'_> {
    async fn run(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let home = home()?;
        let running = self.subject.start(home.path()).await?;
        self.memory("empty", &running, figures).await?;
        let mut tracker = self.load(&running, figures).await?;
        self.memory("loaded", &running, figures).await?;
        if self.plan.parts.contains(&Part::Flips) {
            self.flips(&running, &mut tracker, figures).await?;
        }
        check(&mut running.client(), self.size).await?;
        drop(tracker);
        if !self.plan.parts.contains(&Part::Nothing) {
            return running.stop().await;
        }
        self.tell("controllers start with Services and Pods, and without slices");
        let begun = self.subject.start_over(running, home.path()).await?;
        self.nothing(begun, figures).await?.stop().await
    }

    /// Makes all objects with the controllers at work.
    async fn load(&self, running: &Running, figures: &mut Figures) -> anyhow::Result<Tracker> {
        load::make_namespace(&mut running.client()).await?;
        self.send(running, objects::create_nodes()).await?;
        self.send(running, objects::start_nodes(Timestamp::now())).await?;
        let mut tracker = Tracker::start(&running.client(), self.size).await?;
        let begun = Instant::now();
        self.tell("Services are made");
        self.send(running, self.size.create_services()).await?;
        self.tell(&format!("{:.1?}: Pods are made", begun.elapsed()));
        self.send(running, self.size.create_pods()).await?;
        self.tell(&format!("{:.1?}: Pods become ready", begun.elapsed()));
        let starting = Instant::now();
        self.send(running, self.size.start_pods(Timestamp::now())).await?;
        let answered = Instant::now();
        let right = tracker.until_right(CONVERGE).await?;
        self.tell(&format!("{:.1?}: everything is right", begun.elapsed()));
        self.set(figures, "load_s", (right - begun).as_secs_f64());
        self.set(figures, "load_ready_s", (right - starting).as_secs_f64());
        self.set(figures, "load_after_s", right.saturating_duration_since(answered).as_secs_f64());
        self.writes(figures, "load", tracker.writes(), self.size.services * self.size.pods);
        Ok(tracker)
    }

    async fn flips(&self, running: &Running, tracker: &mut Tracker, figures: &mut Figures) -> anyhow::Result<()> {
        self.tell("Pods change, one after the other");
        let flips = flips::measure(running, tracker, self.size, self.plan.flips).await?;
        for (what, times) in [("patch", &flips.answered), ("flip", &flips.shown), ("after", &flips.after)] {
            let times = seconds(times);
            for (name, part) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
                self.set(figures, &format!("{what}_{name}_ms"), percentile(&times, part) * 1e3);
            }
        }
        self.writes(figures, "flip", flips.writes, flips.shown.len());
        self.set(figures, "flip_cpu_us", each(flips.cpu, flips.shown.len()));
        Ok(())
    }

    /// Waits until the controllers that have just started are done.
    async fn nothing(&self, begun: Begun, figures: &mut Figures) -> anyhow::Result<Running> {
        let Begun { mut running, at, cpu } = begun;
        let mut tracker = Tracker::start(&running.client(), self.size).await?;
        let right = tracker.until_right(CONVERGE).await;
        running.check()?;
        self.set(figures, "nothing_s", (right? - at).as_secs_f64());
        self.set(figures, "nothing_cpu_s", running.cpu()?.saturating_sub(cpu).as_secs_f64());
        drop(tracker);
        check(&mut running.client(), self.size).await?;
        self.memory("nothing", &running, figures).await?;
        Ok(running)
    }

    async fn send(&self, running: &Running, work: Vec<Work>) -> anyhow::Result<()> {
        let wanted = work.len();
        let load = load::run(&running.client(), self.plan.clients, work, FILL).await?;
        ensure!(load.done == wanted, "only {} of {wanted} objects were made in time", load.done);
        Ok(())
    }

    async fn memory(&self, when: &str, running: &Running, figures: &mut Figures) -> anyhow::Result<()> {
        sleep(SETTLE).await;
        let each = running.memory_of_each()?;
        self.set(figures, &format!("memory_{when}_mb"), megabytes(running.memory()?.resident));
        self.set(figures, &format!("memory_{when}_peak_mb"), megabytes(running.memory()?.peak));
        if each.len() > 1 {
            for (process, memory) in each {
                self.set(figures, &format!("memory_{when}_mb/{process}"), megabytes(memory.resident));
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52")]
    fn writes(&self, figures: &mut Figures, what: &str, writes: Writes, count: usize) {
        let count = count.max(1) as f64;
        self.set(figures, &format!("{what}_slice_writes"), writes.slices as f64 / count);
        self.set(figures, &format!("{what}_endpoints_writes"), writes.endpoints as f64 / count);
    }

    fn set(&self, figures: &mut Figures, what: &str, value: f64) {
        figures.set(&key(what, self.size), value);
    }

    fn tell(&self, text: &str) {
        tell(self.subject, &format!("{}: {text}", self.size));
    }
}
