//! `waypost version`: the release and the commit of this program.
//!
//! In: what the build script recorded. Out: one line, the same as of `--version`, or JSON.

use clap::{Args, ValueEnum};
use serde_json::json;

use cli::terminal;

/// The release, and the commit if the build knew it.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("WAYPOST_COMMIT_SUFFIX"));

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text, value_name = "FORMAT")]
    output: Output,
}

/// Formats of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// One line
    Text,
    /// An object with `version` and `commit`
    Json,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.output {
        Output::Text => terminal::print(&format!("waypost {VERSION}\n")),
        Output::Json => {
            let version = json!({"version": env!("CARGO_PKG_VERSION"), "commit": env!("WAYPOST_COMMIT")});
            terminal::print(&format!("{version}\n"))
        }
    }
}
