//! Cluster DNS.
//!
//! Objects flow in through watches, become records prepared for the wire ([`records`]), and are published without locks
//! ([`book`]); questions flow in through sockets and are answered from what is published ([`answer`]). Names that are
//! not ours go to whoever stands [`beyond`].

pub mod answer;
pub mod beyond;
pub mod book;
pub mod config;
pub mod corefile;
pub mod explain;
pub mod inputs;
pub mod metrics;
pub mod place;
pub mod records;
pub mod reload;
pub mod resolver;
pub mod serve;
mod shards;
pub mod wire;
pub mod zone;
