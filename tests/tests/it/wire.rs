//! The wire itself: what a client sees that no well-behaved client library would show.
//!
//! Each file below asks one question: who comes in, in which forms answers come, which limits hold, and what hostile input
//! costs. They speak through `testbed::wire` (bytes) and `curl` (HTTP/2).

mod access;
mod formats;
mod hostile;
mod limits;
mod metrics;
