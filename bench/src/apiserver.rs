//! The API server alone: how fast it starts, writes, lists and tells watchers, and the memory it takes.

pub mod measure;
pub mod rows;
pub mod watchers;
