//! `api`: measures the API server, beside kube-apiserver and etcd when their programs are there. See `docs/bench.md`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bench::kubernetes::Kubernetes;
use bench::measure::{self, Part, Plan};
use bench::report::{Figures, Report};
use bench::subject::Subject;
use bench::watchers::Size;
use bench::waypost::Waypost;
use clap::{Parser, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Measures the API server. Set WAYPOST_PEERS to a directory with kube-apiserver and etcd to measure them as well.
#[derive(Parser)]
struct Arguments {
    /// With so many Services present
    #[arg(long, value_delimiter = ',', default_value = "1000,10000", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    objects: Vec<u32>,
    /// Clients that write at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Watchers of one collection
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=5000))]
    watchers: u16,
    /// Events of the burst, each delivered to every watcher
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=5000))]
    events: u16,
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Measure only this server
    #[arg(long, value_enum)]
    subject: Option<Who>,
    /// Threads of the load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 3600)]
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Waypost,
    Kubernetes,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    raise_file_limit()?;
    let threads = usize::from(arguments.threads);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whoever ends this ends the measurement, and with it the servers and their directories.
        tokio::select! {
            done = run(&arguments) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            () = tokio::time::sleep(Duration::from_secs(arguments.limit)) => bail!("not finished in time; see --limit"),
        }
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut objects: Vec<usize> = arguments.objects.iter().map(|count| *count as usize).collect();
    objects.sort_unstable();
    objects.dedup();
    let parts = if arguments.only.is_empty() { Part::value_variants().to_vec() } else { arguments.only.clone() };
    let fan_out = Size { watchers: arguments.watchers.into(), single: 50, burst: arguments.events.into() };
    let plan = Plan { parts, objects, clients: arguments.clients.into(), fan_out };
    let mut about = machine();
    let mut figures = |who: Who, subject: Option<Box<dyn Subject>>| {
        let subject = subject.filter(|_| arguments.subject.is_none_or(|only| only == who));
        if let Some(subject) = &subject {
            about.push((subject.name().to_owned(), subject.describe()));
        }
        subject
    };
    let ours = figures(Who::Waypost, Some(Box::new(Waypost::find()?)));
    let peer = figures(Who::Kubernetes, Kubernetes::find().map(|peer| Box::new(peer) as _));
    if peer.is_none() {
        about.push((
            "kubernetes".to_owned(),
            "not measured: WAYPOST_PEERS names no directory with kube-apiserver and etcd".to_owned(),
        ));
    }
    let ours = measured(ours, &plan).await?;
    let peer = measured(peer, &plan).await?;
    let report = Report { about, objects: &plan.objects, watchers: plan.fan_out.watchers, ours, peer };
    print(&report.table());
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

async fn measured(subject: Option<Box<dyn Subject>>, plan: &Plan) -> anyhow::Result<Option<Figures>> {
    match subject {
        Some(subject) => measure::all(&*subject, plan).await.map(Some),
        None => Ok(None),
    }
}

/// What kind of machine this is.
fn machine() -> Vec<(String, String)> {
    let line = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        value.unwrap_or("unknown").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let text = format!(
        "{cores} cores ({}), {} memory, Linux {kernel}",
        line("/proc/cpuinfo", "model name"),
        line("/proc/meminfo", "MemTotal")
    );
    vec![("machine".to_owned(), text)]
}

/// Every watcher is a connection, here and in the servers, which inherit the limit.
fn raise_file_limit() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the number of open files")
}

#[expect(clippy::print_stdout, reason = "this is the output of the program")]
fn print(text: &str) {
    println!("{text}");
}
