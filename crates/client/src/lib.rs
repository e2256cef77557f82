//! The client of the Kubernetes API, for everything that is not the API server.
//!
//! `kubeconfig` has the address and credentials of a server, `http` sends requests, `remote` keeps watches alive, `events` records Events,
//! `requests` is the port for reads and writes, `spdy` has the header blocks of port-forward streams. `watch` defines the events of a watch,
//! which are the same over HTTP and in the process of the API server (`rest::local`), so that components need not know where the server runs.

pub mod events;
pub mod http;
pub mod kubeconfig;
pub mod memory;
mod path;
pub mod remote;
pub mod requests;
pub mod spdy;
pub mod tls;
pub mod watch;
