//! `dns`: measures the DNS server beside CoreDNS, when its program is there, and beside an echo. See `docs/bench.md`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bench::dns::contender::{Contender, Kind};
use bench::dns::measure::{Loaded, Plan, open_upstream};
use bench::dns::objects::Size;
use bench::dns::perf::Perf;
use bench::dns::{echo, rows};
use bench::program::{self, Common};
use bench::report::{Figures, Report};
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};
use testbed::net::Cluster;

/// Measures the DNS server with dnsperf. Set WAYPOST_PEERS to a directory with coredns to measure it as well. Needs root:
/// everything happens in a network namespace.
#[derive(Parser)]
struct Arguments {
    /// With so many Services and endpoints of each
    #[arg(long, value_delimiter = ',', default_value = "1000x10,10000x10")]
    sizes: Vec<Size>,
    /// How long each kind of query is sent, twice, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// From how many sockets
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// How many queries may be outstanding in the throughput measurement
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    outstanding: u16,
    /// Questions a second when the time to the answer is measured
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How often an endpoint moves, and how many Services are made
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
    changes: u16,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    subject: Vec<Who>,
    /// A small load, to see that everything works: 100 Services of 3 endpoints
    #[arg(long, conflicts_with_all = ["sizes", "seconds", "changes"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
    /// Be the echo, at this address
    #[arg(long, hide = true, value_name = "ADDRESS")]
    echo: Option<SocketAddr>,
}

/// The subjects to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// Ours.
    Waypost,
    /// The peer.
    Coredns,
    /// The limit.
    Echo,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if let Some(at) = arguments.echo {
        return match echo::serve(at) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("echo: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.quick {
        let sizes = vec![Size { services: 100, endpoints: 3 }];
        arguments = Arguments { sizes, seconds: 1, changes: 10, ..arguments };
    }
    let cluster = Cluster::new();
    let machine = cluster.outside("dns");
    machine.in_namespace(|| program::exec("dns", 2, arguments.common.limit(3600), run(&arguments)))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let perf = Perf::find(arguments.seconds, arguments.clients, arguments.outstanding)?;
    let contenders = contenders(&arguments.subject)?;
    let mut about = program::machine();
    about.extend(contenders.iter().map(|one| (one.name().to_owned(), one.describe())));
    about.push(("questions".to_owned(), asked(arguments)));
    let plan = Plan { perf, rate: arguments.rate, changes: arguments.changes.into() };
    open_upstream()?;
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    for size in &arguments.sizes {
        // One after the other on the same server, so that conditions on the machine are the same for all.
        let loaded = Loaded::new(*size).await?;
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            loaded.measure(contender, &plan, figures).await?;
        }
        loaded.end().await?;
    }
    publish(&reports(&contenders, &figures, &about, &arguments.sizes), arguments.common.json.as_deref())
}

fn asked(arguments: &Arguments) -> String {
    let Arguments { seconds, clients, outstanding, rate, .. } = arguments;
    format!("dnsperf, {seconds} s each, {clients} sockets, {outstanding} outstanding; times at {rate} a second")
}

/// Ours, the echo, and the peer if it is there.
fn contenders(only: &[Who]) -> anyhow::Result<Vec<Contender>> {
    let wanted = |who| only.is_empty() || only.contains(&who);
    let mut contenders = Vec::new();
    if wanted(Who::Waypost) {
        contenders.push(Contender::find(Kind::Waypost)?);
    }
    match Contender::find(Kind::CoreDns) {
        Ok(peer) if wanted(Who::Coredns) => contenders.push(peer),
        Err(missing) if wanted(Who::Coredns) => eprintln!("CoreDNS: not measured: {missing:#}"),
        _ => {}
    }
    if wanted(Who::Echo) {
        contenders.push(Contender::find(Kind::Echo)?);
    }
    ensure!(!contenders.is_empty(), "there is nothing to measure");
    Ok(contenders)
}

/// One for each peer, with ours beside it.
fn reports(contenders: &[Contender], figures: &[Figures], about: &[(String, String)], sizes: &[Size]) -> Vec<Report> {
    let of =
        |kind| contenders.iter().zip(figures).find(|(one, _)| one.kind == kind).map(|(_, figures)| figures.clone());
    let report = |name, kind, about: &[(String, String)]| Report {
        about: about.to_vec(),
        rows: rows::rows(sizes, kind, of(kind).as_ref()),
        peer_name: name,
        ours: of(Kind::Waypost),
        peer: of(kind),
    };
    let mut reports = vec![report("coredns", Kind::CoreDns, about)];
    if of(Kind::Echo).is_some() {
        reports.push(report("echo", Kind::Echo, &[]));
    }
    reports
}

fn publish(reports: &[Report], json: Option<&std::path::Path>) -> anyhow::Result<()> {
    for report in reports {
        program::publish(report, None)?;
    }
    let Some(path) = json else { return Ok(()) };
    let all: Map<String, Value> = reports.iter().map(|report| (report.peer_name.to_owned(), report.json())).collect();
    std::fs::write(path, format!("{:#}\n", Value::Object(all))).with_context(|| format!("writing {}", path.display()))
}
