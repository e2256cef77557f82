//! Kubeconfigs, as `kubectl` has them: read into an [`Access`], or merged with one of ours ([`contexts`]).

mod access;
pub mod contexts;
mod error;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

pub use access::Access;
pub use error::KubeconfigError;
