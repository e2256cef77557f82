//! Saves the state of containers, and restores it after a restart of the agent.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use api::value::ValueExt as _;

use super::{PodEvent, Worker};
use crate::facts::{Container, Health, Sandbox, State, Termination};
use crate::shim::{EXIT_FILE, ExitRecord, SPEC_FILE, START_FILE, StartLock, StartOutcome, StartRecord};
use crate::{files, sandbox};

/// How often the start lock of a container is polled while its shim starts it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The saved state of a container (`state.json`).
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedState {
    number: u32,
    backoff: u32,
    last: Option<Termination>,
    exited: Option<Termination>,
    id: String,
    image: String,
}

impl Worker {
    /// Saves the state of a container.
    pub(super) fn save_state(&self, name: &str) {
        let Some(container) = self.facts.containers.get(name) else { return };
        let saved = SavedState {
            number: container.restarts,
            backoff: container.backoff,
            last: container.last.clone(),
            exited: container.ending().cloned(),
            id: container.id.clone(),
            image: container.image.clone(),
        };
        let path = self.dir.state(name);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| files::put(&path, &saved));
        if let Err(error) = written {
            tracing::warn!(%error, pod = self.key(), name, "failed to save container state");
        }
    }

    /// Restores sandbox and containers from disk.
    pub(super) fn restore(&mut self) {
        let started = self.pod.text("status.startTime");
        self.facts.started = started.parse().ok();
        let pod = self.pod.clone();
        let host_network = pod.flag("spec.hostNetwork");
        if let Some(addresses) = sandbox::find(&self.dir, host_network) {
            if let Err(error) = sandbox::sync_host_ports(&self.machine, &pod, &addresses) {
                tracing::warn!(%error, pod = self.key(), "failed to write hostPort rules");
            }
            self.facts.sandbox = Sandbox::Ready { addresses };
        }
        let all = pod.items("spec.initContainers").iter().chain(pod.items("spec.containers"));
        for name in all.map(|container| container.text("name")) {
            let Some(saved) = files::get::<SavedState>(&self.dir.state(name)) else { continue };
            let number = saved.number;
            let folder = self.dir.instance(name, number);
            let start: Option<StartRecord> = files::get(&folder.join(START_FILE));
            let exited: Option<ExitRecord> = files::get(&folder.join(EXIT_FILE));
            let alive = start.filter(|start| exited.is_none() && start.shim().is_there());
            let (restarts, backoff) = (saved.number, saved.backoff);
            let mut container = Container {
                restarts,
                backoff,
                last: saved.last,
                id: saved.id,
                image: saved.image,
                ..Container::default()
            };
            match (saved.exited, alive) {
                (Some(ending), _) => container.state = State::Terminated(ending),
                (None, Some(start)) => {
                    container.state = State::Running { since: start.at, stopping: None };
                    container.health = health_of(&pod, name, &container.id);
                }
                // The agent ended before the shim was started, for instance during the image pull.
                (None, None) if start.is_none() && !folder.join(SPEC_FILE).exists() => {}
                (None, None) => {
                    let running = |start: StartRecord| State::Running { since: start.at, stopping: None };
                    container.state = start.map_or(State::Starting, running);
                }
            }
            let (running, unknown) = (container.is_running(), container.state == State::Starting);
            self.facts.containers.insert(name.to_owned(), container);
            match alive {
                _ if unknown => self.resolve_start(name, number),
                Some(start) if running => self.follow(name, number, start),
                _ if running => self.exited_while_down(name, number, exited),
                _ => {}
            }
        }
    }

    /// Determines whether an instance was started whose start was under way when the agent ended.
    fn resolve_start(&mut self, name: &str, number: u32) {
        let (container, instance) = (self.dir.container(name), self.dir.instance(name, number));
        let (name, queue) = (name.to_owned(), self.queue.clone());
        self.work.spawn(async move {
            let outcome = loop {
                // While a shim holds the lock, it starts the instance.
                match StartLock::try_take(&container)
                    .and_then(|lock| lock.map(|lock| lock.resolve(&instance)).transpose())
                {
                    Ok(Some(outcome)) => break outcome,
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, name, "failed to determine whether the container was started"),
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            let _ = queue.send(match outcome {
                StartOutcome::StartRecord(start, image) => PodEvent::Started(name, number, Ok((start, image))),
                StartOutcome::Nobody => PodEvent::NotStarted(name, number),
            });
        });
    }

    /// Reports the exit of an instance that ended while the agent did not run.
    fn exited_while_down(&mut self, name: &str, number: u32, exited: Option<ExitRecord>) {
        let exited = exited.unwrap_or_else(|| ExitRecord {
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the agent started: its shim is gone".to_owned(),
            finished: Timestamp::now(),
        });
        let _ = self.queue.send(PodEvent::Exited(name.to_owned(), number, exited));
    }

    /// Resumes waiting and probing for a running container.
    fn follow(&mut self, name: &str, number: u32, start: StartRecord) {
        self.watch(name, number, start);
        self.start_probes(name, number);
    }
}

/// The last reported health of a container. It holds until its probes have results: a restart of the agent must not make Pods unready.
fn health_of(pod: &Value, name: &str, id: &str) -> Health {
    let lists = ["status.containerStatuses", "status.initContainerStatuses"];
    let found = lists
        .iter()
        .flat_map(|list| pod.items(list))
        .find(|status| status.text("name") == name && status.text("containerID").ends_with(id) && !id.is_empty());
    let known = |field: &str| found.is_some_and(|status| status.flag(field));
    Health { post_start_done: true, started: known("started"), ready: known("ready"), kill_reason: None }
}
