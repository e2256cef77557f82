//! The gateway's HTTP/1.1 client for Pods beside hyper's client, without a gateway around them.
//!
//! In: how many requests and connections. Out: [`Figures`](crate::report::Figures) of each client. Both run on a thread like a worker of the
//! gateway and send the same requests to the same [`server`]. `exchange` has the two clients, `measure` the rounds.

pub mod exchange;
pub mod measure;
pub mod server;
