//! `waypost demo`: Services at work, told as it happens, in a small world of its own; then nothing is left.
//!
//! In: nothing but root. Out: ten acts on standard output and the exit code 0 when every one was seen; else the act that was not, and 1.
//! The acts are data ([`acts`]), what is done for each is in [`play`]. All of it happens apart from this machine:
//!
//! ```text
//! house: control group ─▶ stage (first process of its own namespaces): mounts, network ─▶ story ─▶ waypost up ─▶ Pods: backend
//!   ▲ takes the group away                                                                └─▶ acts ─▶ what was seen ─▶ judged, told
//! ```
//! When the stage ends, however it ends, the kernel takes everything away that was in it.

mod acts;
mod backend;
mod cluster;
mod house;
mod http;
mod load;
mod objects;
mod picture;
mod play;
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
    /// Say only how it ended
    #[arg(short, long)]
    quiet: bool,
    /// How to tell what happens
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// How long each act may take, in seconds
    #[arg(long, default_value = "20", value_parser = seconds, value_name = "SECONDS")]
    patience: Duration,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Output format.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// For people, while it happens.
    Text,
    /// For programs, at the end.
    Json,
}

/// The programs that a demo consists of. Not for people.
#[derive(Subcommand, Debug, Clone)]
enum Part {
    /// Set the stage, and wait for everybody on it
    #[command(hide = true)]
    Stage {
        /// The control group in which everything is to be
        group: String,
    },
    /// Play the acts, and tell of them
    #[command(hide = true)]
    Story,
    /// Make thumbnails for whoever asks
    #[command(hide = true)]
    Backend {
        /// Where to listen
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
    /// These settings for one of the programs of the demo.
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
