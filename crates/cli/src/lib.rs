//! The commands for users: kubectl's verbs, `doctor`, `explain`, `trace`, `who`, `top`, `env`, `page`.
//!
//! In: parsed arguments, and objects of any Kubernetes API. Out: text or JSON on standard output, remarks on standard error, an exit code.
//! What depends on the kernel of this machine or on components of a node comes from the binary: as evidence ([`doctor`]) or through
//! [`host::Host`].

pub mod api_client;
pub mod doctor;
pub mod env;
pub mod host;
pub mod kubeconfig;
pub mod layer7;
pub mod page;
pub mod terminal;
pub mod verbs;
pub mod why;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// A runtime for one command.
fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("starting threads")
}
