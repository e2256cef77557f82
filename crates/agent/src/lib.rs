//! The node agent (kubelet): runs the Pods of a node, and serves logs, exec, attach and port-forward.
//!
//! ```text
//! API ──watch──▶ agent ─▶ pod (one task each) ──decide──▶ sandbox, runtime ─▶ shim (one process each) ─▶ container
//!                 ▲                └─ status, Events ─▶ API                          └─ log, exit, attach
//! ```
//! `workloads` is the interface between the part that runs Pods and the HTTPS endpoint (`serve`). Modules have no import cycles; a repository
//! test checks this.

pub mod adapters;
pub mod agent;
pub mod api;
pub mod command;
mod container_error;
pub mod data_dir;
pub mod decide;
pub mod downward;
pub mod environment;
pub mod events;
pub mod facts;
pub mod files;
pub mod images;
pub mod inside;
pub mod machine;
pub mod metrics;
pub mod names;
pub mod node;
pub mod object_watches;
pub mod pod;
mod pod_event;
pub mod pool;
pub mod probes;
pub mod quantities;
mod ready;
pub mod rules;
pub mod runtime;
pub mod sandbox;
mod sandbox_error;
mod seccomp;
pub mod serve;
pub mod settings;
pub mod shim;
pub mod storage;
pub mod streams;
pub mod volumes;
pub mod workloads;
