//! What already runs on this machine becomes Pods: programs that were registered, containers of podman and docker, units of systemd.
//!
//! ```text
//! registered ── Pods of the API ─┐
//! podman, docker ── containers ──┼─▶ office: makes Pods, asks for their health, shows their status, removes what is gone
//! systemd ── units ──────────────┘
//! ```
//! An adapter says what it found, whole each time, and never writes. The office compares that with the Pods that the API has. Nothing is
//! started, ended or changed on the machine: what is here was here before, and stays when we go.

pub mod listeners;
mod office;
pub mod podman;
pub mod registered;
pub mod standing;
pub mod systemd;

use std::path::PathBuf;
use std::sync::Arc;

use api::adopted::{self, DOCKER, Draft, PODMAN, SYSTEMD};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;

use self::office::Office;
use self::standing::Standing;
use crate::machine::Machine;
use crate::workloads::PodId;

/// Who is asked for what runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// The socket of podman.
    pub podman: Option<PathBuf>,
    /// The socket of docker.
    pub docker: Option<PathBuf>,
    /// The units of systemd; an empty list means all that say so.
    pub systemd: Option<Vec<String>>,
    /// The program that speaks for systemd.
    pub systemctl: PathBuf,
}

/// Something that runs here.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The Pod that stands for it.
    pub draft: Draft,
    /// How it is.
    pub standing: Standing,
}

impl Found {
    fn id(&self) -> PodId {
        PodId { namespace: self.draft.namespace.clone(), name: self.draft.name.clone() }
    }
}

/// News for the office.
#[derive(Debug)]
pub enum News {
    /// The API has an adopted Pod like this.
    Pod(Arc<Value>),
    /// The API has it no more; this one, if it is known which.
    Gone(PodId, Option<String>),
    /// All Pods of the API are known.
    Listed,
    /// All that an adapter found.
    Found(&'static str, Vec<Found>),
    /// Something was asked how it is: the Pod, its uid, the answer.
    Answered(PodId, String, registered::Answer),
    /// Everything is to be looked at again.
    Look,
}

/// Where news go.
pub type Inbox = UnboundedSender<News>;

/// Begins to look after what runs here, until the tasks are dropped.
pub fn start(machine: &Arc<Machine>, tasks: &mut JoinSet<()>) -> Inbox {
    let (inbox, news) = mpsc::unbounded_channel();
    let Adapters { podman, docker, systemd, systemctl } = machine.settings.adapters.clone();
    // Pods of an adapter that is not asked any more stand for nothing that we know of.
    let silent = [(PODMAN, podman.is_some()), (DOCKER, docker.is_some()), (SYSTEMD, systemd.is_some())];
    for (how, _) in silent.into_iter().filter(|(_, asked)| !asked) {
        let _ = inbox.send(News::Found(how, Vec::new()));
    }
    for (how, socket) in [(PODMAN, podman), (DOCKER, docker)] {
        if let Some(socket) = socket {
            tasks.spawn(podman::follow(how, socket, inbox.clone()));
        }
    }
    if let Some(units) = systemd {
        tasks.spawn(systemd::follow(systemctl, units, inbox.clone()));
    }
    tasks.spawn(Office::new(machine.clone(), inbox.clone(), news).run());
    inbox
}

/// Where people find what Waypost does not have of an adopted Pod; nothing for other Pods.
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
        _ => format!("Pod {name} is a program that was registered: Waypost did not start it and has no hold of it"),
    })
}
