//! Measurements of Waypost and of its peer beside it, in one run on one machine.
//!
//! A `subject` can be started and stopped, and its memory usage be read; `waypost` and `kubernetes` are its two implementations. `load` sends the
//! same requests to either through the same client. `apiserver`, `crds`, `fairness`, `controllers`, `proxy`, `modes`, `dns`, `lb`, `gateway`,
//! `http1` and `workloads` define what is measured and in which order, one for each program; `sentry` polls for a condition, `report` compares the
//! figures with each other and with the budgets, and `program` has what the programs share.

pub mod apiserver;
pub mod controllers;
pub mod crds;
pub mod dns;
pub mod failover;
pub mod fairness;
pub mod gateway;
pub mod http1;
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
