//! Backends of the proxy: a plan becomes kernel rules, and stays so.
//!
//! In: [`plan::Update`]s, as they happen. Out: rules in the kernel, by way of one [`Backend`]; stale UDP flows removed; what load
//! balancers and dashboards ask. One thread does it all in turn ([`sync`]), so there is nothing to lock: take what has come,
//! plan, write one transaction, tidy up, tell.

pub mod conntrack;
mod frontends;
pub mod health;
pub mod inputs;
pub mod iptables;
pub mod ipvs;
mod lacking;
pub mod metrics;
pub mod nft;
pub mod nftables;
pub mod report;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod userspace;

use std::time::Duration;

use plan::{Plan, Problem, ServicePort, Touched};

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

/// Tells that somebody else changed what we wrote; answers whether anybody still wants to know.
pub type Tampered = Box<dyn Fn() -> bool + Send>;

/// Brings plans into the kernel.
pub trait Backend: Send {
    /// Its name, as `--proxy-mode` takes it.
    fn mode(&self) -> &'static str;

    /// Whether IPVS carries connections, and not the kernel's own translation of addresses.
    fn is_ipvs(&self) -> bool {
        false
    }

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
    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError>;

    /// How long it needs nobody, if nothing changes; nothing when that is for ever.
    fn rest(&self) -> Option<Duration> {
        None
    }

    /// Does what is due although nothing has changed in the plan, which it has brought before.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn tend(&mut self, _plan: &Plan) -> Result<Brought, BackendError> {
        Ok(Brought::default())
    }

    /// What it writes for one Service port, for people to read; nothing where a port has no rules of its own.
    fn rules(&self, _plan: &Plan, _port: &ServicePort) -> String {
        String::new()
    }

    /// What people should know of Services that it cannot serve as they ask.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }
}
