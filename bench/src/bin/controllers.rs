//! `controllers`: measures how soon endpoints are right, beside kube-controller-manager when the programs of the peer are
//! there. See `docs/bench.md`.

use std::process::ExitCode;

use bench::controllers::from_nothing::Controlled;
use bench::controllers::measure::{self, Part, Plan};
use bench::controllers::objects::Size;
use bench::controllers::rows;
use bench::kubernetes::{CONTROLLER_QPS, Kubernetes};
use bench::program::{self, Common, Who};
use bench::report::{Figures, Report};
use bench::waypost::Waypost;
use clap::{Parser, ValueEnum as _};

/// The heartbeats of the Nodes are not renewed here, and their Pods must not be evicted.
const PATIENT: [&str; 2] = ["--node-monitor-grace-period", "86400"];

/// Measures the controllers. Set WAYPOST_PEERS to a directory with kube-apiserver, etcd and kube-controller-manager to
/// measure them as well.
#[derive(Parser)]
struct Arguments {
    /// With so many Services
    #[arg(long, value_delimiter = ',', default_value = "1000,10000", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: Vec<u32>,
    /// Pods of each Service
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pods: u16,
    /// Pods of the one large Service; 0 leaves it out
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u16).range(0..=50_000))]
    large: u16,
    /// How often a Pod changes its readiness
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..=10_000))]
    flips: u16,
    /// Measure the peer with no more Services than this; ten thousand take it half an hour
    #[arg(long, default_value_t = 1000)]
    peer_services: u32,
    /// Clients that write the load at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Measure only these parts, besides the load
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Measure only this server
    #[arg(long, value_enum)]
    subject: Option<Who>,
    /// A small load, to see that everything works: 50 and 200 Services, 500 Pods of one, 20 changes
    #[arg(long, conflicts_with_all = ["services", "large", "flips"])]
    quick: bool,
    /// Threads of the load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { services: vec![50, 200], large: 500, flips: 20, ..arguments };
    }
    program::exec("controllers", arguments.threads, arguments.common.limit(7200), run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (sizes, plan) = (sizes(arguments), plan(arguments));
    let subjects = subjects(arguments.subject)?;
    let mut about = program::machine();
    about.extend(subjects.iter().map(|subject| (subject.name().to_owned(), subject.describe())));
    if subjects.iter().any(|subject| subject.name() == "kubernetes") {
        let limit = format!("{CONTROLLER_QPS} requests per second, where 20 are the default");
        about.push(("kube-controller-manager may send".to_owned(), limit));
    }
    let (mut ours, mut peer) = (None, None);
    // One size after the other, so that conditions on the machine are the same for both.
    for size in &sizes {
        for subject in &subjects {
            let is_peer = subject.name() == "kubernetes";
            if is_peer && size.services > arguments.peer_services as usize {
                eprintln!("kubernetes: {size}: not measured, see --peer-services");
                continue;
            }
            let figures = if is_peer { &mut peer } else { &mut ours };
            measure::measure(&**subject, *size, &plan, figures.get_or_insert_with(Figures::default)).await?;
        }
    }
    let peer_name = "kube-apiserver + etcd + kube-controller-manager";
    let report = Report { about, rows: rows::rows(&sizes), peer_name, ours, peer };
    program::publish(&report, arguments.common.json.as_deref())
}

fn sizes(arguments: &Arguments) -> Vec<Size> {
    let mut services: Vec<usize> = arguments.services.iter().map(|count| *count as usize).collect();
    services.sort_unstable();
    services.dedup();
    let mut sizes: Vec<Size> =
        services.into_iter().map(|services| Size { services, pods: arguments.pods.into() }).collect();
    if arguments.large > 0 {
        sizes.push(Size { services: 1, pods: arguments.large.into() });
    }
    sizes
}

fn plan(arguments: &Arguments) -> Plan {
    let parts = if arguments.only.is_empty() { Part::value_variants().to_vec() } else { arguments.only.clone() };
    Plan { parts, clients: arguments.clients.into(), flips: arguments.flips.into() }
}

/// Ours, and the peer when its programs are there.
fn subjects(only: Option<Who>) -> anyhow::Result<Vec<Box<dyn Controlled>>> {
    program::subjects(
        only,
        || Ok(Box::new(Waypost::find()?.with(&PATIENT)) as _),
        || Ok(Box::new(Kubernetes::find_with_controllers()?) as _),
    )
}
