//! Nodes that renew Leases and an administrator who lists, without and with two accounts that keep the server as busy as they can.
//!
//! In: how much. Out: figures during the attack, and without one. A request of a node or of the administrator that fails ends the run.

use std::time::Duration;

use anyhow::Context as _;
use testbed::starvation::{Outcome, Samples, Scenario, node_tokens};

use crate::program::{home, tell};
use crate::report::Figures;
use crate::stats::{megabytes, percentile, seconds};
use crate::subject::Subject as _;
use crate::waypost::Waypost;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Services that the administrator lists.
    pub services: usize,
    /// Renewals of each node.
    pub rounds: usize,
    /// How often both are measured, in turn.
    pub repeats: usize,
}

/// Measures; the figures during the attack, and without one.
///
/// # Errors
/// When the server fails at something.
pub async fn measure(size: Size) -> anyhow::Result<(Figures, Figures)> {
    let home = home()?;
    let tokens = home.path().join("tokens.csv");
    std::fs::write(&tokens, node_tokens()).context("writing tokens")?;
    let waypost = Waypost::find()?.with(&["--token-auth-file", &tokens.to_string_lossy()]);
    tell(&waypost, "starvation");
    let running = waypost.start(home.path()).await?;
    let directory = home.path().to_owned();
    let work = move || {
        let scenario = Scenario::prepare(&directory, size.services);
        (0..size.repeats).map(|_| (scenario.observe(size.rounds), attacked(&scenario, size.rounds))).collect::<Vec<_>>()
    };
    // It has its own runtimes, and panics when a request fails.
    let done = tokio::task::spawn_blocking(work).await.context("a request failed")?;
    let (mut during, mut without) = (Figures::default(), Figures::default());
    let (mut calm, mut busy) = (Samples::default(), Samples::default());
    for (quiet, (attacked, outcome)) in done {
        tell(&waypost, &format!("{}; {}; {outcome:?}", describe(&quiet), describe(&attacked)));
        add(&mut calm, quiet);
        add(&mut busy, attacked);
    }
    set(&mut during, &busy);
    set(&mut without, &calm);
    during.set("attack_memory_mb", megabytes(running.memory()?.peak));
    running.stop().await?;
    Ok((during, without))
}

fn attacked(scenario: &Scenario, rounds: usize) -> (Samples, Outcome) {
    let attack = scenario.attack();
    let samples = scenario.observe(rounds);
    (samples, attack.end())
}

fn add(all: &mut Samples, samples: Samples) {
    all.renewals.extend(samples.renewals);
    all.lists.extend(samples.lists);
}

fn milliseconds(samples: &[Duration], part: f64) -> f64 {
    percentile(&seconds(samples), part) * 1e3
}

fn describe(samples: &Samples) -> String {
    let p99 = |samples: &[Duration]| milliseconds(samples, 0.99);
    format!("p99 of renewals {:.1} ms, of lists {:.1} ms", p99(&samples.renewals), p99(&samples.lists))
}

fn set(figures: &mut Figures, samples: &Samples) {
    for (name, samples) in [("renewal", &samples.renewals), ("admin", &samples.lists)] {
        for (part, percentile) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figures.set(&format!("{name}_{part}_ms"), milliseconds(samples, percentile));
        }
    }
}
