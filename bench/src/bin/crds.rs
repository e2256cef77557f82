//! `crds`: measures custom resources, beside kube-apiserver and etcd when their programs are there. See `docs/bench.md`.

use std::process::ExitCode;

use bench::apiserver::watchers::Size;
use bench::crds::measure::{self, Part, Plan};
use bench::crds::rows;
use bench::program::{self, Common, Who};
use bench::report::Figures;
use bench::subject::Subject;
use clap::{Parser, ValueEnum as _};

/// How many events come alone, before the burst.
const SINGLE_EVENTS: usize = 50;

/// Measures custom resources. Set WAYPOST_PEERS to a directory with kube-apiserver and etcd to measure them as well.
#[derive(Parser)]
struct Arguments {
    /// How many objects are created, listed and watched
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// How many definitions there are in the end
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(2..=5000))]
    definitions: u16,
    /// How many of them are created one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    single: u16,
    /// Clients that write at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Watchers of one collection
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=5000))]
    watchers: u16,
    /// Events of the burst, each delivered to every watcher
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=5000))]
    events: u16,
    /// A small load, to see that everything works
    #[arg(long, conflicts_with_all = ["objects", "definitions", "single", "watchers", "events"])]
    quick: bool,
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
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { objects: 300, definitions: 30, single: 5, watchers: 10, events: 20, ..arguments };
    }
    program::exec("crds", arguments.threads, arguments.common.limit(3600), run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = plan(arguments);
    let rows = rows::rows(&plan);
    let measure = async |subject: &dyn Subject, part: Part, figures: &mut Figures| {
        measure::part(subject, part, &plan, figures).await
    };
    let report = program::compare_api_servers(arguments.subject, &plan.parts, rows, measure).await?;
    program::publish(&report, arguments.common.json.as_deref())
}

fn plan(arguments: &Arguments) -> Plan {
    let single = usize::from(arguments.single.min(arguments.definitions - 1));
    Plan {
        parts: if arguments.only.is_empty() { Part::value_variants().to_vec() } else { arguments.only.clone() },
        objects: arguments.objects as usize,
        definitions: usize::from(arguments.definitions) - single,
        single,
        clients: arguments.clients.into(),
        fan_out: Size { watchers: arguments.watchers.into(), single: SINGLE_EVENTS, burst: arguments.events.into() },
    }
}
