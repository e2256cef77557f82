//! The controller of adopted Pods: reconciles discovered workloads with the Pods of the API.
//!
//! In: adopted Pods of the API, lists of adapters, probe results. Out: Pods created, updated and deleted. One task does one write after the other:
//! there are few of them and no caller waits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::adopted::{self, REGISTERED};
use api::value::ValueExt as _;
use client::requests::{ApiError, Verb, find};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::observed::{Observed, ProbeState, RunState, facts};
use super::prober::{Prober, Reachable};
use super::{AdapterEvent, Discovered, Queue};
use crate::api::{delete_pod, pod_path};
use crate::decide::{self, decide};
use crate::machine::Machine;
use crate::workloads::PodId;

/// The time limit of one reconcile, API requests included.
const API_TIMEOUT: Duration = Duration::from_secs(5);
/// When a failed reconcile is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The controller.
pub(super) struct Controller {
    machine: Arc<Machine>,
    queue: Queue,
    events: mpsc::UnboundedReceiver<AdapterEvent>,
    pods: BTreeMap<PodId, KnownPod>,
    /// The last list of each adapter; no entry before its first list.
    discovered: BTreeMap<&'static str, BTreeMap<PodId, Discovered>>,
    /// Whether the initial list of Pods is complete.
    complete: bool,
    /// Rejected Pods that were logged, so that each is logged once.
    reported: BTreeSet<PodId>,
    /// Whether a resync is scheduled.
    resync_pending: bool,
    timers: JoinSet<()>,
}

/// A Pod of the API.
struct KnownPod {
    pod: Arc<Value>,
    reachable: Option<Reachable>,
    probe: Option<ActiveProbe>,
}

/// A running probe; it stops when this is dropped.
struct ActiveProbe {
    how: Value,
    addresses: Vec<IpAddr>,
    _task: JoinSet<()>,
}

impl Controller {
    pub(super) fn new(machine: Arc<Machine>, queue: Queue, events: mpsc::UnboundedReceiver<AdapterEvent>) -> Self {
        Self {
            machine,
            queue,
            events,
            pods: BTreeMap::new(),
            discovered: BTreeMap::new(),
            complete: false,
            reported: BTreeSet::new(),
            resync_pending: false,
            timers: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(events) = self.events.recv().await {
            let mut changed = self.handle(events);
            // Batch: events that are queued already are handled together.
            while let Ok(more) = self.events.try_recv() {
                changed.append(&mut self.handle(more));
            }
            if !self.complete {
                continue;
            }
            for id in changed {
                let set = timeout(API_TIMEOUT, self.reconcile(&id)).await;
                let why = match set {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no response from the API within {API_TIMEOUT:?}"),
                };
                tracing::warn!(why, pod = %format_args!("{}/{}", id.namespace, id.name), "failed to reconcile adopted Pod; retrying");
                self.resync_later();
            }
        }
    }

    /// Applies an event and returns the Pods to reconcile.
    fn handle(&mut self, events: AdapterEvent) -> BTreeSet<PodId> {
        match events {
            AdapterEvent::PodUpdated(pod) => {
                let id = PodId {
                    namespace: pod.text("metadata.namespace").to_owned(),
                    name: pod.text("metadata.name").to_owned(),
                };
                self.remember(&id, pod);
                [id].into()
            }
            AdapterEvent::PodDeleted(id, uid) => {
                let is_it = |known: &KnownPod| uid.as_deref().is_none_or(|uid| known.pod.text("metadata.uid") == uid);
                if !self.pods.get(&id).is_some_and(is_it) {
                    return BTreeSet::new();
                }
                self.pods.remove(&id);
                self.machine.adopted.lock().remove(&id);
                [id].into()
            }
            AdapterEvent::PodsSynced => {
                self.complete = true;
                self.all_ids()
            }
            AdapterEvent::Discovered(how, all) => {
                let all: BTreeMap<PodId, Discovered> =
                    all.into_iter().map(|discovered| (discovered.id(), discovered)).collect();
                let before = self.discovered.insert(how, all);
                let now = self.discovered.get(how);
                let of_this_kind = self.pods.iter().filter(|(_, known)| adopted::how(&known.pod) == Some(how));
                let known = of_this_kind.map(|(id, _)| id.clone()).filter(|_| before.is_none());
                let old = before
                    .iter()
                    .flatten()
                    .filter(|(id, discovered)| now.and_then(|now| now.get(*id)) != Some(*discovered));
                let new = now.into_iter().flatten().filter(|(id, discovered)| {
                    before.as_ref().and_then(|before| before.get(*id)) != Some(*discovered)
                        || !(self.pods.contains_key(*id) || self.reported.contains(*id))
                });
                old.chain(new).map(|(id, _)| id.clone()).chain(known).collect()
            }
            AdapterEvent::Probed(id, uid, reachable) => match self.pods.get_mut(&id) {
                Some(known) if known.pod.text("metadata.uid") == uid => {
                    known.reachable = Some(reachable);
                    [id].into()
                }
                _ => BTreeSet::new(),
            },
            AdapterEvent::Resync => {
                self.resync_pending = false;
                self.all_ids()
            }
        }
    }

    fn all_ids(&self) -> BTreeSet<PodId> {
        self.pods.keys().chain(self.discovered.values().flat_map(BTreeMap::keys)).cloned().collect()
    }

    /// Caches a Pod; state of a previous Pod with this name is dropped.
    fn remember(&mut self, id: &PodId, pod: Arc<Value>) {
        self.machine.adopted.lock().insert(id.clone(), pod.clone());
        match self.pods.get_mut(id) {
            Some(known) if known.pod.text("metadata.uid") == pod.text("metadata.uid") => known.pod = pod,
            _ => drop(self.pods.insert(id.clone(), KnownPod { pod, reachable: None, probe: None })),
        }
    }

    fn discovered_for(&self, id: &PodId) -> Option<&Discovered> {
        self.discovered.values().find_map(|all| all.get(id))
    }

    /// Reconciles one Pod.
    async fn reconcile(&mut self, id: &PodId) -> Result<(), ApiError> {
        let discovered_for = self.discovered_for(id).cloned();
        let Some(known) = self.pods.get(id) else {
            return match discovered_for {
                Some(discovered) => self.create(id, &discovered).await,
                None => Ok(()),
            };
        };
        let pod = known.pod.clone();
        let how = adopted::how(&pod).unwrap_or_default();
        let stays = match &discovered_for {
            _ if pod.has("metadata.deletionTimestamp") => false,
            _ if how == REGISTERED => true,
            Some(discovered) => discovered.draft.is(&pod),
            // Its adapter has not published a list yet, or is unknown.
            None => !self.discovered.contains_key(how),
        };
        if !stays {
            // After the deletion a new Pod is created if the workload still runs.
            return delete_pod(&*self.machine.api, &id.namespace, &id.name, pod.text("metadata.uid")).await;
        }
        let runs = Observed { state: RunState::Running(None), ..Observed::default() };
        match (how, discovered_for) {
            (REGISTERED, _) => self.update_status(id, &runs).await,
            (_, Some(discovered)) => self.update_status(id, &discovered.observed).await,
            (_, None) => Ok(()),
        }
    }

    /// Creates the Pod of a discovered workload.
    async fn create(&mut self, id: &PodId, discovered: &Discovered) -> Result<(), ApiError> {
        let node = self.machine.settings.node.clone();
        let object = find(&*self.machine.api, &format!("/api/v1/nodes/{node}")).await?.unwrap_or_default();
        let pod = discovered.draft.pod(&node, object.text("metadata.uid"));
        let path = format!("/api/v1/namespaces/{}/pods", id.namespace);
        match self.machine.api.request(Verb::Create, &path, Some(&pod)).await {
            Ok(made) => {
                tracing::info!(pod = %format_args!("{}/{}", id.namespace, id.name), how = discovered.draft.how, source = discovered.draft.source, "adopted workload as Pod");
                self.reported.remove(id);
                self.remember(id, Arc::new(made));
                self.update_status(id, &discovered.observed).await
            }
            Err(ApiError::Refused { code: code @ (400..500), message }) => {
                if self.reported.insert(id.clone()) {
                    let PodId { namespace, name } = id;
                    let advice = match code {
                        409 => "give it another name with the label waypost.dev/name",
                        404 => "create its namespace with `kubectl create namespace`",
                        _ => "check its name, labels and ports",
                    };
                    tracing::warn!(
                        how = discovered.draft.how,
                        source = discovered.draft.source,
                        "cannot adopt workload as Pod {namespace}/{name}: {message}; {advice}"
                    );
                }
                self.resync_later();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the status of a Pod and starts or stops its probe.
    async fn update_status(&mut self, id: &PodId, observed: &Observed) -> Result<(), ApiError> {
        self.sync_probe(id, observed);
        let Some(known) = self.pods.get(id) else { return Ok(()) };
        let asked = match (&known.probe, &known.reachable) {
            (None, _) if Prober::probe_of(&known.pod).is_null() => ProbeState::NoProbe,
            (None, _) | (Some(_), None) => ProbeState::Pending,
            (Some(_), Some(reachable)) => ProbeState::Reachable(&reachable.0),
        };
        let now = Timestamp::now();
        let facts = facts(&known.pod, observed, asked, &self.machine.host, now);
        let mut status = decide(&known.pod, &facts, now).status;
        set_container_id(&mut status, &known.pod, &observed.id);
        let Some(patch) = decide::patch(&known.pod, &status) else { return Ok(()) };
        let path = pod_path(&id.namespace, &id.name) + "/status";
        match self.machine.api.request(Verb::Patch, &path, Some(&patch)).await {
            Ok(pod) => {
                self.remember(id, Arc::new(pod));
                Ok(())
            }
            // The Pod was deleted or replaced: the watch reports it.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Probes a Pod while it runs.
    fn sync_probe(&mut self, id: &PodId, observed: &Observed) {
        let Some(known) = self.pods.get_mut(id) else { return };
        let how = Prober::probe_of(&known.pod).clone();
        let addresses = match known.pod.flag("spec.hostNetwork") {
            true => self.machine.host.iter().copied().filter(|ip| !ip.is_loopback()).collect(),
            false => observed.addresses.clone(),
        };
        if how.is_null() || !matches!(observed.state, RunState::Running(_)) {
            (known.probe, known.reachable) = (None, None);
            return;
        }
        if known.probe.as_ref().is_some_and(|probe| probe.how == how && probe.addresses == addresses) {
            return;
        }
        let probe = Prober {
            pod: known.pod.clone(),
            addresses: addresses.clone(),
            queue: self.queue.clone(),
            recorder: self.machine.recorder.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(probe.run());
        known.probe = Some(ActiveProbe { how, addresses, _task: task });
    }

    fn resync_later(&mut self) {
        if std::mem::replace(&mut self.resync_pending, true) {
            return;
        }
        let queue = self.queue.clone();
        self.timers.spawn(async move {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let _ = queue.send(AdapterEvent::Resync);
        });
        while self.timers.try_join_next().is_some() {}
    }
}

/// Sets container IDs with the prefix of the adapter.
fn set_container_id(status: &mut Value, pod: &Value, id: &str) {
    let how = adopted::how(pod).unwrap_or_default();
    for container in status.items_mut("containerStatuses") {
        container.put("containerID", if id.is_empty() { String::new() } else { format!("{how}://{id}") });
    }
}
