//! Why a Service does not work: evidence becomes results of checks, and these become one verdict.
//!
//! ```text
//! commands::doctor (reads the API, the kernel, the network) ─▶ Evidence ─▶ checks, in order ─▶ CheckOutcomes ─▶ Verdict ─▶ text or JSON
//! ```
//! Findings from objects alone are those of [`diagnose`], as in conditions, Events, `explain` and the page; the checks here add what this
//! machine shows. Everything is pure: a check reads the evidence and nothing else. Checks are in the order of cause and effect: the first that
//! fails is the verdict, and other failures are listed beside it. What was not measured is reported as such, with the reason and the way to measure it.

mod checks;
mod evidence;
mod measured;
pub(crate) mod security;
mod show;
mod verdict;
mod words;

pub(crate) use checks::SETTINGS;
pub(crate) use evidence::{Cluster, Dial, Endpoint, Evidence, Here, Measured, NameAnswer, Rules, Tried, Unmeasured};
pub(crate) use measured::measurements;
pub(crate) use show::{json, text};
pub(crate) use verdict::{Verdict, run_checks};

#[cfg(test)]
mod testing;
