//! `proxy`: measures how soon Services work, beside kube-proxy when its program is there. See `docs/bench.md`.

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bench::program::{self, Common};
use bench::proxy::contender::Contender;
use bench::proxy::measure::{Loaded, Plan};
use bench::proxy::objects::Size;
use bench::proxy::rows;
use bench::proxy::stage::Stage;
use bench::report::{Figures, Report};
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};

/// Measures the proxy. Set WAYPOST_PEERS to a directory with kube-proxy to measure it as well. Needs root: everything
/// happens in network namespaces.
#[derive(Parser)]
struct Arguments {
    /// With so many Services and endpoints of each
    #[arg(long, value_delimiter = ',', default_value = "1000x10,10000x10,30000x3,5000x50")]
    sizes: Vec<Size>,
    /// How often an endpoint moves
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(2..=10_000))]
    changes: u16,
    /// How many Services are made
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
    services: u16,
    /// Moves and new Services of a peer, to which each takes much longer
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=2000))]
    peer_changes: u16,
    /// Connections to each target
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..=50_000))]
    connects: u16,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    subject: Vec<Who>,
    /// A small load, to see that everything works: 200 Services of 3 endpoints, 20 changes
    #[arg(long, conflicts_with_all = ["sizes", "changes", "services"])]
    quick: bool,
    /// Threads of this program
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    #[command(flatten)]
    common: Common,
}

/// The subjects to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// Ours.
    Waypost,
    /// kube-proxy in nftables mode.
    Nftables,
    /// kube-proxy in iptables mode.
    Iptables,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        let sizes = vec![Size { services: 200, endpoints: 3 }];
        arguments = Arguments { sizes, changes: 20, services: 10, peer_changes: 4, connects: 200, ..arguments };
    }
    let stage = match Stage::new() {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("proxy: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    stage.within(|| program::exec("proxy", arguments.threads, arguments.common.limit(7200), run(&arguments, &stage)))
}

async fn run(arguments: &Arguments, stage: &Stage) -> anyhow::Result<()> {
    let contenders = contenders(&arguments.subject)?;
    let mut about = program::machine();
    about.extend(contenders.iter().map(|one| (one.name().to_owned(), one.describe())));
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    for size in &arguments.sizes {
        // One after the other on the same server, so that conditions on the machine are the same for all.
        let loaded = Loaded::new(stage, *size).await?;
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            loaded.measure(stage, contender, plan(arguments, contender), figures).await?;
        }
        loaded.end().await?;
    }
    publish(&reports(&contenders, &figures, &about, &arguments.sizes), arguments.common.json.as_deref())
}

fn plan(arguments: &Arguments, contender: &Contender) -> Plan {
    let (changes, services) = if contender.is_ours() {
        (arguments.changes, arguments.services)
    } else {
        (arguments.peer_changes, arguments.peer_changes)
    };
    Plan { changes: changes.into(), services: services.into(), connects: arguments.connects.into() }
}

/// Ours, and the peers that are there.
fn contenders(only: &[Who]) -> anyhow::Result<Vec<Contender>> {
    let wanted = |who| only.is_empty() || only.contains(&who);
    let mut contenders = Vec::new();
    if wanted(Who::Waypost) {
        contenders.push(Contender::waypost()?);
    }
    for (who, peer) in [(Who::Nftables, Contender::nftables()), (Who::Iptables, Contender::iptables())] {
        match peer {
            Ok(peer) if wanted(who) => contenders.push(peer),
            Err(missing) if wanted(who) => eprintln!("kube-proxy, {who:?}: not measured: {missing:#}"),
            _ => {}
        }
    }
    ensure!(!contenders.is_empty(), "there is nothing to measure");
    Ok(contenders)
}

/// One for each peer, with ours beside it.
fn reports(contenders: &[Contender], figures: &[Figures], about: &[(String, String)], sizes: &[Size]) -> Vec<Report> {
    let all = || contenders.iter().zip(figures);
    let ours = all().find(|(one, _)| one.is_ours()).map(|(_, figures)| figures.clone());
    let report = |name, about: &[(String, String)], peer| Report {
        about: about.to_vec(),
        rows: rows::rows(sizes),
        peer_name: name,
        ours: ours.clone(),
        peer,
    };
    let mut reports: Vec<Report> = Vec::new();
    for (peer, figures) in all().filter(|(one, _)| !one.is_ours()) {
        let about = if reports.is_empty() { about } else { &[] };
        reports.push(report(peer.name(), about, Some(figures.clone())));
    }
    if reports.is_empty() {
        reports.push(report("kube-proxy", about, None));
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
