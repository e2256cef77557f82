//! Why a Service does not work: evidence becomes results of checks, and these become one verdict.
//!
//! ```text
//! waypost::commands::doctor (reads the API, the kernel, the network) ─▶ Evidence ─▶ checks, in order ─▶ CheckOutcomes ─▶ Verdict ─▶ text or JSON
//! ```
//! Gateways, routes and Ingresses have no checks: their findings from objects are listed after the Services ([`Routes`]).
//! Findings from objects alone are those of [`diagnose`], as in conditions, Events, `explain` and the page; the checks here add what this
//! machine shows. Everything is pure: a check reads the evidence and nothing else. Checks are in the order of cause and effect: the first that
//! fails is the verdict, and other failures are listed beside it. What was not measured is reported as such, with the reason and the way to measure it.

mod checks;
mod evidence;
mod format;
mod layer7;
mod machine;
mod measured;
pub mod objects;
pub mod security;
mod show;
mod verdict;

pub use checks::SETTINGS;
pub use evidence::{Cluster, Dial, Endpoint, Evidence, Measured, NameAnswer, NameError, Port, Probes, Unmeasured};
pub use layer7::Routes;
pub use machine::{DropRule, Firewall, Flow, Hook, Machine, Packet, Rules};
pub use measured::measurements;
pub use show::{json, text};
pub use verdict::{Verdict, run_checks};

#[cfg(test)]
mod testing;
