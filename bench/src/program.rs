//! What every program here does around its measurement: threads, signals, a time limit, the machine's name, the output.
//!
//! The report goes to standard output, progress to standard error. Terminating the program ends the measurement, and
//! with it the servers and their directories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;
use testbed::net::Cluster;
use tokio::signal::unix::{SignalKind, signal};

use crate::kubernetes::Kubernetes;
use crate::report::{Figures, Report, Row};
use crate::subject::Subject;
use crate::waypost::Waypost;

/// Subjects to measure, if not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Who {
    /// Ours.
    Waypost,
    /// The peer.
    Kubernetes,
}

/// Options that all programs have in common.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Give up after so many seconds, instead of far more than it takes
    #[arg(long)]
    limit: Option<u64>,
}

impl Common {
    /// The default timeout in seconds, where it takes at most this long.
    #[must_use]
    pub fn limit(&self, usual: u64) -> u64 {
        self.limit.unwrap_or(usual)
    }
}

/// Runs a measurement in a new network namespace of this name.
pub fn exec_apart<F>(name: &str, limit: u64, run: impl FnOnce() -> F + Send) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    let cluster = Cluster::new();
    cluster.node("bench").in_namespace(|| exec(name, 2, limit, run()))
}

/// Runs a measurement with this number of threads, for at most this number of seconds.
pub fn exec(name: &str, threads: u16, limit: u64, run: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match start(threads, limit, run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(threads: u16, limit: u64, run: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads.into()).enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            done = run => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            () = tokio::time::sleep(Duration::from_secs(limit)) => bail!("not finished in time; see --limit"),
        }
    })
}

/// Every watcher is a connection, here and in the servers, which inherit the limit.
fn raise_file_limit() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the number of open files")
}

/// What kind of machine this is, and whether it has something else to do.
#[must_use]
pub fn machine() -> Vec<(String, String)> {
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

/// The servers to measure: Waypost, and the peer if its programs are found.
///
/// # Errors
/// When there is none.
pub fn subjects<T>(
    only: Option<Who>,
    waypost: impl FnOnce() -> anyhow::Result<T>,
    peer: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut subjects = Vec::new();
    if only != Some(Who::Kubernetes) {
        subjects.push(waypost()?);
    }
    if only != Some(Who::Waypost) {
        match peer() {
            Ok(peer) => subjects.push(peer),
            Err(missing) => eprintln!("kubernetes: not measured: {missing}"),
        }
    }
    ensure!(!subjects.is_empty(), "there is nothing to measure");
    Ok(subjects)
}

/// Measures parts of the API server of Waypost and of kube-apiserver, and reports them. One part after the other, so that conditions on the
/// machine are the same for both.
///
/// # Errors
/// When there is no server, or a measurement fails.
pub async fn compare_api_servers<P: Copy>(
    only: Option<Who>,
    parts: &[P],
    rows: Vec<Row>,
    mut measure: impl AsyncFnMut(&dyn Subject, P, &mut Figures) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let subjects: Vec<Box<dyn Subject>> =
        subjects(only, || Ok(Box::new(Waypost::find()?) as _), || Ok(Box::new(Kubernetes::find()?) as _))?;
    let mut about = machine();
    about.extend(subjects.iter().map(|subject| (subject.name().to_owned(), subject.describe())));
    let mut figures: Vec<Figures> = subjects.iter().map(|_| Figures::default()).collect();
    for part in parts {
        for (subject, figures) in subjects.iter().zip(&mut figures) {
            measure(&**subject, *part, figures).await?;
        }
    }
    let measured = |name| subjects.iter().zip(&figures).find(|(subject, _)| subject.name() == name);
    let of = |name| measured(name).map(|(_, figures)| figures.clone());
    Ok(Report { about, rows, peer_name: "kube-apiserver + etcd", ours: of("waypost"), peer: of("kubernetes") })
}

/// A directory for a server, removed when it is dropped.
///
/// # Errors
/// When there is no place for it.
pub fn home() -> anyhow::Result<TempDir> {
    // When started by root, the API server runs as another user, who must be able to enter it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let builder = tempfile::Builder::new().prefix("waypost-bench-").permissions(mode).tempdir();
    builder.context("making a temporary directory")
}

/// Reports progress on standard error; only the report goes to standard output.
pub fn tell(subject: &(impl Subject + ?Sized), text: &str) {
    eprintln!("{}: {text}", subject.name());
}

/// Prints a report, and writes it for programs when a file is named.
///
/// # Errors
/// When the file cannot be written.
#[expect(clippy::print_stdout, reason = "this is the output of the program")]
pub fn publish(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    println!("{}", report.table());
    let Some(path) = json else { return Ok(()) };
    let text = format!("{:#}\n", report.json());
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
