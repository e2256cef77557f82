//! `http1`: measures the gateway's HTTP/1.1 client for Pods beside hyper's. See `docs/bench.md`.

use std::process::ExitCode;

use bench::http1::measure::{Plan, measure, rows};
use bench::program::{self, Common};
use bench::report::Report;
use clap::Parser;

/// The allocator of the program `waypost`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures `gateway::http1` and hyper's client on one thread, alternately, over TCP and TLS on loopback.
#[derive(Parser)]
struct Arguments {
    /// Requests of a round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: u32,
    /// Over so many connections
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: Vec<u16>,
    /// How many rounds; the median counts
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// A small load, to see that everything works
    #[arg(long, conflicts_with_all = ["requests", "rounds"])]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { requests: 2000, rounds: 1, ..arguments };
    }
    // The clients and the server have threads and runtimes of their own.
    let limit = arguments.common.limit(1800);
    program::exec("http1", 1, limit, async { tokio::task::spawn_blocking(move || run(&arguments)).await? })
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { requests, rounds, .. } = arguments;
    let plan = Plan {
        requests: usize::try_from(*requests)?,
        connections: arguments.connections.iter().map(|count| usize::from(*count)).collect(),
        rounds: usize::from(*rounds),
    };
    let mut about = program::machine();
    about.push(("load".to_owned(), format!("{rounds} rounds of {requests} requests for each client, medians")));
    let [ours, peer] = measure(&plan)?;
    let report = Report { about, rows: rows(&plan), peer_name: "hyper", ours: Some(ours), peer: Some(peer) };
    program::publish(&report, arguments.common.json.as_deref())
}
