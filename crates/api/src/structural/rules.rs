//! Rules in CEL of structural schemas (`x-kubernetes-validations`).
//!
//! In: a structural schema; and objects of its kind, with what they were before an update. Out: field errors, with the texts
//! of Kubernetes. [`check_rules`] is for the author of a CustomResourceDefinition: it refuses rules that are not valid or may
//! cost too much. [`Compiled`] is for objects: it compiles the rules once and evaluates them within a budget. No I/O.

mod check;
mod compile;
mod correlate;
mod costs;
mod declare;
pub mod field_path;
mod messages;
mod node;
mod run;
mod validate;

pub use self::check::{Known, Options, check_rules};
pub use self::validate::{BUDGET, Compiled, blocks, not_checked};

#[cfg(test)]
mod tests;
