//! Traffic: each program with each protocol over several numbers of connections, round by round.
//!
//! In: a [`Plan`]. Out: the figures of each program: the medians of the rounds.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use testbed::net::Outside;

use super::contender::{Contender, Kind, Running};
use super::grpc_pod;
use super::load::{self, Amount, Load, Outcome, Secure};
use super::rows::traffic_key;
use crate::lb::stage::{GRPC_TARGET, HOST, Stage};
use crate::report::Figures;
use crate::stats::{each, median, percentile, seconds};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Protocols.
    pub loads: Vec<Load>,
    /// Numbers of connections, each measured separately.
    pub connections: Vec<usize>,
    /// Threads of the client.
    pub threads: usize,
    /// Requests at once on a connection of HTTP/2.
    pub streams: usize,
    /// How long each load lasts.
    pub lasting: Duration,
    /// How many rounds.
    pub rounds: usize,
    /// Whether `wrk` measures HTTP/1.1 as well.
    pub wrk: bool,
}

/// What a program came to, round by round.
#[derive(Default)]
struct Samples(Vec<(String, Vec<f64>)>);

impl Samples {
    fn add(&mut self, key: String, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.0.push((key, vec![value])),
        }
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        self.0.iter().for_each(|(key, values)| figures.set(key, median(values)));
        figures
    }
}

/// Measures all programs.
///
/// # Errors
/// When one fails at something.
pub fn measure(plan: &Plan, contenders: &[Contender]) -> anyhow::Result<Vec<Figures>> {
    let stage = Stage::new()?;
    grpc_pod::serve(&stage.pod, GRPC_TARGET)?;
    let tls = Secure::new(&stage.file("web.crt"))?;
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for round in 0..plan.rounds {
        // Each is the first in some round: the machine is not equally fast at all times.
        for turn in 0..contenders.len() {
            let place = (round + turn) % contenders.len();
            let (contender, samples) = (&contenders[place], &mut samples[place]);
            eprintln!("{}: traffic, round {} of {}", contender.kind.name(), round + 1, plan.rounds);
            let running = contender.start(&stage)?;
            let done = one(plan, &stage, contender.kind, &running, &tls, samples);
            done.with_context(|| format!("{}; it printed: {}", contender.kind.name(), running.log()))?;
        }
    }
    Ok(samples.iter().map(Samples::figures).collect())
}

fn one(
    plan: &Plan,
    stage: &Stage,
    kind: Kind,
    running: &Running,
    tls: &Secure,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    for load in &plan.loads {
        let to = load.address(&running.addresses);
        load::until_served(&stage.outside, to, *load, tls)?;
        for connections in &plan.connections {
            let (connections, lasting) = (*connections, plan.lasting);
            let amount = Amount { connections, threads: plan.threads, streams: plan.streams, lasting };
            let outcome = load::run(&stage.outside, to, *load, tls, amount, || running.worked());
            take(
                samples,
                *load,
                connections,
                &outcome.with_context(|| format!("{load:?}, {connections} connections"))?,
            );
            if plan.wrk && *load == Load::Http {
                let rate = wrk(&stage.outside, &to.to_string(), amount)?;
                eprintln!("{}: {connections} connections: {rate} requests per second by wrk", kind.name());
                samples.add(traffic_key(*load, "wrk", connections), rate);
            }
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "fewer answers than 2^52")]
fn take(samples: &mut Samples, load: Load, connections: usize, outcome: &Outcome) {
    let times = seconds(&outcome.times);
    let mut add = |what: &str, value: f64| samples.add(traffic_key(load, what, connections), value);
    add("rate", outcome.times.len() as f64 / outcome.lasted.as_secs_f64());
    add("p50_us", median(&times) * 1e6);
    add("p99_us", percentile(&times, 0.99) * 1e6);
    add("cpu_us", each(outcome.worked, outcome.times.len()));
}

/// Requests per second of HTTP/1.1 by another load generator.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it needs")]
fn wrk(from: &Outside, to: &str, amount: Amount) -> anyhow::Result<f64> {
    let mut command = Command::new("wrk");
    let threads = amount.threads.min(amount.connections);
    command.args([
        format!("-t{threads}"),
        format!("-c{}", amount.connections),
        format!("-d{}s", amount.lasting.as_secs().max(1)),
    ]);
    command.args(["-H", &format!("Host: {HOST}"), &format!("http://{to}/index.html")]);
    let run = from.run(command);
    ensure!(run.ok && !run.out.contains("Non-2xx"), "wrk: {}{}", run.out, run.err);
    let line = run.out.lines().find_map(|line| line.strip_prefix("Requests/sec:")).context("wrk prints no rate")?;
    line.trim().parse().context("the rate of wrk")
}
