//! The story: starts a cluster, runs the acts in order, checks and prints the result of each.
//!
//! In: prepared namespaces. Out: success, or an error with the failed act. On a signal it just ends: the kernel removes everything with the
//! namespaces.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use tokio::net::unix::pipe::Receiver;

use super::Arguments;
use super::acts::ACTS;
use super::cluster::{self, Cluster, Deadline};
use super::play::Play;
use super::seen::judge;
use super::tell::Teller;
use crate::commands::server;

/// Timeout of the start of the cluster.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs all acts.
pub(super) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = server::runtime()?;
    let told = runtime.block_on(async {
        tokio::select! {
            told = tell(arguments) => told,
            () = server::stop_signal() => Err(anyhow!("the demo was stopped before its end")),
            _ = parent_gone() => Err(anyhow!("the demo was stopped before its end")),
        }
    });
    // Requests in progress are abandoned.
    runtime.shutdown_background();
    told
}

/// Returns when the parent process is gone, or stops the demo.
async fn parent_gone() -> std::io::Result<()> {
    // Standard input is a pipe into which nothing is written: it becomes readable when its other end is closed.
    let input = Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    input.readable().await
}

async fn tell(arguments: &Arguments) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut teller = Teller::new(arguments);
    teller.opens("Services at work, on a node of their own: nothing of this machine is touched.");
    let cluster = Cluster::start(Deadline::of(START_TIMEOUT)).await.context("before the first act")?;
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
        let seen = play.act(number, Deadline::of(arguments.patience)).await;
        let judged = seen.and_then(|seen| judge(&seen)).map_err(|error| format!("{error:#}"));
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
            cluster::log_tail()
        );
    }
    ended
}
