//! The API server: HTTP, authentication, authorization, admission, verbs, watches.
//!
//! In: HTTP requests. Out: transactions in the store, responses and watch streams. `server` accepts connections; `handler` routes,
//! authenticates and authorizes a request, queues it with `fairness` and runs one of the `verbs`; `registry` runs the rules of the kind
//! and commits; `view` and `watch` encode objects.
//!
//! Clients use the crate `client`; `local` is its watch within the process of the server, `join` adds a machine to the cluster.

mod body;
mod bundle_verifier;
mod compress;
mod connections;
mod conversion;
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
mod non_resource;
mod offload;
mod openapi;
mod query;
mod registry;
mod reply;
mod request;
mod reviews;
mod route;
mod server;
mod service_backends;
mod ui;
mod upload;
mod verbs;
mod version;
mod view;
mod watch;
mod webhooks;

pub mod audit;
pub mod auth;
pub mod authz;
pub mod join;
pub mod kubeconfig;
pub mod local;
pub mod pki;

pub use connections::ConnectionLimits;
pub use metrics::ExtraMetrics;
pub use server::{LocalSocket, Options, Server};
