//! What is wrong with a Service: evidence becomes findings, findings become one verdict.
//!
//! ```text
//! commands::doctor (asks the API, the kernel, the network) ─▶ Evidence ─▶ checks, in order ─▶ Findings ─▶ Verdict ─▶ text or JSON
//! ```
//! What objects alone say is found by [`diagnose`], so that conditions, `explain` and the doctor say the same; the checks here add
//! what this machine shows. Everything is pure: a check sees what was gathered and nothing else, so what it says can be shown by a
//! test without a cluster. Checks stand in the order of cause and effect: the first that is disproved is the verdict, what follows from it is said
//! beside it. What was not measured is said to be so, with the reason and the way to measure it.

mod checks;
mod evidence;
mod rungs;
pub(crate) mod security;
mod show;
mod verdict;
mod words;

pub(crate) use checks::SETTINGS;
pub(crate) use evidence::{Cluster, Dial, Endpoint, Evidence, Here, Measured, NameAnswer, Rules, Tried, Unmeasured};
pub(crate) use rungs::rungs;
pub(crate) use show::{json, text};
pub(crate) use verdict::{Verdict, examine};

#[cfg(test)]
mod testing;
