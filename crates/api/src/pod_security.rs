//! Pod Security admission: the plugin `PodSecurity` of Kubernetes, without I/O.
//!
//! In: the labels of a Namespace, Pods and Pod templates. Out: refusals, warnings and audit annotations with the texts of Kubernetes.
//!
//! ```text
//! labels ─▶ policy (level and version of each mode) ─▶ evaluate (checks) ─▶ admission, namespace (decisions)
//! ```
//! The checks are those of Kubernetes 1.37 and one of Waypost: `hostImage`.

mod admission;
mod checks;
mod evaluate;
mod namespace;
mod policy;

pub use admission::{Configuration, Exemptions, Outcome, Request, is_controller};
pub use evaluate::{Violation, Violations, evaluate};
pub use namespace::{LIST_FAILED, MAX_PODS, NamespaceUpdate};
pub use policy::{Level, LevelVersion, PREFIX, Policy, Version};
