//! `fairness`: measures what RBAC, audit log and fair queues cost, and what they are worth during an attack. See `docs/bench.md`.

use std::process::ExitCode;

use bench::fairness::{overhead, rows, starvation};
use bench::program::{self, Common};
use bench::report::{Figures, Report};
use clap::{Parser, ValueEnum};

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Creations, reads and lists with RBAC, audit log and fair queues, and without.
    Overhead,
    /// Nodes and an administrator beside two accounts that keep the server busy.
    Starvation,
}

/// Measures what RBAC, audit log and fair queues cost, and what they are worth during an attack.
#[derive(Parser)]
struct Arguments {
    /// Measure only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Clients that send at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Creations of one round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(10..=20_000))]
    requests: u16,
    /// Rounds of creations
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Renewals of each node in one observation
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    renewals: u16,
    /// Observations, with and without the attack in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeats: u16,
    /// A small load, to see that everything works
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments = Arguments { requests: 100, rounds: 2, renewals: 5, repeats: 1, ..arguments };
    }
    program::exec("fairness", 2, arguments.common.limit(1800), run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut about = program::machine();
    about.push(("waypost".to_owned(), "waypost server, embedded store".to_owned()));
    let (mut ours, mut without) = (Figures::default(), Figures::default());
    if arguments.only != Some(Part::Starvation) {
        let (clients, requests) = (arguments.clients.into(), arguments.requests.into());
        let size = overhead::Size { clients, requests, rounds: arguments.rounds.into() };
        add(&mut ours, &mut without, overhead::measure(size).await?);
    }
    if arguments.only != Some(Part::Overhead) {
        let (rounds, repeats) = (arguments.renewals.into(), arguments.repeats.into());
        let size = starvation::Size { services: 1000, rounds, repeats };
        add(&mut ours, &mut without, starvation::measure(size).await?);
    }
    let report = Report { about, rows: rows::rows(), peer_name: "without", ours: Some(ours), peer: Some(without) };
    program::publish(&report, arguments.common.json.as_deref())
}

fn add(ours: &mut Figures, without: &mut Figures, part: (Figures, Figures)) {
    ours.extend(part.0);
    without.extend(part.1);
}
