//! What is measured, and in which order. Every part has its own server in a temporary directory.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use client::http::{Client, Method};
use serde_json::Value;
use tokio::time::Instant;

use super::watchers::{self, Size, Watched};
use crate::load::{self, Load, SERVICES, SLICES, Work};
use crate::program::{home, tell};
use crate::report::{Figures, key};
use crate::stats::{each, median, megabytes, percentile, seconds};
use crate::subject::{Running, Subject};

/// How long filling a server may take.
const FILL: Duration = Duration::from_secs(600);
/// How long one round of creations may take; slow servers do fewer in that time.
const ROUND: Duration = Duration::from_secs(10);
/// Rounds continue until they have taken this long in total, within a minimum and a maximum number.
const ROUNDS: Duration = Duration::from_secs(5);
const LEAST_ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 20;
/// How often something short is measured.
const REPEATS: usize = 5;
/// How often the list is read.
const LISTS: usize = 10;
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(1);

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// From start to ready, empty, and the memory then.
    Ready,
    /// Creations per second, with this number of objects present, and the list of all.
    Creates,
    /// Events to many watchers.
    Watch,
    /// Memory with objects, and the restart with them.
    Memory,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts.
    pub parts: Vec<Part>,
    /// With these numbers of Services present, ascending; memory is measured with the most.
    pub objects: Vec<usize>,
    /// How many clients write.
    pub clients: usize,
    /// Watchers and their events.
    pub fan_out: Size,
}

impl Plan {
    fn most(&self) -> usize {
        self.objects.iter().copied().max().unwrap_or_default()
    }
}

/// Measures one part of one subject.
///
/// # Errors
/// When the subject fails at something.
pub async fn part(subject: &dyn Subject, part: Part, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    tell(subject, &format!("{part:?}"));
    let done = match part {
        Part::Ready => ready(subject, figures).await,
        Part::Creates => creates(subject, plan, figures).await,
        Part::Watch => watch(subject, plan, figures).await,
        Part::Memory => memory(subject, plan, figures).await,
    };
    done.with_context(|| format!("{}: {part:?}", subject.name()))
}

async fn ready(subject: &dyn Subject, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut times, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let home = home()?;
        let running = subject.start(home.path()).await?;
        times.push(running.ready_in.as_secs_f64());
        tokio::time::sleep(SETTLE).await;
        resident.push(megabytes(running.memory()?.resident));
        running.stop().await?;
    }
    figures.set("ready_s", median(&times));
    figures.set("memory_empty_mb", median(&resident));
    Ok(())
}

async fn creates(subject: &dyn Subject, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let home = home()?;
    let running = subject.start(home.path()).await?;
    load::make_namespace(&mut running.client()).await?;
    let mut present = 0;
    for &objects in &plan.objects {
        fill_services(&running, plan.clients, present..objects, load::service).await?;
        present = objects;
        let rounds = rounds(&running, plan.clients, objects).await?;
        figures.set(&key("creates_per_s", objects), median(&rounds.rates));
        figures.set(&key("create_p50_ms", objects), percentile(&rounds.delays, 0.5) * 1e3);
        figures.set(&key("create_p99_ms", objects), percentile(&rounds.delays, 0.99) * 1e3);
        figures.set(&key("create_cpu_us", objects), each(rounds.cpu, rounds.delays.len()));
        tell(subject, &format!("{objects} present, created per second in each round: {:.0?}", rounds.rates));
    }
    list(&running, present, figures).await?;
    running.stop().await
}

/// What rounds of creations came to: the rate of each, how long each creation and all took, the server's processor time.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    delays: Vec<f64>,
    took: Duration,
    cpu: Duration,
}

/// Creates half as many Services again as there are, removes them, and does it again.
async fn rounds(running: &Running, clients: usize, objects: usize) -> anyhow::Result<Rounds> {
    let client = running.client();
    let names: Vec<String> = (0..objects.div_ceil(2)).map(|number| format!("new-{number:06}")).collect();
    let mut out = Rounds::default();
    while out.rates.len() < LEAST_ROUNDS || (out.took < ROUNDS && out.rates.len() < MOST_ROUNDS) {
        let work = names.iter().map(|name| Work::create(SERVICES, &load::service(name))).collect();
        let before = running.cpu()?;
        let load = load::run(&client, clients, work, ROUND).await?;
        out.cpu += running.cpu()?.saturating_sub(before);
        out.took += load.took;
        out.rates.push(load.rate());
        out.delays.extend(seconds(&load.delays));
        // Requests are taken in order, so what was made is a beginning of the names.
        let made = &names[..load.done];
        let work = made.iter().map(|name| Work::delete(SERVICES, name)).collect();
        let removed = load::run(&client, clients, work, FILL).await?;
        ensure!(removed.done == made.len(), "not everything was removed in time");
    }
    Ok(out)
}

async fn list(running: &Running, objects: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let mut client = running.client();
    let (mut times, mut bytes) = (Vec::new(), Bytes::new());
    for _ in 0..LISTS {
        let begun = Instant::now();
        let (code, answer) = client.bytes(Method::GET, SERVICES, None, Bytes::new()).await?;
        times.push(begun.elapsed().as_secs_f64());
        ensure!(code == 200, "the list was answered with {code}");
        bytes = answer;
    }
    let parsed: Value = serde_json::from_slice(&bytes).context("reading the list")?;
    let items = parsed["items"].as_array().map_or(0, Vec::len);
    ensure!(items == objects, "the list has {items} items instead of {objects}");
    figures.set("list_s", median(&times));
    figures.set("list_mb", megabytes(bytes.len() as u64));
    Ok(())
}

async fn watch(subject: &dyn Subject, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let home = home()?;
    let running = subject.start(home.path()).await?;
    load::make_namespace(&mut running.client()).await?;
    let before = running.memory()?.resident;
    let out =
        watchers::measure(&running, Watched { collection: SERVICES, object: load::service }, plan.fan_out).await?;
    let (answered, sent) = (seconds(&out.after_answer), seconds(&out.after_sending));
    let burst = Load { done: out.delivered, took: out.burst_took, delays: Vec::new() };
    figures.set("watch_open_s", out.opened_in.as_secs_f64());
    figures.set("watch_events_per_s", burst.rate());
    figures.set("watch_p50_ms", percentile(&answered, 0.5) * 1e3);
    figures.set("watch_p99_ms", percentile(&answered, 0.99) * 1e3);
    figures.set("watch_sent_p50_ms", percentile(&sent, 0.5) * 1e3);
    figures.set("watch_sent_p99_ms", percentile(&sent, 0.99) * 1e3);
    figures.set("watch_cpu_us", each(out.burst_cpu, out.delivered));
    figures.set("watch_cut_off", f64::from(u32::try_from(out.cut_off)?));
    figures.set("watch_memory_mb", megabytes(running.memory()?.peak.saturating_sub(before)));
    running.stop().await
}

async fn memory(subject: &dyn Subject, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let (home, objects) = (home()?, plan.most());
    let running = subject.start(home.path()).await?;
    let mut client = running.client();
    load::make_namespace(&mut client).await?;
    // Of a Service with a selector Waypost would make slices by itself, and the peer, without controllers, would not.
    let load = fill_services(&running, plan.clients, 0..objects, load::service_by_hand).await?;
    figures.set("fill_services_per_s", load.rate());
    note_memory(&running, "services", figures).await?;
    let work = (0..objects).map(|number| Work::create(SLICES, &load::slice(number))).collect();
    let load = load::run(&client, plan.clients, work, FILL).await?;
    ensure!(load.done == objects, "only {} slices were made in time", load.done);
    figures.set("fill_slices_per_s", load.rate());
    note_memory(&running, "all", figures).await?;
    running.stop().await?;

    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let running = subject.start(home.path()).await?;
        times.push(running.ready_in.as_secs_f64());
        let found = count(&mut running.client(), SERVICES).await? + count(&mut running.client(), SLICES).await?;
        ensure!(found == 2 * objects, "{found} objects are there after a restart instead of {}", 2 * objects);
        tokio::time::sleep(SETTLE).await;
        figures.set("memory_restarted_mb", megabytes(running.memory()?.resident));
        running.stop().await?;
    }
    figures.set("restart_s", median(&times));
    Ok(())
}

async fn note_memory(running: &Running, with: &str, figures: &mut Figures) -> anyhow::Result<()> {
    tokio::time::sleep(SETTLE).await;
    let memory = running.memory()?;
    figures.set(&format!("memory_{with}_mb"), megabytes(memory.resident));
    figures.set(&format!("memory_{with}_peak_mb"), megabytes(memory.peak));
    Ok(())
}

async fn fill_services(
    running: &Running,
    clients: usize,
    numbers: std::ops::Range<usize>,
    make: fn(&str) -> Value,
) -> anyhow::Result<Load> {
    let wanted = numbers.len();
    let work = numbers.map(|number| Work::create(SERVICES, &make(&load::service_name(number)))).collect();
    let load = load::run(&running.client(), clients, work, FILL).await?;
    ensure!(load.done == wanted, "only {} Services were made in time", load.done);
    Ok(load)
}

/// How many objects there are, from a page of one.
async fn count(client: &mut Client, collection: &str) -> anyhow::Result<usize> {
    let (code, list) = client.json(Method::GET, &format!("{collection}?limit=1"), None).await?;
    ensure!(code == 200, "a list was answered with {code}");
    let remaining = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    Ok(list["items"].as_array().map_or(0, Vec::len) + usize::try_from(remaining)?)
}
