//! `failover`: measures how long an address of a load balancer is unreachable when its node dies. See `docs/bench.md`.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::report::Report;
use bench::{failover, program};
use clap::Parser;

/// Measures how long an announced address is unreachable when its node dies. Needs root: everything happens in network
/// namespaces.
#[derive(Parser)]
struct Arguments {
    /// How many nodes are killed, and how many are terminated gracefully
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=30))]
    times: u16,
    /// A small load, to see that everything works: 2 of each
    #[arg(long, conflicts_with = "times")]
    quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let times = if arguments.quick { 2 } else { arguments.times };
    let mut about = program::machine();
    about.push((
        "waypost".to_owned(),
        "waypost server and two waypost nodes at a time, announcing by layer 2".to_owned(),
    ));
    about.push(("times".to_owned(), times.to_string()));
    let published = failover::measure(times).and_then(|figures| {
        let report = Report { about, rows: failover::rows(), peer_name: "nobody", ours: Some(figures), peer: None };
        program::publish(&report, arguments.json.as_deref())
    });
    match published {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failover: {error:#}");
            ExitCode::FAILURE
        }
    }
}
