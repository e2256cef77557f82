//! The worker of one Pod: a task that handles events, decides the next steps and writes the status.
//!
//! ```text
//! API, shims, probes ──events──▶ facts ──decide──▶ steps (tasks) and the status for the API
//! ```
//! The worker never blocks on a container: long operations are tasks that send an event when they finish.

pub mod fetch;
pub mod image;
pub mod start;
mod state;
mod stop;
mod storage;
mod termination;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::value::ValueExt as _;
use client::requests::Verb;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::watch::Sender as Switch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::api as requests;
use crate::data_dir::PodDir;
use crate::decide::{self, Step, backoff, decide, eviction, spec::Spec};
use crate::facts::{Container, Facts, Sandbox, State, Termination};
use crate::machine::Machine;
use crate::metrics::Operation;
use crate::pod_event::PodEvent;
use crate::probes::ProbeOutcome;
use crate::probes::run::ProbeError;
use crate::shim::ExitRecord;
use crate::{files, sandbox};

/// Interval of syncs without an event.
const RESYNC: Duration = Duration::from_hours(1);
/// Delay before a request that failed is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// The time limit of a status update.
const API_TIMEOUT: Duration = Duration::from_secs(5);
/// When a failed operation is retried.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// How often volumes are compared with their ConfigMaps and Secrets, besides watch events.
const VOLUME_RESYNC: Duration = Duration::from_secs(15);

/// The worker of a Pod.
pub struct Worker {
    pub(crate) machine: Arc<Machine>,
    pub(crate) pod: Arc<Value>,
    pub(crate) facts: Facts,
    pub(crate) dir: PodDir,
    pub(crate) queue: mpsc::UnboundedSender<PodEvent>,
    events: mpsc::UnboundedReceiver<PodEvent>,
    /// Probes and hooks by container; aborted when the instance exits.
    pub(crate) tasks: BTreeMap<String, JoinSet<()>>,
    /// All other tasks of the Pod.
    pub(crate) work: JoinSet<()>,
    /// Whether the Pod terminates: image pulls are then cancelled.
    pub(crate) terminating: Switch<bool>,
    /// The tasks of `work` that stop a container.
    pub(crate) stops: BTreeMap<String, tokio::task::AbortHandle>,
}

impl Worker {
    /// A worker for a Pod; restores the state that a previous agent saved.
    #[must_use]
    pub fn new(machine: Arc<Machine>, pod: Arc<Value>) -> Self {
        let (queue, events) = mpsc::unbounded_channel();
        let dir = machine.dir.pod(pod.text("metadata.uid"));
        let mut worker = Self {
            facts: Facts { host: machine.host.clone(), ..Facts::default() },
            machine,
            pod,
            dir,
            queue,
            events,
            tasks: BTreeMap::new(),
            work: JoinSet::new(),
            terminating: Switch::new(false),
            stops: BTreeMap::new(),
        };
        worker.restore();
        worker
    }

    /// The event queue.
    #[must_use]
    pub fn queue(&self) -> mpsc::UnboundedSender<PodEvent> {
        self.queue.clone()
    }

    /// Marks the Pod object as deleted.
    pub fn mark_deleted(&mut self) {
        self.facts.deleted = true;
    }

    /// Runs until all resources of the Pod are released.
    pub async fn run(mut self) {
        let mut refresh = tokio::time::interval(VOLUME_RESYNC);
        refresh.reset();
        self.watch_objects();
        self.watch_storage();
        loop {
            let span = tracing::error_span!("sync_pod", pod = self.key());
            let Some(requeue_after) = self.sync().instrument(span).await else { return };
            tokio::select! {
                message = self.events.recv() => {
                    let Some(message) = message else { return };
                    self.handle(message);
                    // Batch: events that are queued already are handled together.
                    while let Ok(more) = self.events.try_recv() {
                        self.handle(more);
                    }
                }
                () = tokio::time::sleep(requeue_after) => {}
                _ = refresh.tick() => self.refresh_volumes(),
                Some(_) = self.work.join_next() => {}
            }
        }
    }

    /// Decides and starts the next steps, and writes the status. Returns when to sync again without an event; none when the Pod is gone.
    async fn sync(&mut self) -> Option<Duration> {
        let (now, started) = (Timestamp::now(), Instant::now());
        self.facts.started.get_or_insert(now);
        let decision = decide(&self.pod, &self.facts, now);
        if let Some(message) = decision.evicted.as_ref().filter(|_| self.facts.evicted.is_none()) {
            self.record(None, false, eviction::REASON, message.clone());
            self.facts.evicted = Some(message.clone());
        }
        if self.facts.deleted || self.pod.has("metadata.deletionTimestamp") {
            self.terminating.send_replace(true);
        }
        let mut requeue_after = decision.requeue_at.map_or(RESYNC, |at| at.duration_since(now).unsigned_abs());
        if !self.facts.deleted && !self.update_status(&decision.status).await {
            requeue_after = requeue_after.min(RETRY);
        }
        self.machine.metrics.set_phase(self.uid(), decision.status.text("phase"));
        for step in decision.steps {
            if step != Step::DeletePod {
                self.execute(step);
            } else if self.delete_pod().await {
                self.machine.metrics.remove_pod(self.uid());
                return None;
            } else {
                requeue_after = RETRY;
            }
        }
        self.machine.metrics.synced(started.elapsed());
        Some(requeue_after)
    }

    /// Writes the status to the API; false when the write must be retried.
    async fn update_status(&mut self, status: &Value) -> bool {
        let Some(patch) = decide::patch(&self.pod, status) else { return true };
        let path = requests::pod_path(self.pod.text("metadata.namespace"), self.pod.text("metadata.name")) + "/status";
        match timeout(API_TIMEOUT, self.machine.api.request(Verb::Patch, &path, Some(&patch))).await {
            Ok(Ok(pod)) => {
                self.pod = Arc::new(pod);
                true
            }
            // The Pod was deleted or replaced: the watch reports it.
            Ok(Err(error)) if error.is_not_found() || error.is_conflict() => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, pod = self.key(), "failed to write Pod status");
                false
            }
            Err(_) => false,
        }
    }

    /// `namespace/name`
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.pod.text("metadata.namespace"), self.pod.text("metadata.name"))
    }

    pub(crate) fn uid(&self) -> &str {
        self.pod.text("metadata.uid")
    }

    /// Records an Event.
    pub(crate) fn record(&self, container: Option<&str>, normal: bool, reason: &'static str, message: String) {
        self.machine.recorder.record(&self.pod, container, normal, reason, message);
    }

    // === steps ===

    fn execute(&mut self, step: Step) {
        match step {
            Step::CreateSandbox => self.make_sandbox(),
            Step::Start(name) => self.start(&name),
            Step::Stop { name, grace, why } => self.stop(&name, grace, why),
            Step::RemoveSandbox => self.remove_sandbox(),
            Step::DeletePod => {}
        }
    }

    fn make_sandbox(&mut self) {
        self.facts.sandbox = Sandbox::Creating;
        let (machine, pod, queue) = (self.machine.clone(), self.pod.clone(), self.queue.clone());
        if let Err(error) = std::fs::create_dir_all(self.dir.path()).and_then(|()| files::put(&self.dir.pod(), &*pod)) {
            tracing::warn!(%error, pod = self.key(), "failed to write the Pod directory");
        }
        self.work.spawn(async move {
            let made = async {
                let payloads = fetch::payloads(&machine, &pod, None).await?;
                tokio::task::spawn_blocking(move || sandbox::create(&machine, &pod, &payloads)).await?
            };
            let _ = queue.send(PodEvent::SandboxCreated(made.await));
        });
    }

    fn remove_sandbox(&mut self) {
        self.facts.sandbox = Sandbox::Removing;
        let (machine, pod, queue) = (self.machine.clone(), self.pod.clone(), self.queue.clone());
        self.work.spawn(async move {
            let done = tokio::task::spawn_blocking(move || sandbox::remove(&machine, &pod)).await;
            let _ = queue.send(PodEvent::SandboxRemoved(done.unwrap_or_else(|error| Err(error.into()))));
        });
    }

    /// Watches the ConfigMaps and Secrets that the Pod mounts.
    fn watch_objects(&mut self) {
        let namespace = self.pod.text("metadata.namespace").to_owned();
        for (kind, name) in crate::volumes::references(&self.pod) {
            let Some(object) = self.machine.object_watches.watch(kind, &namespace, &name) else { continue };
            let queue = self.queue.clone();
            self.work.spawn(async move {
                let mut changes = object.changes();
                while changes.changed().await.is_ok() && queue.send(PodEvent::RefreshVolumes).is_ok() {}
            });
        }
    }

    /// Updates the files of volumes.
    fn refresh_volumes(&mut self) {
        let follows = self.pod.items("spec.volumes").iter().any(crate::volumes::is_updated);
        if !follows || !matches!(self.facts.sandbox, Sandbox::Ready { .. }) {
            return;
        }
        let (machine, pod, dir) = (self.machine.clone(), self.pod.clone(), self.dir.clone());
        self.work.spawn(async move {
            // An object that was deleted after the start: keep its files.
            let Ok(payloads) = fetch::payloads(&machine, &pod, Some(&dir)).await else { return };
            let work = move || crate::volumes::prepare(&pod, &dir, &payloads);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await {
                tracing::debug!(%error, "failed to update volume");
            }
        });
    }

    /// Deletes the Pod object and the Pod directory; false when the API request must be retried.
    async fn delete_pod(&mut self) -> bool {
        let (namespace, name) = (self.pod.text("metadata.namespace"), self.pod.text("metadata.name"));
        if !self.facts.deleted {
            let deletion = requests::delete_pod(&*self.machine.api, namespace, name, self.uid());
            match timeout(API_TIMEOUT, deletion).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, pod = self.key(), "failed to delete terminated Pod");
                    return false;
                }
                Err(_) => return false,
            }
        }
        let folder = self.dir.path().to_owned();
        let removed = tokio::task::spawn_blocking(move || files::remove_folder(&folder)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, pod = self.key(), "failed to remove the Pod directory");
        }
        true
    }

    // === events ===

    fn handle(&mut self, message: PodEvent) {
        match message {
            PodEvent::Updated(pod) => {
                let changed = pod.at("metadata.annotations") != self.pod.at("metadata.annotations")
                    || pod.at("metadata.labels") != self.pod.at("metadata.labels");
                self.pod = pod;
                if changed {
                    self.refresh_volumes();
                }
            }
            PodEvent::Deleted => self.facts.deleted = true,
            PodEvent::SandboxCreated(Ok(addresses)) => self.facts.sandbox = Sandbox::Ready { addresses },
            PodEvent::SandboxCreated(Err(error)) => {
                self.machine.metrics.failed(Operation::CreateSandbox);
                let why = error.to_string();
                self.record(None, false, error.event_reason(), why.clone());
                self.facts.sandbox = Sandbox::Failed { why, until: retry_at() };
            }
            PodEvent::SandboxRemoved(Ok(())) => self.facts.sandbox = Sandbox::Removed,
            PodEvent::SandboxRemoved(Err(error)) => {
                self.machine.metrics.failed(Operation::RemoveSandbox);
                let why = error.to_string();
                tracing::warn!(why, pod = self.key(), "failed to remove Pod sandbox; retrying");
                self.facts.sandbox = Sandbox::Failed { why, until: retry_at() };
                self.resync_later();
            }
            PodEvent::Started(name, number, result) => self.started(&name, number, result),
            PodEvent::NotStarted(name, number) => {
                if let Some(container) = self.current(&name, number) {
                    container.state = State::New;
                }
            }
            PodEvent::Exited(name, number, exited) => self.exited(&name, number, &exited),
            PodEvent::PostStartDone(name, number, result) => self.post_start_done(&name, number, &result),
            PodEvent::ProbeResult(name, number, outcome) => self.probe_result(&name, number, outcome),
            PodEvent::StorageMeasured(usage) => self.facts.storage = usage,
            PodEvent::RefreshVolumes => self.refresh_volumes(),
            PodEvent::Resync => {}
        }
    }

    fn resync_later(&mut self) {
        let queue = self.queue.clone();
        self.work.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = queue.send(PodEvent::Resync);
        });
    }

    /// The container, if the instance is its current one.
    pub(crate) fn current(&mut self, name: &str, number: u32) -> Option<&mut Container> {
        self.facts.containers.get_mut(name).filter(|container| container.restarts == number)
    }

    fn exited(&mut self, name: &str, number: u32, exited: &ExitRecord) {
        self.tasks.remove(name);
        let message = self.termination_message(name, number, exited);
        let Some(container) = self.current(name, number) else { return };
        let started = match container.state {
            State::Running { since, .. } => Some(since),
            _ => None,
        };
        let ending = Termination {
            code: exited.code,
            reason: exited.reason.clone(),
            message,
            started,
            finished: exited.finished,
            id: container.id.clone(),
        };
        container.backoff = backoff::after_run(container.backoff, started, exited.finished);
        container.state = State::Terminated(ending);
        container.health = crate::facts::Health::default();
        let (code, waits) = (exited.code, container.backoff);
        self.save_state(name);
        let spec = Spec::read(&self.pod);
        let evicted = self.facts.evicted.is_some();
        let terminating = evicted || self.facts.deleted || self.pod.has("metadata.deletionTimestamp");
        if waits > 0 && spec.restarts(name, code) && !terminating {
            let message = format!("Back-off restarting failed container {name} in pod {}", self.key_with_uid());
            self.record(Some(name), false, "BackOff", message);
        }
        let group = Machine::container_group(self.uid(), name);
        self.machine.groups.kill(&group);
        self.remove_old_instances(name, number);
    }

    pub(crate) fn key_with_uid(&self) -> String {
        let meta = self.pod.at("metadata");
        format!("{}_{}({})", meta.text("name"), meta.text("namespace"), meta.text("uid"))
    }

    fn post_start_done(&mut self, name: &str, number: u32, result: &Result<(), ProbeError>) {
        if let Err(why) = result {
            self.record(Some(name), false, "FailedPostStartHook", format!("PostStartHook failed: {why}"));
        }
        let Some(container) = self.current(name, number) else { return };
        container.health.post_start_done = true;
        match result {
            Ok(()) => self.start_probes(name, number),
            Err(_) => {
                container.health.kill_reason =
                    Some(format!("Container {name} failed its PostStartHook, will be restarted"));
            }
        }
    }

    fn probe_result(&mut self, name: &str, number: u32, outcome: ProbeOutcome) {
        let Some(container) = self.current(name, number).filter(|container| container.is_running()) else { return };
        match outcome {
            ProbeOutcome::Started => container.health.started = true,
            ProbeOutcome::Ready(ready) => container.health.ready = ready,
            ProbeOutcome::Dead(why) => container.health.kill_reason = Some(why),
        }
    }
}

/// When a failed operation is retried.
pub(crate) fn retry_at() -> Timestamp {
    Timestamp::now().saturating_add(RETRY_INTERVAL).unwrap_or(Timestamp::MAX)
}
