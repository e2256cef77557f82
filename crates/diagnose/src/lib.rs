//! The diagnosis of a Service, and of layer 7 ([`layer7`]): from objects to findings with stable codes.
//!
//! ```text
//! Service, EndpointSlices, Pods, Nodes ──▶ diagnose() ──▶ Diagnosis: address, pods, endpoints ──▶ conditions, doctor, explain, page, Events
//! ```
//! Everything that reports why a Service does not work renders the findings of this crate, so the same fault has the
//! same code and the same sentence everywhere. Pure: no I/O and no clock. The objects come through the trait [`Cluster`]:
//! controllers implement it over their indexes, [`Snapshot`] over lists.

mod address;
mod advice;
mod app_protocols;
mod cluster;
mod coverage;
mod endpoints;
mod finding;
mod labels;
pub mod layer7;
mod model;
mod near_miss;
mod pod_state;
mod protocols;
mod selected;
mod service;
mod similar;
mod snapshot;
mod unselected;
pub mod words;

pub use cluster::{Cluster, Pod, Standing};
pub use coverage::Offer;
pub use endpoints::unusable;
pub use finding::{CODES, Finding, Healthy, Level, Stage, code};
pub use labels::{Selector, selector_text};
pub use model::{Service, Slice};
pub use pod_state::{Detail, port_text, target_of};
pub use selected::excluded;
pub use service::{Diagnosis, diagnose, not_published};
pub use similar::is_similar;
pub use snapshot::{Object, Objects, Snapshot};
