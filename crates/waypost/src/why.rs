//! Why Services do what they do: `waypost explain`, `waypost trace`, `waypost who` and `waypost top`.
//!
//! In: the objects as the API has them, and what nodes report. Out: answers for people, or JSON. What is said to happen comes from
//! [`plan::oracle`], which the rules of every mode are held to; what is said to be there comes from the node itself, and where it
//! says nothing the answer is "not measured".

pub(crate) mod explain;
mod report;
mod top;
mod trace;
mod view;
mod who;
mod world;

use anyhow::Context as _;
use clap::Subcommand;

/// What to ask.
#[derive(Subcommand, Debug)]
pub(crate) enum Subject {
    /// Say step by step what happens to a packet to a Service
    Trace(trace::Arguments),
    /// Say whose an address or a port is
    Who(who::Arguments),
    /// Show the connections and bytes of Services and their backends as they are now
    Top(top::Arguments),
}

/// Answers.
pub(crate) fn run(subject: &Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Trace(arguments) => trace::exec(arguments),
        Subject::Who(arguments) => who::exec(arguments),
        Subject::Top(arguments) => top::exec(arguments),
    }
}

/// How an answer is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Waits for an answer.
fn wait<T>(answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(answer)
}

/// A document for programs, on lines of its own.
fn pretty(document: &serde_json::Value) -> String {
    format!("{document:#}\n")
}
