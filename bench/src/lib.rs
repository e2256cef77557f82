//! Measurements of Waypost and of its peer beside it, in one run on one machine.
//!
//! A `subject` is something that can be started, stopped and asked how much memory it uses; `waypost` and `kubernetes` are
//! the two there are. `load` puts the same requests to either through the same client. `apiserver`, `fairness`, `controllers`, `proxy`, `modes`, `dns`, `lb` and `workloads` say
//! what is measured and in which order, one for each program; `sentry` waits for a moment, `report` sets the figures beside each other and beside the budgets,
//! and `program` is what the programs have in common.

pub mod apiserver;
pub mod controllers;
pub mod dns;
pub mod failover;
pub mod fairness;
pub mod kubernetes;
pub mod lb;
pub mod lines;
pub mod load;
pub mod modes;
pub mod program;
pub mod proxy;
pub mod report;
pub mod sentry;
pub mod startup;
pub mod stats;
pub mod subject;
pub mod waypost;
pub mod workloads;
