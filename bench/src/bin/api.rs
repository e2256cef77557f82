//! `api`: measures the API server, beside kube-apiserver and etcd when their programs are there. See `docs/bench.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bench::kubernetes::Kubernetes;
use bench::measure::{self, Part, Plan};
use bench::report::{Figures, Report};
use bench::subject::Subject;
use bench::watchers::Size;
use bench::waypost::Waypost;
use clap::{Parser, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// How many events come alone, before the burst.
const SINGLE_EVENTS: usize = 50;

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
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
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

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("api: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> anyhow::Result<()> {
    raise_file_limit()?;
    let threads = usize::from(arguments.threads);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whoever ends this ends the measurement, and with it the servers and their directories.
        tokio::select! {
            done = run(arguments) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            () = tokio::time::sleep(Duration::from_secs(arguments.limit)) => bail!("not finished in time; see --limit"),
        }
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = plan(arguments);
    let subjects = subjects(arguments.subject)?;
    let mut about = machine();
    about.extend(subjects.iter().map(|subject| (subject.name().to_owned(), subject.describe())));
    let mut figures: Vec<Figures> = subjects.iter().map(|_| Figures::default()).collect();
    // One part after the other, so that both meet the machine in the same mood.
    for part in &plan.parts {
        for (subject, figures) in subjects.iter().zip(&mut figures) {
            measure::part(&**subject, *part, &plan, figures).await?;
        }
    }
    let measured = |name| subjects.iter().zip(&figures).find(|(subject, _)| subject.name() == name);
    let of = |name| measured(name).map(|(_, figures)| figures.clone());
    let (ours, peer) = (of("waypost"), of("kubernetes"));
    let report = Report { about, objects: &plan.objects, watchers: plan.fan_out.watchers, ours, peer };
    print(&report.table());
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> Plan {
    let mut objects: Vec<usize> = arguments.objects.iter().map(|count| *count as usize).collect();
    objects.sort_unstable();
    objects.dedup();
    let parts = if arguments.only.is_empty() { Part::value_variants().to_vec() } else { arguments.only.clone() };
    let fan_out = Size { watchers: arguments.watchers.into(), single: SINGLE_EVENTS, burst: arguments.events.into() };
    Plan { parts, objects, clients: arguments.clients.into(), fan_out }
}

/// Ours, and the peer when its programs are there.
fn subjects(only: Option<Who>) -> anyhow::Result<Vec<Box<dyn Subject>>> {
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    if only != Some(Who::Kubernetes) {
        subjects.push(Box::new(Waypost::find()?));
    }
    if only != Some(Who::Waypost) {
        match Kubernetes::find() {
            Some(peer) => subjects.push(Box::new(peer)),
            None => {
                eprintln!("kubernetes: not measured: WAYPOST_PEERS names no directory with kube-apiserver and etcd");
            }
        }
    }
    ensure!(!subjects.is_empty(), "there is nothing to measure");
    Ok(subjects)
}

/// What kind of machine this is, and whether it has something else to do.
fn machine() -> Vec<(String, String)> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let line = |file: &str, name: &str| {
        let text = read(file);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        value.unwrap_or("unknown").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (cpu, memory) = (line("/proc/cpuinfo", "model name"), line("/proc/meminfo", "MemTotal"));
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    vec![
        ("machine".to_owned(), format!("{cores} cores ({cpu}), {memory} memory, Linux {kernel}")),
        ("load average before".to_owned(), load),
    ]
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
