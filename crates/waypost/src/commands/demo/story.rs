//! The story: a cluster is started, one act follows the other, each is looked at and judged, and told as it happens.
//!
//! In: a stage. Out: every act was seen, or an error that names the one that was not. Whoever is asked to stop just stops: what is on the
//! stage goes with it.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use tokio::net::unix::pipe::Receiver;

use super::Arguments;
use super::acts::{ACTS, judge};
use super::cluster::{self, Cluster, Patience};
use super::play::Play;
use super::tell::Teller;
use crate::commands::server;

/// How long it may take until there is a cluster.
const START: Duration = Duration::from_secs(20);

/// Plays all of it.
pub(super) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = server::runtime()?;
    let told = runtime.block_on(async {
        tokio::select! {
            told = tell(arguments) => told,
            () = server::stop_signal() => Err(anyhow!("the demo was stopped before its end")),
            _ = nobody_listens() => Err(anyhow!("the demo was stopped before its end")),
        }
    });
    // Requests that are under way are of no interest any more.
    runtime.shutdown_background();
    told
}

/// Comes back when whoever began the demo is gone, or wants it to stop.
async fn nobody_listens() -> std::io::Result<()> {
    // It is a pipe into which nothing is written: it can be read when its other end is closed.
    let input = Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    input.readable().await
}

async fn tell(arguments: &Arguments) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut teller = Teller::new(arguments);
    teller.opens("Services at work, on a node of their own: nothing of this machine is touched.");
    let cluster = Cluster::start(Patience::of(START)).await.context("before the first act")?;
    let mode = cluster.mode.clone();
    teller.opens(&format!(
        "A `waypost up` runs there: API server, controllers, proxy ({mode}), DNS, Pods; ready after {:.1} s.",
        begun.elapsed().as_secs_f64()
    ));
    let mut play = Play::new(cluster);
    let mut failure = None;
    for (place, act) in ACTS.iter().enumerate() {
        let (number, started) = (place + 1, Instant::now());
        teller.begins(number, act);
        let seen = play.act(number, Patience::of(arguments.patience)).await;
        let judged = seen.map_err(|error| format!("{error:#}")).and_then(|seen| judge(&seen));
        match judged {
            Ok(lines) => teller.seen(number, act, &lines, started.elapsed()),
            Err(why) => {
                teller.failed(number, act, &why, started.elapsed());
                failure = Some((number, act, why));
                break;
            }
        }
    }
    let ended = match failure {
        None => play.end().await,
        Some(_) => Ok(()),
    };
    teller.ends(ACTS.len(), &mode, begun.elapsed());
    if let Some((number, act, why)) = failure {
        bail!(
            "act {number} of {}, {}: {} must be seen; seen was: {why}\nThe node logged last:\n{}",
            ACTS.len(),
            act.title,
            act.must,
            cluster::last_words()
        );
    }
    ended
}
