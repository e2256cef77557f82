//! Services served by the proxy, seen by real packets: who answers, whom the server sees, who is refused and how soon.
//!
//! The cases hold in every proxy mode; [`testbed::net::Mode`] says which one is under test and what may differ. How a mode does
//! it is the business of the file that is named after it; the few others that look into the kernel ask that file.

mod affinity;
mod badinput;
mod balance;
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

/// Far more than anything here takes; who waits so long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);
