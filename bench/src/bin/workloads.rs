//! `workloads`: measures Pods on one machine, from their creation until they are reached through a Service. See `docs/bench.md`.

use std::process::ExitCode;

use bench::program::{self, Common};
use bench::report::Report;
use bench::workloads::machine::Machine;
use bench::workloads::{measure, rows};
use clap::Parser;

/// Measures Pods on one machine. Needs root: everything happens in network namespaces.
#[derive(Parser)]
struct Arguments {
    /// With so many Pods on the machine
    #[arg(long, value_delimiter = ',', default_value = "1,100,500", value_parser = clap::value_parser!(u16).range(1..=900))]
    pods: Vec<u16>,
    /// How many Pods are measured beside these, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    samples: u16,
    /// A small load, to see that everything works: 1 and 5 Pods, 5 measured
    #[arg(long, conflicts_with_all = ["pods", "samples"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { pods: vec![1, 5], samples: 5, ..arguments };
    }
    program::exec_apart("workloads", arguments.common.limit(1800), || run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut about = program::machine();
    about.push((
        "waypost".to_owned(),
        "waypost server and waypost node, nftables, process runtime, no probe".to_owned(),
    ));
    about.push(("samples".to_owned(), arguments.samples.to_string()));
    let counts: Vec<usize> = arguments.pods.iter().map(|count| usize::from(*count)).collect();
    let machine = Machine::start().await?;
    let figures = measure::measure(&machine, &counts, arguments.samples.into()).await?;
    let report = Report { about, rows: rows::rows(&counts), peer_name: "kubelet", ours: Some(figures), peer: None };
    program::publish(&report, arguments.common.json.as_deref())
}
