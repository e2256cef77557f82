//! The start of `waypost up`: how long until everything works, and what it costs to have it there.
//!
//! In: the program. Out: [`Figures`]. It is ready when it prints its last line, after Pods can be run, Services are served and DNS
//! queries are answered; then it stays idle for a while and its processor time is read.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::program::home;
use crate::report::{Figures, Row, less};
use crate::stats::{median, megabytes};
use crate::subject::Process;
use crate::waypost::Waypost;

/// The interval at which the log is read.
const LOOK: Duration = Duration::from_millis(1);
/// How long a start may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The last of the lines that `up` prints.
const LAST: &str = "\npage ";

/// The lines of the report.
#[must_use]
pub fn rows() -> Vec<Row> {
    vec![
        less("ready_ms", "from the start of the program until everything works, median (ms)", Some(500.0)),
        less("again_ms", "  the same in a directory that an earlier run has left (ms)", Some(500.0)),
        less("idle_mb", "memory while nothing happens (MB)", Some(60.0)),
        less("idle_percent", "processor while nothing happens (% of a core)", Some(1.0)),
    ]
}

/// Measures this number of starts, and then idles for this long.
///
/// # Errors
/// When the program does not start.
pub async fn measure(starts: u16, idle: Duration) -> anyhow::Result<Figures> {
    let program = Waypost::find()?;
    let (mut fresh, mut again, mut figures) = (Vec::new(), Vec::new(), Figures::default());
    for _ in 0..starts {
        let home = home()?;
        let (mut first, took) = up(&program, &home).await?;
        fresh.push(took);
        first.stop().await?;
        std::fs::remove_file(home.path().join("up.log")).context("forgetting the first log")?;
        let (mut second, took) = up(&program, &home).await?;
        again.push(took);
        second.stop().await?;
        clean(&program, &home).await?;
    }
    let home = home()?;
    let (mut quiet, _) = up(&program, &home).await?;
    sleep(idle / 4).await;
    let before = quiet.cpu()?;
    sleep(idle).await;
    let used = quiet.cpu()?.saturating_sub(before);
    figures.set("idle_mb", megabytes(quiet.memory()?.resident));
    figures.set("idle_percent", 100.0 * used.as_secs_f64() / idle.as_secs_f64());
    figures.set("ready_ms", median(&fresh));
    figures.set("again_ms", median(&again));
    quiet.stop().await?;
    clean(&program, &home).await?;
    Ok(figures)
}

/// Starts everything, and returns the milliseconds until it was ready.
async fn up(program: &Waypost, home: &TempDir) -> anyhow::Result<(Process, f64)> {
    let data = home.path().join("data");
    let arguments = ["up", "--node-name", "bench", "--dns-upstream", "none", "--data-dir", &data.to_string_lossy()];
    let begun = Instant::now();
    let mut process = Process::spawn(program.program(), &arguments.map(str::to_owned), home.path(), "up")?;
    loop {
        let log = std::fs::read_to_string(home.path().join("up.log")).unwrap_or_default();
        if log.contains(LAST) {
            return Ok((process, begun.elapsed().as_secs_f64() * 1e3));
        }
        process.check()?;
        ensure!(begun.elapsed() < TIMEOUT, "it was not ready in time:\n{log}");
        sleep(LOOK).await;
    }
}

/// Removes what a run has left.
async fn clean(program: &Waypost, home: &TempDir) -> anyhow::Result<()> {
    let data = home.path().join("data");
    let arguments = ["down", "--data-dir", &data.to_string_lossy()].map(str::to_owned);
    let mut down = Process::spawn(program.program(), &arguments, home.path(), "down")?;
    let begun = Instant::now();
    while down.is_running()? {
        ensure!(begun.elapsed() < TIMEOUT, "`down` did not end in time");
        sleep(LOOK).await;
    }
    Ok(())
}
