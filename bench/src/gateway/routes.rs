//! Many routes: how long after its creation each is effective, alone and while others change, and what they cost.
//!
//! In: a [`Plan`]. Out: figures. Routes are in namespaces of a hundred, each has a hostname and a Service of its own; all Services lead to the one
//! pod. A route is effective when the first request to its hostname is answered by the pod.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use client::http::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::contender::Contender;
use super::objects::{self, Parent, collection};
use super::probe::Probe;
use super::up::{self, Up, Usage};
use crate::lb::stage::{Stage, TARGET};
use crate::load::{self, Load, Work};
use crate::report::Figures;
use crate::stats::{median, percentile, seconds};

/// The Gateway.
const GATEWAY: &str = "public";
/// Routes of a namespace.
const PER_NAMESPACE: usize = 100;
/// Clients that create Services.
const CLIENTS: usize = 32;
/// How long creating all Services may take.
const FILL: Duration = Duration::from_secs(900);
/// How long one route may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Before memory is read, what was just freed may be given back.
const SETTLE: Duration = Duration::from_secs(5);

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Routes that are created one after the other.
    pub routes: usize,
    /// Routes that are created while others change.
    pub more: usize,
    /// Changes per second meanwhile, and while processor time is measured.
    pub changes: usize,
    /// How long processor time is measured.
    pub lasting: Duration,
}

/// Measures it.
///
/// # Errors
/// When a route does not become effective, or the program ends.
pub fn measure(plan: &Plan, contender: &Contender) -> anyhow::Result<Figures> {
    let stage = Stage::new()?;
    eprintln!("waypost: {} routes", plan.routes);
    let up = Up::start(&contender.program, &stage)?;
    stage.node.in_namespace(|| up::runtime()?.block_on(all(plan, &stage, &up)))
}

async fn all(plan: &Plan, stage: &Stage, up: &Up) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut client = up.client()?;
    tokio::time::sleep(SETTLE).await;
    memory(&mut figures, "empty", up.usage()?);
    create_services(&client, stage, plan.routes + plan.more).await?;
    let gateway = objects::gateway(GATEWAY, &[objects::http_listener(80)]);
    let address = up::create_gateway(&mut client, &gateway).await?;
    let mut probe = Probe::new(&stage.outside, (address, 80).into());
    probe.until_reached("none.example", 404, LIMIT).context("before there are routes")?;
    tokio::time::sleep(SETTLE).await;
    memory(&mut figures, "services", up.usage()?);

    let before = up.usage()?;
    let begun = Instant::now();
    let times = create_one_by_one(&mut client, &mut probe, 0..plan.routes).await?;
    busy(&mut figures, "creating", before, up.usage()?, begun.elapsed());
    let tenth = (plan.routes / 10).max(1);
    effective(&mut figures, "effective", &times);
    effective(&mut figures, "effective_first", &times[..tenth.min(times.len())]);
    effective(&mut figures, "effective_last", &times[times.len().saturating_sub(tenth)..]);
    tokio::time::sleep(SETTLE).await;
    memory(&mut figures, "routes", up.usage()?);

    let (before, begun) = (up.usage()?, Instant::now());
    tokio::time::sleep(plan.lasting).await;
    busy(&mut figures, "idle", before, up.usage()?, begun.elapsed());

    let churn = Churn::start(up.client()?, stage, plan);
    let (before, begun, changed) = (up.usage()?, Instant::now(), churn.changes());
    tokio::time::sleep(plan.lasting).await;
    busy(&mut figures, "churn", before, up.usage()?, begun.elapsed());
    figures.set("churn_rate", count(churn.changes() - changed) / begun.elapsed().as_secs_f64());
    let times = create_one_by_one(&mut client, &mut probe, plan.routes..plan.routes + plan.more).await?;
    churn.stop().await?;
    effective(&mut figures, "churn_effective", &times);
    figures.set("route_failures", count(probe.failures));
    figures.set("route_lost", count(probe.lost));
    tokio::time::sleep(SETTLE).await;
    memory(&mut figures, "after_churn", up.usage()?);
    Ok(figures)
}

/// Namespaces with Services and slices.
async fn create_services(client: &Client, stage: &Stage, count: usize) -> anyhow::Result<()> {
    let run = async |work: Vec<Work>| -> anyhow::Result<Load> {
        let all = work.len();
        let done = load::run(client, CLIENTS.min(all.max(1)), work, FILL).await?;
        ensure!(done.done == all, "only {} of {all} objects were created in time", done.done);
        Ok(done)
    };
    let spaces = 0..count.div_ceil(PER_NAMESPACE);
    let namespaces = spaces.map(|space| Work::create("/api/v1/namespaces", &objects::namespace(&space_name(space))));
    run(namespaces.collect()).await?;
    let pod = stage.pod.v4().into();
    let both = (0..count).flat_map(|number| {
        let (space, name) = (space_of(number), name(number));
        let key = (&*space, &*name);
        [
            Work::create(&objects::services(&space), &objects::service(key, None)),
            Work::create(&objects::slices(&space), &objects::slice(key, pod, TARGET, true)),
        ]
    });
    run(both.collect()).await.map(drop)
}

/// Creates routes one after the other; how long each took from the acknowledgement until it was effective.
async fn create_one_by_one(
    client: &mut Client,
    probe: &mut Probe,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(numbers.len());
    for number in numbers {
        let work = Work::create(&collection(&space_of(number), "httproutes"), &route(number));
        work.send(client).await?;
        let acknowledged = Instant::now();
        let took = probe.until((&host(number), "/"), 200, acknowledged, LIMIT);
        times.push(took.with_context(|| format!("route {number}"))?);
    }
    Ok(times)
}

/// Changes of routes and of endpoints, alternately, at a steady rate.
struct Churn {
    task: JoinHandle<anyhow::Result<()>>,
    is_over: Arc<AtomicBool>,
    changes: Arc<AtomicUsize>,
}

impl Churn {
    fn start(mut client: Client, stage: &Stage, plan: &Plan) -> Self {
        let (is_over, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (routes, per_second, pod) = (plan.routes.max(1), plan.changes.max(1), stage.pod.v4().into());
        let pause = Duration::from_secs(1) / u32::try_from(per_second).unwrap_or(u32::MAX);
        let task = tokio::spawn({
            let (is_over, changes) = (Arc::clone(&is_over), Arc::clone(&changes));
            async move {
                let mut tick = tokio::time::interval(pause);
                for turn in 0.. {
                    tick.tick().await;
                    if is_over.load(Relaxed) {
                        break;
                    }
                    // All routes in turn, neighbours in time far apart in the order of their names.
                    let number = (turn / 2 * 7919) % routes;
                    let (space, name) = (space_of(number), name(number));
                    let work = match turn % 2 {
                        0 => {
                            let changed = objects::with_header(route(number), &turn.to_string());
                            let change = json!({"spec": {"rules": changed["spec"]["rules"]}});
                            Work::patch(&collection(&space, "httproutes"), &name, &change)
                        }
                        _ => {
                            let slice = objects::slice((&space, &name), pod, TARGET, turn / 2 / routes % 2 == 1);
                            Work::replace(&objects::slices(&space), &name, &slice)
                        }
                    };
                    work.send(&mut client).await?;
                    changes.fetch_add(1, Relaxed);
                }
                Ok(())
            }
        });
        Self { task, is_over, changes }
    }

    fn changes(&self) -> usize {
        self.changes.load(Relaxed)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.is_over.store(true, Relaxed);
        self.task.await.context("the churn")?
    }
}

fn space_name(number: usize) -> String {
    format!("team-{number:03}")
}

fn space_of(number: usize) -> String {
    space_name(number / PER_NAMESPACE)
}

fn name(number: usize) -> String {
    format!("web-{number:05}")
}

fn host(number: usize) -> String {
    format!("{}.example", name(number))
}

fn route(number: usize) -> Value {
    let (space, name, host) = (space_of(number), name(number), host(number));
    objects::http_route((&space, &name), Parent::Gateway(GATEWAY), (&host, "/"), &name)
}

fn effective(figures: &mut Figures, what: &str, times: &[Duration]) {
    let times = seconds(times);
    figures.set(&format!("{what}_p50_ms"), median(&times) * 1e3);
    figures.set(&format!("{what}_p99_ms"), percentile(&times, 0.99) * 1e3);
    figures.set(&format!("{what}_max_ms"), percentile(&times, 1.0) * 1e3);
}

fn memory(figures: &mut Figures, when: &str, usage: Usage) {
    figures.set(&format!("memory_{when}_mb"), usage.data_plane);
    figures.set(&format!("memory_{when}_server_mb"), usage.server);
}

/// Processor time of both processes, in percent of one core.
fn busy(figures: &mut Figures, when: &str, before: Usage, after: Usage, lasted: Duration) {
    let percent = |before: Duration, after: Duration| {
        after.saturating_sub(before).as_secs_f64() / lasted.as_secs_f64().max(f64::EPSILON) * 100.0
    };
    figures.set(&format!("cpu_{when}_percent"), percent(before.data_plane_cpu, after.data_plane_cpu));
    figures.set(&format!("cpu_{when}_server_percent"), percent(before.server_cpu, after.server_cpu));
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^52")]
const fn count(number: usize) -> f64 {
    number as f64
}
