//! What is measured, and in which order: for each size one API server and its load, and one DNS server after the other on it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use client::http::Client;
use tempfile::TempDir;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::ask::{self, Asker};
use super::changes::{self, Changes};
use super::contender::{Contender, Kind};
use super::objects::{self, Size};
use super::perf::Perf;
use super::questions::{MIXES, Mix};
use super::{LISTEN, UPSTREAM, upstream};
use crate::load;
use crate::program::home;
use crate::report::{Figures, key};
use crate::stats::{megabytes, percentile, seconds};
use crate::subject::{self, Process, Subject as _};
use crate::waypost::Waypost;

/// How long the load may take.
const FILL: Duration = Duration::from_secs(1800);
/// How many clients write it.
const CLIENTS: usize = 16;
/// Timeout until a server has all names.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The interval at which a starting server is polled.
const LOOK: Duration = Duration::from_millis(1);
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(2);

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How to ask.
    pub perf: Perf,
    /// Queries per second while latencies are measured.
    pub rate: u32,
    /// Moves of endpoints, and new Services.
    pub changes: usize,
}

/// One API server with one size of the load.
pub struct Loaded {
    server: subject::Running,
    home: TempDir,
    size: Size,
}

impl Loaded {
    /// Starts a server and gives it the load.
    ///
    /// # Errors
    /// When the server fails at something.
    pub async fn new(size: Size) -> anyhow::Result<Self> {
        let home = home()?;
        let server = Waypost::find()?.start(home.path()).await?;
        eprintln!("{size}: objects are made");
        let client = server.client();
        for work in [objects::namespaces(), objects::create(size)] {
            let wanted = work.len();
            let load = load::run(&client, CLIENTS, work, FILL).await?;
            ensure!(load.done == wanted, "only {} of {wanted} objects were made in time", load.done);
        }
        Ok(Self { server, home, size })
    }

    /// Measures one DNS server on it.
    ///
    /// # Errors
    /// When it fails at something.
    pub async fn measure(&self, contender: &Contender, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
        let one = One { contender, plan, size: self.size, home: self.home.path() };
        one.run(self.server.client(), figures).await.with_context(|| format!("{} with {}", contender.name(), self.size))
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the server does not end.
    pub async fn end(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}

/// Starts the upstream server for external names.
///
/// # Errors
/// When the address cannot be bound.
pub fn open_upstream() -> anyhow::Result<()> {
    upstream::open(UPSTREAM)
}

/// One DNS server with one size of the load.
struct One<'a> {
    contender: &'a Contender,
    plan: &'a Plan,
    size: Size,
    home: &'a Path,
}

impl One<'_> {
    async fn run(&self, mut client: Client, figures: &mut Figures) -> anyhow::Result<()> {
        let mut process = self.start(figures).await?;
        let is_echo = self.contender.kind == Kind::Echo;
        if !is_echo {
            sleep(SETTLE).await;
            self.memory("start", &process, figures)?;
        }
        for mix in MIXES {
            self.tell(mix.title());
            block_in_place(|| self.questions(mix, &process, figures))?;
            process.check()?;
        }
        if !is_echo {
            sleep(SETTLE).await;
            self.memory("worked", &process, figures)?;
            self.tell("endpoints move and Services are made, one after the other");
            // An even number, so that the next server finds the probe where it was.
            let moves = changes::moves(&mut client, self.plan.changes.next_multiple_of(2)).await?;
            self.changes("move", &moves, figures);
            let made = changes::services(&mut client, self.plan.changes).await?;
            self.changes("new", &made, figures);
        }
        process.check()?;
        process.stop().await
    }

    /// From nothing until every name leads where it should.
    async fn start(&self, figures: &mut Figures) -> anyhow::Result<Process> {
        self.tell("started");
        let last = self.size.services - 1;
        let wanted = (self.contender.kind != Kind::Echo).then(|| objects::addresses(self.size, last));
        let sentry = ask::post(LISTEN, &objects::full_name(last), wanted.clone(), LOOK).await?;
        ensure!(!sentry.has_seen(), "another server answers at {LISTEN} already");
        let begun = Instant::now();
        let mut process = self.contender.start(self.home)?;
        while !sentry.has_seen() {
            process.check()?;
            ensure!(begun.elapsed() < TIMEOUT, "the last Service is not known after {TIMEOUT:?}");
            sleep(LOOK).await;
        }
        let mut known = sentry.seen(TIMEOUT).await?;
        if wanted.is_some() {
            known = block_in_place(|| sweep(self.size))?.unwrap_or(known);
            self.set(figures, "start_s", (known - begun).as_secs_f64());
            self.set(figures, "start_cpu_s", process.cpu()?.as_secs_f64());
        }
        self.tell(&format!("every name is known after {:.2?}", known - begun));
        Ok(process)
    }

    /// One kind of traffic: first at maximum throughput, then at a rate at which no server is saturated.
    fn questions(&self, mix: Mix, process: &Process, figures: &mut Figures) -> anyhow::Result<()> {
        let (perf, questions, mix) = (&self.plan.perf, mix.write(self.size, self.home)?, mix.key());
        perf.once(LISTEN, &questions.path)?;
        let before = process.cpu()?;
        let run = perf.flat_out(LISTEN, &questions.path)?;
        let used = process.cpu()?.saturating_sub(before).as_secs_f64();
        if self.contender.kind != Kind::Echo {
            run.check(questions.missing)?;
        }
        self.set(figures, &format!("{mix}_rate"), run.rate);
        self.set(figures, &format!("{mix}_core"), run.answered / used.max(f64::EPSILON));
        self.set(figures, &format!("{mix}_lost"), run.lost);
        let delays = perf.paced(LISTEN, &questions.path, self.plan.rate)?;
        self.set(figures, &format!("{mix}_p50_us"), percentile(&delays, 0.5) * 1e6);
        self.set(figures, &format!("{mix}_p99_us"), percentile(&delays, 0.99) * 1e6);
        Ok(())
    }

    fn changes(&self, what: &str, changes: &Changes, figures: &mut Figures) {
        for (name, times) in [("", &changes.visible), ("_write", &changes.answered), ("_after", &changes.after)] {
            let times = seconds(times);
            for (part_name, part) in [("p50", 0.5), ("p99", 0.99)] {
                self.set(figures, &format!("{what}{name}_{part_name}_ms"), percentile(&times, part) * 1e3);
            }
        }
    }

    fn memory(&self, when: &str, process: &Process, figures: &mut Figures) -> anyhow::Result<()> {
        let memory = process.memory()?;
        self.set(figures, &format!("memory_{when}_mb"), megabytes(memory.resident));
        self.set(figures, &format!("memory_{when}_peak_mb"), megabytes(memory.peak));
        Ok(())
    }

    fn set(&self, figures: &mut Figures, what: &str, value: f64) {
        figures.set(&key(what, self.size), value);
    }

    fn tell(&self, text: &str) {
        eprintln!("{}: {}: {text}", self.contender.name(), self.size);
    }
}

/// Queries every Service. Returns the time at which the last one that was wrong at first became correct, if there was one.
fn sweep(size: Size) -> anyhow::Result<Option<Instant>> {
    let (mut asker, deadline, mut late) = (Asker::new(LISTEN)?, Instant::now() + TIMEOUT, None);
    for number in 0..size.services {
        let (name, wanted) = (objects::full_name(number), objects::addresses(size, number));
        let mut answer = asker.ask(&name);
        while answer.as_ref().is_none_or(|answer| answer.addresses != wanted) {
            ensure!(Instant::now() < deadline, "{name} leads to {answer:?}, not to {wanted:?}");
            answer = asker.ask(&name);
            late = Some(Instant::now());
        }
    }
    Ok(late)
}
