//! The controllers: how soon endpoints are right, from nothing and after one change, and what it costs.
//!
//! ```text
//! objects: the load ─▶ subject ─▶ tracker: watches slices and Endpoints ─▶ flips, measure ─▶ rows
//!                                 check: lists and compares everything before a figure counts
//! ```

pub mod check;
pub mod flips;
pub mod from_nothing;
pub mod measure;
pub mod objects;
pub mod rows;
pub mod sight;
mod tally;
pub mod tracker;
