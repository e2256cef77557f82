//! Explanations of Services: `waypost explain`, `waypost trace`, `waypost who` and `waypost top`.
//!
//! Gateways, routes and Ingresses are explained too, and `trace` shows which rule takes an HTTP request.
//!
//! In: the objects of the API, and the reports of nodes. Out: text or JSON. The path of packets comes from [`plan::oracle`], with which the
//! rules of every mode are tested; the state of a node comes from its report, and without one it is "not measured".

mod cluster;
pub(crate) mod explain;
mod node_view;
mod report;
mod request;
pub(crate) mod routes;
mod top;
mod trace;
mod who;

use anyhow::Context as _;
use clap::Subcommand;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Subject {
    /// Show step by step what happens to a packet to a Service, or to an HTTP request
    Trace(trace::Arguments),
    /// Show the owner of an address or a port
    Who(who::Arguments),
    /// Show the current connections and bytes of Services and their backends
    Top(top::Arguments),
}

/// Runs a command.
///
/// # Errors
/// When the API cannot be read, or arguments name nothing.
pub fn run(subject: &Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Trace(arguments) => trace::exec(arguments),
        Subject::Who(arguments) => who::exec(arguments),
        Subject::Top(arguments) => top::exec(arguments),
    }
}

/// Output formats.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// Runs a future in a runtime of this thread.
fn wait<T>(answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(answer)
}

/// A document as indented JSON.
fn pretty(document: &serde_json::Value) -> String {
    format!("{document:#}\n")
}
