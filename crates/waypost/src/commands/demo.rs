//! `waypost demo`: demonstrates Services in isolated namespaces, prints each step, and removes everything.
//!
//! In: root. Out: the acts on standard output and the exit code 0 when all succeeded; else the act that failed, and 1.
//! The acts are data ([`acts`]), their actions are in [`play`], the checks of their results in [`seen`]. Everything is isolated from this machine:
//!
//! ```text
//! house: control group ─▶ stage (first process of its own namespaces): mounts, network ─▶ story ─▶ waypost up ─▶ Pods: backend
//!   ▲ removes the group                                                                   └─▶ acts ─▶ observations ─▶ checked, printed
//! ```
//! When the init process of the stage exits, for whatever reason, the kernel removes everything in its namespaces.

mod acts;
mod backend;
mod cluster;
mod house;
mod http;
mod load;
mod objects;
mod picture;
mod play;
mod seen;
mod stage;
mod story;
mod tell;

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};

pub(super) use self::house::sweep;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
#[command(disable_help_subcommand = true, override_usage = "waypost demo [OPTIONS]")]
pub(crate) struct Arguments {
    /// Print only the result
    #[arg(short, long)]
    quiet: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// Timeout of each act, in seconds
    #[arg(long, default_value = "20", value_parser = seconds, value_name = "SECONDS")]
    patience: Duration,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Output format.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// Text, while the demo runs.
    Text,
    /// JSON, at the end.
    Json,
}

/// The internal programs of a demo.
#[derive(Subcommand, Debug, Clone)]
enum Part {
    /// Prepare the namespaces, and reap processes
    #[command(hide = true)]
    Stage {
        /// The control group of all processes
        group: String,
    },
    /// Run the acts, and print their results
    #[command(hide = true)]
    Story,
    /// Serve thumbnails over HTTP
    #[command(hide = true)]
    Backend {
        /// The port to listen on
        #[arg(long)]
        port: u16,
    },
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.part {
        None => house::exec(arguments),
        Some(Part::Stage { group }) => stage::exec(arguments, group),
        Some(Part::Story) => story::exec(arguments),
        Some(Part::Backend { port }) => backend::exec(*port),
    }
}

impl Arguments {
    /// These settings for one of the internal programs.
    fn words(&self, part: &[&str]) -> Vec<String> {
        let mut words = vec!["demo".to_owned(), format!("--patience={}", self.patience.as_secs_f64())];
        words.extend(self.quiet.then(|| "--quiet".to_owned()));
        words.extend((self.output == Output::Json).then(|| "--output=json".to_owned()));
        words.extend(part.iter().map(|word| (*word).to_owned()));
        words
    }
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let number: Option<f64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    duration.context("expected a number of seconds, such as 20")
}
