//! The number of attached routes in the status of a Gateway: when it is right after many routes were created, and deleted, and how many writes
//! of the status that took.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::contender::Contender;
use super::objects::{self, NAMESPACE, Parent, collection};
use super::up::{self, Up};
use super::watch::Watch;
use crate::lb::stage::Stage;
use crate::load::{self, Work};
use crate::report::Figures;

/// The Gateway.
const GATEWAY: &str = "counted";
/// Clients that create and delete routes.
const CLIENTS: usize = 32;
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How long further writes are waited for.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures it with this number of routes.
///
/// # Errors
/// When the number is not right in time.
pub fn measure(routes: usize, contender: &Contender) -> anyhow::Result<Figures> {
    let stage = Stage::new()?;
    eprintln!("waypost: attached routes, {routes}");
    let up = Up::start(&contender.program, &stage)?;
    stage.node.in_namespace(|| up::runtime()?.block_on(all(routes, &up)))
}

async fn all(routes: usize, up: &Up) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut client = up.client()?;
    let gateway = objects::gateway(GATEWAY, &[objects::http_listener(80)]);
    up::create_gateway(&mut client, &gateway).await?;
    let watch = Watch::start(up.client()?, &collection(NAMESPACE, "gateways")).await?;
    watch.until("the Gateway is programmed", LIMIT, |mut all| all.any(|one| one.is_programmed)).await?;

    let (all, name) = (collection(NAMESPACE, "httproutes"), |number: usize| format!("web-{number:05}"));
    let create = |number: usize| {
        let (name, host) = (name(number), format!("web-{number:05}.example"));
        Work::create(&all, &objects::http_route((NAMESPACE, &name), Parent::Gateway(GATEWAY), (&host, "/"), "web"))
    };
    let up_work: Vec<Work> = (0..routes).map(create).collect();
    let down_work: Vec<Work> = (0..routes).map(|number| Work::delete(&all, &name(number))).collect();
    for (what, work, wanted) in [("up", up_work, u64::try_from(routes)?), ("down", down_work, 0)] {
        let before = watch.modified();
        let load = load::run(&client, CLIENTS, work, LIMIT).await?;
        let acknowledged = Instant::now();
        ensure!(load.done == routes, "only {} of {routes} routes in time", load.done);
        let is_right =
            watch.until("the number is right", LIMIT, |mut all| all.any(|one| one.attached == wanted)).await?;
        tokio::time::sleep(SETTLE).await;
        ensure!(watch.of(GATEWAY).attached == wanted, "the number did not stay right");
        figures.set(&format!("attached_{what}_s"), is_right.saturating_duration_since(acknowledged).as_secs_f64());
        figures.set(&format!("attached_{what}_load_s"), load.took.as_secs_f64());
        let writes = u32::try_from(watch.modified() - before)?;
        figures.set(&format!("attached_{what}_writes"), f64::from(writes));
    }
    Ok(figures)
}
