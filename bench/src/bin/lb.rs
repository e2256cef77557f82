//! `lb`: measures the gateway beside nginx and HAProxy, when their programs are there. See `docs/bench.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::lb::contender::{Contender, Kind};
use bench::lb::load::{self, LOADS, Load, Outcome};
use bench::lb::rows::{key, rows};
use bench::lb::stage::Stage;
use bench::program;
use bench::report::{Figures, Report};
use bench::stats::{median, percentile, seconds};
use clap::Parser;
use serde_json::{Map, Value};

/// Measures load balancers with TLS and HTTP. nginx and HAProxy are measured when they are on the path, or in WAYPOST_PEERS (Debian: `apt-get
/// install nginx-light haproxy`). Needs root: everything happens in network namespaces.
#[derive(Parser, Clone)]
struct Arguments {
    /// How long each load lasts in each round, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// How many rounds; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Over how many connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Threads of the load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// A second each, once, to see that everything works
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 3600)]
    limit: u64,
}

/// What a load balancer came to, round by round.
#[derive(Default)]
struct Samples(Vec<(String, Vec<f64>)>);

impl Samples {
    fn add(&mut self, key: String, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.0.push((key, vec![value])),
        }
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        self.0.iter().for_each(|(key, values)| figures.set(key, median(values)));
        figures
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.seconds, arguments.rounds) = (1, 1);
    }
    let limit = arguments.limit;
    // The stages have runtimes of their own.
    program::exec("lb", 1, limit, async { tokio::task::spawn_blocking(move || run(&arguments)).await? })
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut contenders = vec![Contender::find(Kind::Waypost)?];
    for kind in [Kind::Nginx, Kind::Haproxy] {
        match Contender::find(kind) {
            Ok(found) => contenders.push(found),
            Err(why) => {
                eprintln!("lb: {kind:?} is not measured: {why:#} (Debian: apt-get install nginx-light haproxy)");
            }
        }
    }
    let stage = Stage::new()?;
    let config = load::tls(&stage.file("web.crt"))?;
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for round in 1..=arguments.rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            eprintln!("{}: round {round} of {}", contender.name(), arguments.rounds);
            let running = contender.start(&stage)?;
            load::until_served(&stage.outside, running.plain, None)?;
            load::until_served(&stage.outside, running.tls, Some(&config))?;
            for load in LOADS {
                let (to, config) = match load {
                    Load::Plain => (running.plain, None),
                    Load::Tls | Load::Handshakes => (running.tls, Some(&config)),
                };
                let many = (usize::from(arguments.connections), usize::from(arguments.threads));
                let ask = |lasting| load::run(&stage.outside, to, config, load, many, lasting);
                ask(Duration::from_millis(500)).with_context(|| format!("{}, {load:?}", contender.name()))?;
                let before = running.worked()?;
                let outcome = ask(Duration::from_secs(arguments.seconds.into()));
                let outcome = outcome.with_context(|| format!("{}, {load:?}", contender.name()))?;
                ensure!(!outcome.times.is_empty(), "{}, {load:?}: there was no answer at all", contender.name());
                take(samples, load, &outcome, running.worked()?.saturating_sub(before));
            }
        }
    }
    let mut about = program::machine();
    about.extend(contenders.iter().map(|one| (one.name().to_owned(), one.describe())));
    let Arguments { seconds, rounds, connections, threads, .. } = arguments;
    about.push((
        "load".to_owned(),
        format!("{connections} connections, {threads} threads, {seconds} s each, {rounds} rounds, medians"),
    ));
    let figures: Vec<Figures> = samples.iter().map(Samples::figures).collect();
    publish(&contenders, &figures, &about, arguments.json.as_deref())
}

#[expect(clippy::cast_precision_loss, reason = "fewer answers than 2^52")]
fn take(samples: &mut Samples, load: Load, outcome: &Outcome, worked: Duration) {
    let (count, times) = (outcome.times.len() as f64, seconds(&outcome.times));
    samples.add(key(load, "rate"), count / outcome.lasted.as_secs_f64());
    samples.add(key(load, "core"), count / worked.as_secs_f64().max(0.01));
    samples.add(key(load, "p50_us"), median(&times) * 1e6);
    samples.add(key(load, "p99_us"), percentile(&times, 0.99) * 1e6);
}

/// One table for each peer, with ours beside it.
fn publish(
    contenders: &[Contender],
    figures: &[Figures],
    about: &[(String, String)],
    json: Option<&Path>,
) -> anyhow::Result<()> {
    ensure!(!figures.is_empty(), "nothing was measured");
    let peers: Vec<(&Contender, &Figures)> = contenders.iter().zip(figures).skip(1).collect();
    let report = |name, peer: Option<&Figures>, about: &[(String, String)]| Report {
        about: about.to_vec(),
        rows: rows(peer),
        peer_name: name,
        ours: Some(figures[0].clone()),
        peer: peer.cloned(),
    };
    let mut reports: Vec<Report> =
        peers.iter().map(|(peer, figures)| report(peer.name(), Some(figures), &[])).collect();
    match reports.first_mut() {
        Some(first) => first.about = about.to_vec(),
        None => reports.push(report("no peer", None, about)),
    }
    for report in &reports {
        program::publish(report, None)?;
    }
    let Some(path) = json else { return Ok(()) };
    let all: Map<String, Value> = reports.iter().map(|report| (report.peer_name.to_owned(), report.json())).collect();
    std::fs::write(path, format!("{:#}\n", Value::Object(all))).with_context(|| format!("writing {}", path.display()))
}
