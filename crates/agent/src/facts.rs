//! What is known of a Pod on this machine: its network, its containers, what their probes say. Values only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Everything that is known of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Its network.
    pub sandbox: Sandbox,
    /// Its containers by name, init containers too. One that is not here was never begun.
    pub containers: BTreeMap<String, Container>,
    /// The addresses of this machine, the preferred first.
    pub host: Vec<IpAddr>,
    /// When it was first seen here.
    pub began: Option<Timestamp>,
    /// Whether the API has it no more.
    pub gone: bool,
}

/// The network of a Pod, and what else all of its containers share.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sandbox {
    /// There is none yet.
    #[default]
    Absent,
    /// It is being made.
    Making,
    /// It is there.
    Ready {
        /// The Pod's addresses.
        addresses: Vec<IpAddr>,
    },
    /// It could not be made, and is tried again.
    Failed {
        /// Why.
        why: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// It is being taken away.
    Removing,
    /// It was taken away.
    Removed,
}

/// A container of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// How often it was begun again.
    pub restarts: u32,
    /// For how many seconds it waits before it is begun again after its next end.
    pub back_off: u32,
    /// What it does.
    pub state: State,
    /// How the instance before this one ended.
    pub last: Option<Ending>,
    /// What its probes and hooks say.
    pub health: Health,
    /// What is known as its id.
    pub id: String,
    /// Which image it has.
    pub image: String,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// It was never begun.
    #[default]
    New,
    /// It could not be begun, and is tried again.
    Refused {
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// It is being begun.
    Starting,
    /// It runs.
    Running {
        /// Since then.
        since: Timestamp,
        /// Within how many seconds it was asked to end, if it was.
        stopping: Option<u32>,
    },
    /// It has ended.
    Ended(Ending),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Its exit code.
    pub code: i32,
    /// One word.
    pub reason: String,
    /// A sentence, or its last words.
    pub message: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Timestamp,
    /// What was known as its id.
    pub id: String,
}

/// What probes and hooks say of a running container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Its postStart hook was run.
    pub greeted: bool,
    /// Its startup probe has succeeded.
    pub started: bool,
    /// Its readiness probe has succeeded lately.
    pub ready: bool,
    /// It must be ended, and this is why.
    pub condemned: Option<String>,
}

impl Container {
    /// Whether a process of it may be there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { .. })
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        match &self.state {
            State::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Whether it runs and was not asked to end.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }
}

impl Sandbox {
    /// The addresses of the Pod.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Ready { addresses } => addresses,
            _ => &[],
        }
    }
}
