//! The Kubernetes wire: HTTP in, objects in the store; objects out of the store, answers and watches out.
//!
//! `server` accepts connections, `handler` takes a request through route, identity and permission to one of the `verbs` when `fairness` says so,
//! `registry` runs the rules of the kind and commits, `view` and `watch` write what the client asked to see.
//!
//! Clients of the API use the crate `client`; `local` is its watch within the process of the server, `join` makes a machine a node.

mod body;
mod compress;
mod connections;
mod dial;
mod discovery;
mod download;
mod dynamic_admission;
mod fairness;
mod forward;
mod handler;
mod memory;
mod metrics;
mod negotiate;
mod offload;
mod openapi;
mod page;
mod pages;
mod query;
mod registry;
mod reply;
mod request;
mod reviews;
mod route;
mod server;
mod service_backends;
mod upload;
mod verbs;
mod version;
mod view;
mod watch;

pub mod audit;
pub mod auth;
pub mod authz;
pub mod join;
pub mod kubeconfig;
pub mod local;
pub mod pki;

pub use connections::ConnectionLimits;
pub use metrics::Figures;
pub use server::{LocalSocket, Options, Server};
