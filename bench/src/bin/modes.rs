//! `modes`: measures the modes of the proxy beside each other, beside kube-proxy in iptables mode and beside HAProxy when they are
//! there. See `docs/bench.md`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bench::modes::carry;
use bench::modes::haproxy::{self, HaProxy};
use bench::modes::{rows, stand};
use bench::program::{self, Common};
use bench::proxy::caller::{self, Outcome};
use bench::proxy::contender::Contender;
use bench::proxy::measure::{Loaded, Plan};
use bench::proxy::objects::Size;
use bench::proxy::running::Running;
use bench::proxy::stage::Stage;
use bench::report::{Figures, Report};
use clap::Parser;
use serde_json::{Map, Value};

/// Measures the modes of the proxy. Set WAYPOST_PEERS to a directory with kube-proxy to measure it as well; HAProxy is found
/// on PATH. Needs root: everything happens in network namespaces.
#[derive(Parser)]
struct Arguments {
    /// Measure these modes
    #[arg(long, value_delimiter = ',', default_value = "nftables,iptables,userspace", value_parser = mode)]
    modes: Vec<&'static str>,
    /// What changes cost is measured with so many Services and endpoints of each
    #[arg(long, value_delimiter = ',', default_value = "1000x10,10000x10")]
    sizes: Vec<Size>,
    /// How often an endpoint moves, and how many Services are made
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(2..=2000))]
    changes: u16,
    /// How long a stream and the others last, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=60))]
    seconds: u16,
    /// How often each way has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Measure only what connections pay
    #[arg(long)]
    carry_only: bool,
    /// Of what connections pay, measure only short ones: where figures are close, more rounds are worth more than other figures
    #[arg(long)]
    short_only: bool,
    /// A small load, to see that everything works
    #[arg(long, conflicts_with_all = ["sizes", "changes", "rounds"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

/// Modes that every machine can be measured in.
const MODES: [&str; 3] = ["nftables", "iptables", "userspace"];

fn mode(name: &str) -> Result<&'static str, String> {
    MODES.into_iter().find(|mode| *mode == name).ok_or_else(|| format!("choose of {}", MODES.join(", ")))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        let sizes = vec![Size { services: 100, endpoints: 3 }];
        arguments = Arguments { sizes, changes: 5, rounds: 1, seconds: 1, ..arguments };
    }
    let stage = match Stage::new() {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("modes: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    stage.within(|| program::exec("modes", 2, arguments.common.limit(7200), run(&arguments, &stage)))
}

async fn run(arguments: &Arguments, stage: &Stage) -> anyhow::Result<()> {
    let mut reports = carried(arguments, stage).await?;
    if !arguments.carry_only {
        reports.extend(kept(arguments, stage).await?);
    }
    reports[0].1.about.splice(0..0, program::machine());
    for (title, report) in &reports {
        eprintln!("{title}");
        program::publish(report, None)?;
    }
    let Some(path) = &arguments.common.json else { return Ok(()) };
    let all: Map<String, Value> = reports.iter().map(|(title, report)| (title.clone(), report.json())).collect();
    std::fs::write(path, format!("{:#}\n", Value::Object(all))).with_context(|| format!("writing {}", path.display()))
}

type Titled = (String, Report);

/// What connections pay, mode by mode, beside those that go directly; and HAProxy beside the mode that does as it does.
async fn carried(arguments: &Arguments, stage: &Stage) -> anyhow::Result<Vec<Titled>> {
    stand::open(stage.far())?;
    let loaded = Loaded::new(stage, Size { services: 1, endpoints: 1 }).await?;
    loaded.add(stand::objects()).await?;
    let (time, rounds) = (Duration::from_secs(arguments.seconds.into()), usize::from(arguments.rounds));
    let mut reports = Vec::new();
    for mode in &arguments.modes {
        let contender = Contender::waypost_in(mode)?;
        let seat = loaded.seat(stage, &contender).await?;
        let service = stand::by_service();
        let sentry = caller::post(&seat.client, service.desk, Outcome::Accepted, Duration::from_millis(1)).await?;
        let running = Running::start(&contender, &seat, loaded.home())?;
        running.until(sentry).await?;
        eprintln!("{}: streams, short connections, datagrams", contender.name());
        let mut ways = vec![stand::directly(), service];
        let peer = match haproxy::version() {
            Some(version) if *mode == "userspace" => {
                Some((version, HaProxy::start(&seat.node, stand::directly(), loaded.home())?))
            }
            _ => None,
        };
        ways.extend(peer.iter().flat_map(|(_, peer)| [peer.redirected, peer.straight]));
        let figures =
            tokio::task::block_in_place(|| carry::measure(&seat.client, &ways, time, rounds, arguments.short_only))?;
        running.stop();
        let (about, rows) = (vec![("mode".to_owned(), (*mode).to_owned())], rows::carried());
        let ours = Some(figures[1].clone());
        let direct = Report { about, rows, peer_name: "directly", ours: ours.clone(), peer: Some(figures[0].clone()) };
        reports.push((format!("{mode}, carried"), direct));
        if let Some((version, _)) = peer {
            let beside = |title: &str, budget: Option<f64>, peer: &Figures| {
                let (about, rows) = (vec![("peer".to_owned(), version.clone())], rows::connections(budget));
                let report = Report { about, rows, peer_name: "HAProxy", ours: ours.clone(), peer: Some(peer.clone()) };
                (format!("{mode}, beside HAProxy {title}"), report)
            };
            reports.push(beside("behind a redirection too", Some(1.0), &figures[2]));
            reports.push(beside("called where it listens", None, &figures[3]));
        }
    }
    loaded.end().await?;
    Ok(reports)
}

/// What starts and changes cost, mode by mode; kube-proxy beside the mode that it has too.
async fn kept(arguments: &Arguments, stage: &Stage) -> anyhow::Result<Vec<Titled>> {
    let mut contenders = Vec::new();
    for mode in &arguments.modes {
        contenders.push(Contender::waypost_in(mode)?);
    }
    if arguments.modes.contains(&"iptables") {
        match Contender::iptables() {
            Ok(peer) => contenders.push(peer),
            Err(missing) => eprintln!("kube-proxy: not measured: {missing:#}"),
        }
    }
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    for size in &arguments.sizes {
        let loaded = Loaded::new(stage, *size).await?;
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            let changes = if contender.is_ours() { arguments.changes } else { arguments.changes.min(10) };
            let plan = Plan { changes: changes.into(), services: changes.into(), connects: 200 };
            loaded.measure(stage, contender, plan, figures).await?;
        }
        loaded.end().await?;
    }
    let peer = contenders.iter().zip(&figures).find(|(one, _)| !one.is_ours());
    let report = |(contender, ours): (&Contender, &Figures)| {
        let peer = peer.filter(|_| contender.mode() == "iptables").map(|(_, figures)| figures.clone());
        let about = vec![("ours".to_owned(), contender.describe())];
        let rows = rows::kept(&arguments.sizes);
        let report = Report { about, rows, peer_name: "kube-proxy iptables", ours: Some(ours.clone()), peer };
        (format!("{}, kept", contender.mode()), report)
    };
    Ok(contenders.iter().zip(&figures).filter(|(one, _)| one.is_ours()).map(report).collect())
}
