//! `gateway`: measures a Gateway beside nginx, HAProxy and Envoy, when their programs are there, and many routes. See `docs/bench.md`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bench::gateway::contender::{Contender, Kind};
use bench::gateway::load::Load;
use bench::gateway::{attached, listener_sets, routes, rows, traffic};
use bench::program::{self, Common};
use bench::report::{Figures, Report, Row};
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};

/// Measures a Gateway: traffic beside nginx, HAProxy and Envoy, which are looked for on the path and in WAYPOST_PEERS (Debian: `apt-get install
/// nginx-light haproxy`), and the cost of many routes. Needs root: everything happens in network namespaces.
#[derive(Parser, Clone)]
struct Arguments {
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Traffic: protocols
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http,tls,h2,h2c,grpc")]
    loads: Vec<Load>,
    /// Traffic: numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Vec<u16>,
    /// Traffic: requests at once on each connection of HTTP/2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    streams: u16,
    /// Traffic: how long each load lasts in each round, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Traffic: how many rounds; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Traffic: threads of the load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Traffic: measure HTTP/1.1 with `wrk`, too
    #[arg(long)]
    wrk: bool,
    /// Traffic: leave out these peers
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Routes that are created one after the other
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    routes: u32,
    /// Routes that are created during changes
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    more: u32,
    /// Changes of routes and endpoints per second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    changes: u16,
    /// Routes that are created and deleted while their number is watched
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    attached: u32,
    /// ListenerSets
    #[arg(long, default_value_t = 2500, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    sets: u32,
    /// Routes of each ListenerSet
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    set_routes: u32,
    /// A small load, to see that everything works
    #[arg(long, conflicts_with_all = ["seconds", "rounds", "routes", "more", "attached", "sets"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Requests per second, latency and processor time, beside the peers.
    Traffic,
    /// Routes one by one: until they are effective, memory, processor time.
    Routes,
    /// The number of attached routes in the status.
    Attached,
    /// Many ListenerSets with many routes.
    ListenerSets,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        let small = Arguments { seconds: 1, rounds: 1, routes: 100, more: 20, attached: 100, sets: 20, ..arguments };
        arguments = Arguments { connections: vec![1, 8], set_routes: 4, ..small };
    }
    let limit = arguments.common.limit(14_400);
    // The stages have runtimes of their own.
    program::exec("gateway", 1, limit, async { tokio::task::spawn_blocking(move || run(&arguments)).await? })
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ours = Contender::find(Kind::Waypost)?;
    let parts = if arguments.only.is_empty() { Part::value_variants() } else { &arguments.only };
    let mut about = program::machine();
    let mut reports = Vec::new();
    for part in parts {
        match part {
            Part::Traffic => reports.extend(traffic(arguments, &ours, &mut about)?),
            Part::Routes => {
                let second = Duration::from_secs(1);
                let plan = routes::Plan {
                    routes: usize::try_from(arguments.routes)?,
                    more: usize::try_from(arguments.more)?,
                    changes: arguments.changes.into(),
                    lasting: if arguments.quick { 2 * second } else { 30 * second },
                };
                reports.push(alone("routes", rows::routes(&plan), routes::measure(&plan, &ours)?));
            }
            Part::Attached => {
                let count = usize::try_from(arguments.attached)?;
                reports.push(alone("attached", rows::attached(count), attached::measure(count, &ours)?));
            }
            Part::ListenerSets => {
                let (sets, routes) = (usize::try_from(arguments.sets)?, usize::try_from(arguments.set_routes)?);
                let plan = listener_sets::Plan { sets, routes };
                let figures = listener_sets::measure(plan, &ours)?;
                reports.push(alone("listener sets", rows::listener_sets(plan), figures));
            }
        }
    }
    if let Some((_, first)) = reports.first_mut() {
        about.insert(0, ("waypost".to_owned(), ours.describe()));
        first.about = about;
    }
    publish(&reports, arguments.common.json.as_deref())
}

/// A report of ours alone.
fn alone(name: &'static str, rows: Vec<Row>, figures: Figures) -> (&'static str, Report) {
    (name, Report { about: Vec::new(), rows, peer_name: "no peer", ours: Some(figures), peer: None })
}

/// One report for each peer, and one with the budgets: the best of nginx and HAProxy.
fn traffic(
    arguments: &Arguments,
    ours: &Contender,
    about: &mut Vec<(String, String)>,
) -> anyhow::Result<Vec<(&'static str, Report)>> {
    let plan = traffic::Plan {
        loads: arguments.loads.clone(),
        connections: arguments.connections.iter().map(|count| usize::from(*count)).collect(),
        threads: arguments.threads.into(),
        streams: arguments.streams.into(),
        lasting: Duration::from_secs(arguments.seconds.into()),
        rounds: arguments.rounds.into(),
        wrk: arguments.wrk,
    };
    let mut contenders = vec![ours.clone()];
    for kind in Kind::ALL.into_iter().skip(1).filter(|kind| !arguments.without.iter().any(|out| out == kind.name())) {
        match Contender::find(kind) {
            Ok(found) => {
                about.push((kind.name().to_owned(), found.describe()));
                contenders.push(found);
            }
            Err(why) => eprintln!("gateway: {} is not measured: {why:#}", kind.name()),
        }
    }
    let Arguments { seconds, rounds, threads, streams, .. } = arguments;
    let load = format!("{threads} threads, {streams} streams at once, {seconds} s each, {rounds} rounds, medians");
    about.push(("load".to_owned(), load));
    let figures = traffic::measure(&plan, &contenders)?;
    let of = |kind| contenders.iter().position(|one| one.kind == kind).and_then(|place| figures.get(place));
    let report = |peer_name, rows, peer: Option<&Figures>| Report {
        about: Vec::new(),
        rows,
        peer_name,
        ours: of(Kind::Waypost).cloned(),
        peer: peer.cloned(),
    };
    let rows = rows::traffic(&plan);
    let peers = Kind::ALL.into_iter().skip(1).filter_map(|kind| Some((kind.name(), of(kind)?)));
    let mut all: Vec<_> = peers.map(|(name, peer)| (name, report(name, rows.clone(), Some(peer)))).collect();
    let known: Vec<&Figures> = [Kind::Nginx, Kind::Haproxy].into_iter().filter_map(of).collect();
    if known.is_empty() {
        all.push(("traffic", report("no peer", rows, None)));
    } else {
        let best = rows::best(&rows, &known);
        all.push(("budgets", report("best of nginx, haproxy", rows::traffic_budgets(&plan, &best), Some(&best))));
    }
    Ok(all)
}

fn publish(reports: &[(&str, Report)], json: Option<&Path>) -> anyhow::Result<()> {
    for (_, report) in reports {
        program::publish(report, None)?;
    }
    let Some(path) = json else { return Ok(()) };
    let all: Map<String, Value> = reports.iter().map(|(name, report)| ((*name).to_owned(), report.json())).collect();
    std::fs::write(path, format!("{:#}\n", Value::Object(all))).with_context(|| format!("writing {}", path.display()))
}
