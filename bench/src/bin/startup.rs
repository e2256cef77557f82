//! `startup`: measures the first moment of `waypost up`, and what it costs to have it there. See `docs/bench.md`.

use std::process::ExitCode;
use std::time::Duration;

use bench::program::{self, Common};
use bench::report::Report;
use bench::startup;
use clap::Parser;

/// Measures the start of `waypost up`. Needs root: everything happens in a network namespace.
#[derive(Parser)]
struct Arguments {
    /// How many starts
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    starts: u16,
    /// How many seconds to idle
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    idle: u16,
    /// A small load, to see that everything works: 2 starts, 4 seconds
    #[arg(long, conflicts_with_all = ["starts", "idle"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { starts: 2, idle: 4, ..arguments };
    }
    program::exec_apart("startup", arguments.common.limit(600), || run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut about = program::machine();
    about.push(("waypost".to_owned(), "waypost up: server, controllers, proxy, names, agent".to_owned()));
    about.push(("starts".to_owned(), arguments.starts.to_string()));
    let figures = startup::measure(arguments.starts, Duration::from_secs(arguments.idle.into())).await?;
    let report = Report { about, rows: startup::rows(), peer_name: "nobody", ours: Some(figures), peer: None };
    program::publish(&report, arguments.common.json.as_deref())
}
