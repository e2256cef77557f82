//! Many ListenerSets with many routes on one Gateway: when all are programmed, what they cost, and how long one further change takes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::contender::Contender;
use super::objects::{self, NAMESPACE, Parent, collection};
use super::probe::Probe;
use super::up::{self, Up};
use super::watch::Watch;
use crate::lb::stage::{Stage, TARGET};
use crate::load::{self, Work};
use crate::report::Figures;
use crate::stats::{median, percentile, seconds};

/// The Gateway.
const GATEWAY: &str = "shared";
/// Clients that create objects.
const CLIENTS: usize = 32;
/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(1800);
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(5);
/// How many single changes are measured.
const CHANGES: usize = 50;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// ListenerSets, each with one listener.
    pub sets: usize,
    /// Routes of each.
    pub routes: usize,
}

/// Measures it.
///
/// # Errors
/// When something is not programmed in time.
pub fn measure(plan: Plan, contender: &Contender) -> anyhow::Result<Figures> {
    let stage = Stage::new()?;
    eprintln!("waypost: {} ListenerSets with {} routes each", plan.sets, plan.routes);
    let up = Up::start(&contender.program, &stage)?;
    stage.node.in_namespace(|| up::runtime()?.block_on(all(plan, &stage, &up)))
}

async fn all(plan: Plan, stage: &Stage, up: &Up) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut client = up.client()?;
    let key = (NAMESPACE, "web");
    Work::create(&objects::services(NAMESPACE), &objects::service(key, None)).send(&mut client).await?;
    let slice = objects::slice(key, stage.pod.v4().into(), TARGET, true);
    Work::create(&objects::slices(NAMESPACE), &slice).send(&mut client).await?;
    let gateway = objects::gateway(GATEWAY, &[objects::http_listener(80)]);
    let address = up::create_gateway(&mut client, &gateway).await?;
    let mut probe = Probe::new(&stage.outside, (address, 80).into());
    probe.until_reached("none.example", 404, LIMIT).context("before there are routes")?;

    let sets = collection(NAMESPACE, "listenersets");
    let watch = Watch::start(up.client()?, &sets).await?;
    let create = |number| Work::create(&sets, &objects::listener_set(&set(number), GATEWAY, &host(number)));
    let begun = Instant::now();
    let acknowledged = run(&client, (0..plan.sets).map(create).collect()).await?;
    let are_programmed = watch
        .until("all ListenerSets are programmed", LIMIT, |all| all.filter(|one| one.is_programmed).count() >= plan.sets)
        .await?;
    figures.set("sets_created_s", (acknowledged - begun).as_secs_f64());
    figures.set("sets_programmed_s", are_programmed.saturating_duration_since(acknowledged).as_secs_f64());

    let numbers = 0..plan.sets * plan.routes;
    let routes: Vec<Work> = numbers.map(|number| create_route(number / plan.routes, number % plan.routes)).collect();
    let (wanted, begun) = (u64::try_from(routes.len())?, Instant::now());
    let acknowledged = run(&client, routes).await?;
    let last = (plan.sets.saturating_sub(1), plan.routes.saturating_sub(1));
    let served = probe.until((&host(last.0), &path(last.1)), 200, acknowledged, LIMIT)?;
    let counted =
        watch.until("all routes are counted", LIMIT, |all| all.map(|one| one.attached).sum::<u64>() == wanted).await?;
    figures.set("set_routes_created_s", (acknowledged - begun).as_secs_f64());
    figures.set("set_routes_served_s", served.as_secs_f64());
    figures.set("set_routes_counted_s", counted.saturating_duration_since(acknowledged).as_secs_f64());
    tokio::time::sleep(SETTLE).await;
    let usage = up.usage()?;
    figures.set("sets_memory_mb", usage.data_plane);
    figures.set("sets_memory_server_mb", usage.server);
    figures.set("sets_memory_peak_mb", usage.peak);

    let (mut of_routes, mut of_sets) = (Vec::new(), Vec::new());
    for turn in 0..CHANGES {
        let number = turn * 7919 % plan.sets;
        create_route(number, plan.routes + turn).send(&mut client).await?;
        of_routes.push(probe.until((&host(number), &path(plan.routes + turn)), 200, Instant::now(), LIMIT)?);
    }
    for number in plan.sets..plan.sets + CHANGES {
        create_route(number, 0).send(&mut client).await?;
        create(number).send(&mut client).await?;
        of_sets.push(probe.until((&host(number), &path(0)), 200, Instant::now(), LIMIT)?);
    }
    for (what, times) in [("set_route", seconds(&of_routes)), ("set", seconds(&of_sets))] {
        figures.set(&format!("{what}_change_p50_ms"), median(&times) * 1e3);
        figures.set(&format!("{what}_change_p99_ms"), percentile(&times, 0.99) * 1e3);
    }
    Ok(figures)
}

/// Sends all of it; when the last one was acknowledged.
async fn run(client: &client::http::Client, work: Vec<Work>) -> anyhow::Result<Instant> {
    let all = work.len();
    let load = load::run(client, CLIENTS, work, LIMIT).await?;
    ensure!(load.done == all, "only {} of {all} objects were created in time", load.done);
    Ok(Instant::now())
}

fn create_route(number: usize, route: usize) -> Work {
    let (set, name, host, path) = (set(number), format!("web-{number:05}-{route:03}"), host(number), path(route));
    let route = objects::http_route((NAMESPACE, &name), Parent::ListenerSet(&set), (&host, &path), "web");
    Work::create(&collection(NAMESPACE, "httproutes"), &route)
}

fn set(number: usize) -> String {
    format!("set-{number:05}")
}

fn host(number: usize) -> String {
    format!("set-{number:05}.example")
}

fn path(route: usize) -> String {
    format!("/part-{route:03}")
}
