//! Services served by the proxy, tested with real packets: endpoint selection, client addresses, and refusals.
//!
//! The cases hold in every proxy mode; [`testbed::net::Mode`] defines which one is under test and what may differ. How a mode
//! is implemented is tested in the file that is named after it; the few others that inspect the kernel use that file.

mod affinity;
mod badinput;
mod balance;
mod balancing;
mod basics;
mod conntrack;
mod frontends;
mod hammer;
pub(crate) mod handover;
mod health;
mod iptables;
mod lifecycle;
mod matrix;
mod nftables;
mod nodeports;
mod policies;
mod refusal;
mod sources;
pub(crate) mod stage;
mod topology;
mod up;
mod userspace;

use std::time::Duration;

/// Far more than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);
