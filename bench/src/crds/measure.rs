//! What is measured of custom resources, and in which order. Every part has its own server in a temporary directory.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::definitions::{Established, establish, establish_one, until_served};
use super::documents;
use super::manifests::{self, WORKERS};
use crate::apiserver::watchers::{self, Size, Watched};
use crate::lines::Lines;
use crate::load::{self, Load, Work};
use crate::program::{home, tell};
use crate::report::Figures;
use crate::stats::{each, median, megabytes, percentile, seconds};
use crate::subject::{Running, Subject};

/// How long creating all objects may take.
const FILL: Duration = Duration::from_secs(900);
/// How long reading all objects through a watch may take.
const INITIAL_EVENTS: Duration = Duration::from_secs(120);
/// How often the list, and the initial events of a watch, are read.
const REPEATS: usize = 5;
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(5);

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Objects: created, listed, watched.
    Objects,
    /// Definitions: memory, time until established, discovery, OpenAPI.
    Definitions,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts.
    pub parts: Vec<Part>,
    /// How many objects.
    pub objects: usize,
    /// How many definitions are created at once.
    pub definitions: usize,
    /// How many are created before them, one after the other.
    pub single: usize,
    /// How many clients write.
    pub clients: usize,
    /// Watchers and their events.
    pub fan_out: Size,
}

/// Measures one part of one subject.
///
/// # Errors
/// When the subject fails at something.
pub async fn part(subject: &dyn Subject, part: Part, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    tell(subject, &format!("{part:?}"));
    let done = match part {
        Part::Objects => objects(subject, plan, figures).await,
        Part::Definitions => definitions(subject, plan, figures).await,
    };
    done.with_context(|| format!("{}: {part:?}", subject.name()))
}

async fn objects(subject: &dyn Subject, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let home = home()?;
    let running = subject.start(home.path()).await?;
    let mut client = running.client();
    load::make_namespace(&mut client).await?;
    let mut watch = Established::watch(&running).await?;
    establish_one(&mut client, &mut watch, &manifests::definition()).await?;
    // kube-apiserver waits for open watches when it is stopped.
    drop(watch);
    until_served(&mut client, WORKERS).await?;

    creates(&running, plan, figures).await?;
    sleep(SETTLE).await;
    figures.set("memory_objects_mb", megabytes(running.memory()?.resident));
    list(&mut client, plan.objects, figures).await?;
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        times.push(timeout(INITIAL_EVENTS, initial_events(running.client(), plan.objects)).await??.as_secs_f64());
    }
    figures.set("watch_initial_s", median(&times));
    tell(subject, "events to watchers");
    let watched = Watched { collection: WORKERS, object: manifests::worker };
    let out = watchers::measure(&running, watched, plan.fan_out).await?;
    let sent = seconds(&out.after_sending);
    let burst = Load { done: out.delivered, took: out.burst_took, delays: Vec::new() };
    figures.set("watch_events_per_s", burst.rate());
    figures.set("watch_sent_p50_ms", percentile(&sent, 0.5) * 1e3);
    figures.set("watch_sent_p99_ms", percentile(&sent, 0.99) * 1e3);
    figures.set("watch_cpu_us", each(out.burst_cpu, out.delivered));
    figures.set("watch_cut_off", f64::from(u32::try_from(out.cut_off)?));
    running.stop().await
}

async fn creates(running: &Running, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let create = |number: usize| Work::create(WORKERS, &manifests::worker(&format!("worker-{number:06}")));
    let work = (0..plan.objects).map(create).collect();
    let before = running.cpu()?;
    let load = load::run(&running.client(), plan.clients, work, FILL).await?;
    ensure!(load.done == plan.objects, "only {} objects were created in time", load.done);
    let delays = seconds(&load.delays);
    figures.set("creates_per_s", load.rate());
    figures.set("create_p50_ms", percentile(&delays, 0.5) * 1e3);
    figures.set("create_p99_ms", percentile(&delays, 0.99) * 1e3);
    figures.set("create_cpu_us", each(running.cpu()?.saturating_sub(before), load.done));
    Ok(())
}

async fn list(client: &mut Client, objects: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut times, mut bytes) = (Vec::new(), Bytes::new());
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let (code, answer) = client.bytes(Method::GET, WORKERS, None, Bytes::new()).await?;
        times.push(begun.elapsed().as_secs_f64());
        ensure!(code == 200, "the list was answered with {code}");
        bytes = answer;
    }
    let parsed: serde_json::Value = serde_json::from_slice(&bytes).context("reading the list")?;
    let items = parsed["items"].as_array().map_or(0, Vec::len);
    ensure!(items == objects, "the list has {items} items instead of {objects}");
    figures.set("list_s", median(&times));
    figures.set("list_mb", megabytes(bytes.len() as u64));
    Ok(())
}

/// Reads all objects as an informer does: a watch that starts with them (`sendInitialEvents`), up to the bookmark after them.
async fn initial_events(mut client: Client, objects: usize) -> anyhow::Result<Duration> {
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let begun = Instant::now();
    let response = client.open(Method::GET, &format!("{WORKERS}?{query}"), None, Bytes::new()).await?;
    ensure!(response.status().as_u16() == 200, "a watch was answered with {}", response.status());
    let (mut stream, mut lines, mut events, mut is_complete) = (response.into_body(), Lines::default(), 0, false);
    while !is_complete {
        let frame = stream.frame().await.context("the watch ended before its initial events did")??;
        lines.feed(&frame.into_data().unwrap_or_default(), |line| {
            let is_bookmark = line.starts_with(b"{\"type\":\"BOOKMARK\"");
            is_complete |= is_bookmark;
            events += usize::from(!is_bookmark);
        });
    }
    let took = begun.elapsed();
    ensure!(events == objects, "the watch began with {events} objects instead of {objects}");
    Ok(took)
}

async fn definitions(subject: &dyn Subject, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let home = home()?;
    let running = subject.start(home.path()).await?;
    let mut client = running.client();
    sleep(SETTLE).await;
    let before = running.memory()?.resident;
    let mut watch = Established::watch(&running).await?;
    let mut times = Vec::new();
    for number in 0..plan.single {
        times.push(establish_one(&mut client, &mut watch, &manifests::numbered(number)).await?.as_secs_f64() * 1e3);
    }
    figures.set("established_p50_ms", percentile(&times, 0.5));
    figures.set("established_p99_ms", percentile(&times, 0.99));

    let all = plan.single + plan.definitions;
    let many: Vec<_> = (plan.single..all).map(manifests::numbered).collect();
    let (begun, cpu) = (Instant::now(), running.cpu()?);
    let took = establish(&running, &mut watch, &many, plan.clients).await?;
    figures.set("established_all_s", took.as_secs_f64());
    documents::discovery(&mut client, all, begun, figures).await?;
    figures.set("definition_cpu_us", each(running.cpu()?.saturating_sub(cpu), plan.definitions));
    sleep(SETTLE).await;
    set_memory("definition", &running, before, all, figures)?;
    documents::openapi(&mut client, all, figures).await?;
    sleep(SETTLE).await;
    set_memory("published", &running, before, all, figures)?;
    drop(watch);
    running.stop().await?;

    let running = subject.start(home.path()).await?;
    figures.set("restart_s", running.ready_in.as_secs_f64());
    running.stop().await
}

/// The memory that each definition takes, in kilobytes.
#[expect(clippy::cast_precision_loss, reason = "fewer definitions than 2^52")]
fn set_memory(
    what: &str,
    running: &Running,
    before: u64,
    definitions: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let more = running.memory()?.resident.saturating_sub(before);
    figures.set(&format!("{what}_memory_kb"), megabytes(more) * 1e3 / definitions.max(1) as f64);
    Ok(())
}
