//! The API server alone: startup time, latency of writes, lists and watch events, and memory usage.

pub mod measure;
pub mod rows;
pub mod watchers;
