//! Measurements of the API server, of Waypost and of its peer beside it, in one run on one machine.
//!
//! A `subject` is something that can be started, stopped and asked how much memory it uses; `waypost` and `kubernetes` are
//! the two there are. `load` and `watchers` put the same requests to either through the same client. `measure` says what
//! is measured and in which order, `report` sets the figures beside each other and beside the budgets.

pub mod kubernetes;
pub mod load;
pub mod measure;
pub mod report;
pub mod stats;
pub mod subject;
pub mod watchers;
pub mod waypost;
