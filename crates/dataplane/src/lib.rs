//! Backends of the proxy: a plan becomes kernel rules, and stays so.
//!
//! In: [`plan::Update`]s, as they happen. Out: rules in the kernel, by way of one [`Backend`]; stale UDP flows removed; what load
//! balancers and dashboards ask. One thread does it all in turn ([`sync`]), so there is nothing to lock: take what has come,
//! plan, write one transaction, tidy up, tell.

pub mod conntrack;
pub mod health;
pub mod inputs;
mod lacking;
pub mod metrics;
pub mod nft;
pub mod nftables;
pub mod sync;

use plan::{Plan, Touched};

/// What changed since the last time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Since {
    /// Nothing is known of what the kernel has: it must be read.
    Ever,
    /// Somebody else changed what we wrote: it must be read, and trusted less.
    Tampered,
    /// This.
    Last(Touched),
}

/// Why rules could not be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct BackendError {
    /// A sentence.
    pub what: String,
}

/// What it took to bring a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Brought {
    /// How many changes were written.
    pub changes: usize,
    /// How often something that is used no more could not be deleted yet.
    pub untidy: usize,
}

/// Brings plans into the kernel.
pub trait Backend: Send {
    /// Its name, as `--proxy-mode` takes it.
    fn mode(&self) -> &'static str;

    /// Makes the kernel do what the plan says. Nothing has changed when it fails.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError>;

    /// Begins to watch over what was brought, once after the first time; `tampered` is to be called whenever somebody else
    /// changed it.
    ///
    /// # Errors
    /// When it cannot be watched.
    fn guard(&mut self, tampered: Box<dyn Fn() + Send>) -> Result<(), BackendError>;
}
