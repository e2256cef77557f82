//! Adopted Pods for workloads that Waypost did not start: registered programs, containers of podman and docker, units of systemd.
//!
//! ```text
//! registered ── Pods of the API ─┐
//! podman, docker ── containers ──┼─▶ controller: creates Pods, probes them, writes their status, deletes Pods of stopped workloads
//! systemd ── units ──────────────┘
//! ```
//! An adapter publishes the full list of what it discovered and never writes; the controller reconciles that list with the Pods of the API.
//! Nothing is started, stopped or changed on the machine.

mod controller;
pub mod listeners;
pub mod observed;
pub mod podman;
pub mod prober;
pub mod systemd;

use std::sync::Arc;

use api::adopted::{self, DOCKER, Draft, PODMAN, SYSTEMD};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;

use self::controller::Controller;
use self::observed::Observed;
use crate::machine::Machine;
use crate::settings::Adapters;
use crate::workloads::PodId;

/// A workload that an adapter discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// The Pod to create for it.
    pub draft: Draft,
    /// Its state.
    pub observed: Observed,
}

impl Discovered {
    fn id(&self) -> PodId {
        PodId { namespace: self.draft.namespace.clone(), name: self.draft.name.clone() }
    }
}

/// Events of the controller of adopted Pods.
#[derive(Debug)]
pub enum AdapterEvent {
    /// An adopted Pod was created or changed.
    PodUpdated(Arc<Value>),
    /// A Pod was deleted; with its UID if known.
    PodDeleted(PodId, Option<String>),
    /// The initial list of Pods is complete.
    PodsSynced,
    /// The full list of an adapter.
    Discovered(&'static str, Vec<Discovered>),
    /// The probe result of a Pod changed: its ID, its UID, the result.
    Probed(PodId, String, prober::Reachable),
    /// Reconcile everything.
    Resync,
}

/// The event queue of the controller.
pub type Queue = UnboundedSender<AdapterEvent>;

/// Starts the adapters and the controller; they run until the tasks are dropped.
pub fn start(machine: &Arc<Machine>, tasks: &mut JoinSet<()>) -> Queue {
    let (queue, events) = mpsc::unbounded_channel();
    let Adapters { podman, docker, systemd, systemctl } = machine.settings.adapters.clone();
    // Pods of a disabled adapter are deleted.
    let disabled = [(PODMAN, podman.is_some()), (DOCKER, docker.is_some()), (SYSTEMD, systemd.is_some())];
    for (how, _) in disabled.into_iter().filter(|(_, enabled)| !enabled) {
        let _ = queue.send(AdapterEvent::Discovered(how, Vec::new()));
    }
    for (how, socket) in [(PODMAN, podman), (DOCKER, docker)] {
        if let Some(socket) = socket {
            tasks.spawn(podman::watch_socket(how, socket, queue.clone()));
        }
    }
    if let Some(units) = systemd {
        tasks.spawn(systemd::watch_units(systemctl, units, queue.clone()));
    }
    tasks.spawn(Controller::new(machine.clone(), queue.clone(), events).run());
    queue
}

/// For an adopted Pod: where to find its logs and how to run commands in it.
#[must_use]
pub fn elsewhere(pod: &Value) -> Option<String> {
    use api::value::ValueExt as _;
    let how = adopted::how(pod)?;
    let source = pod.at("metadata.annotations").get(adopted::SOURCE).and_then(Value::as_str).unwrap_or_default();
    let name = pod.text("metadata.name");
    Some(match how {
        PODMAN | DOCKER => {
            format!("Pod {name} is a container of {how}; try `{how} logs {source}` or `{how} exec {source} …`")
        }
        SYSTEMD => format!("Pod {name} is the unit {source} of systemd; try `journalctl --unit {source}`"),
        _ => format!("Pod {name} is a registered program: Waypost did not start it and has no access to its output"),
    })
}
