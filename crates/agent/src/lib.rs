//! The Pods of this machine: what runs, its logs, and the streams into it.
//!
//! ```text
//! API ──watch──▶ agent ─▶ pod (one task each) ──decide──▶ sandbox, runtime ─▶ shim (one process each) ─▶ container
//!                 ▲                └─ status, Events ─▶ API                          └─ log, exit, attach
//! ```
//! `workloads` is the seam between the two halves: one half runs Pods, the other serves people who look into them.

pub mod adapters;
pub mod agent;
pub mod amounts;
pub mod api;
pub mod command;
pub mod decide;
pub mod downward;
pub mod environment;
pub mod events;
pub mod facts;
pub mod files;
pub mod followed;
pub mod home;
pub mod images;
pub mod inside;
pub mod machine;
pub mod names;
pub mod node;
pub mod oci;
pub mod pod;
pub mod pool;
pub mod probes;
mod ready;
pub mod runtime;
pub mod sandbox;
mod seccomp;
pub mod serve;
pub mod settings;
pub mod shim;
pub mod streams;
pub mod volumes;
pub mod workloads;
