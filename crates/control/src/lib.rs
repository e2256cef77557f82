//! Controllers: they look at what is stored and write what should be.
//!
//! A controller is a pure function from a [`Snapshot`] of one revision to [`Write`]s; the [`runner`] takes the snapshot, runs
//! the controllers of its [`table`](runner::CONTROLLERS), and commits what they ask for under the condition that nothing they
//! looked at has changed. [`bootstrap`] makes the objects without which a cluster is not one.

pub mod bootstrap;
pub mod repair;
pub mod runner;
pub mod service_cidrs;

mod report;
mod snapshot;
mod write;

pub use snapshot::{Held, Holder, Reference, Seen, Setting, Snapshot};
pub use write::{Write, commit};
