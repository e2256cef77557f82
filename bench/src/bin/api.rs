//! `api`: measures the API server, beside kube-apiserver and etcd when their programs are there. See `docs/bench.md`.

use std::process::ExitCode;

use bench::apiserver::measure::{self, Part, Plan};
use bench::apiserver::rows;
use bench::apiserver::watchers::Size;
use bench::program::{self, Common, Who};
use bench::report::Figures;
use bench::subject::Subject;
use clap::{Parser, ValueEnum as _};

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
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::exec("api", arguments.threads, arguments.common.limit(3600), run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = plan(arguments);
    let rows = rows::rows(&plan.objects, plan.fan_out.watchers);
    let measure = async |subject: &dyn Subject, part: Part, figures: &mut Figures| {
        measure::part(subject, part, &plan, figures).await
    };
    let report = program::compare_api_servers(arguments.subject, &plan.parts, rows, measure).await?;
    program::publish(&report, arguments.common.json.as_deref())
}

fn plan(arguments: &Arguments) -> Plan {
    let mut objects: Vec<usize> = arguments.objects.iter().map(|count| *count as usize).collect();
    objects.sort_unstable();
    objects.dedup();
    let parts = if arguments.only.is_empty() { Part::value_variants().to_vec() } else { arguments.only.clone() };
    let fan_out = Size { watchers: arguments.watchers.into(), single: SINGLE_EVENTS, burst: arguments.events.into() };
    Plan { parts, objects, clients: arguments.clients.into(), fan_out }
}
