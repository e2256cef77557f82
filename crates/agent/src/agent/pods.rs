//! Watches of the agent (Pods of this node, Nodes, Services, ServiceCIDRs), and the Pod manager that starts one worker per Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::status::Status;
use api::value::ValueExt as _;
use api::{adopted, kinds};
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch};
use ipnet::IpNet;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::network;
use crate::adapters::{AdapterEvent, Queue};
use crate::files;
use crate::machine::{Machine, PodSlot, ServiceInfo};
use crate::pod::Worker;
use crate::pod_event::PodEvent;
use crate::workloads::PodId;

/// The watches.
pub(super) struct Watches {
    pods: Watch,
    nodes: Watch,
    services: Watch,
    service_ranges: Watch,
}

impl Watches {
    pub(super) fn start(source: &dyn Source, node: &str) -> Result<Self, Status> {
        let pods = Selection::all(&kinds::pod::KIND).selected("", &format!("spec.nodeName={node}"))?;
        Ok(Self {
            pods: source.watch(pods),
            nodes: source.watch(Selection::all(&kinds::node::KIND)),
            services: source.watch(Selection::all(&kinds::service::KIND)),
            service_ranges: source.watch(Selection::all(&kinds::servicecidr::KIND).optional()),
        })
    }

    /// Runs all watches. Pods start when Services and Nodes are synced.
    pub(super) async fn run(
        self,
        machine: Arc<Machine>,
        ranges: watch::Sender<Vec<IpNet>>,
        ready: watch::Sender<bool>,
        adopted: Queue,
    ) {
        let Self { mut pods, nodes, services, service_ranges } = self;
        let (services_known, mut wait_services) = watch::channel(false);
        let (nodes_known, mut wait_nodes) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_services(machine.clone(), services, services_known));
        tasks.spawn(network::watch(machine.clone(), nodes, service_ranges, ranges, nodes_known));
        let _ = wait_services.wait_for(|known| *known).await;
        let _ = wait_nodes.wait_for(|known| *known).await;
        let mut manager =
            PodManager { machine, listed: BTreeSet::new(), workers: JoinSet::new(), synced: false, ready, adopted };
        let mut known = KnownKeys::default();
        loop {
            tokio::select! {
                event = pods.next() => {
                    let vanished = known.apply(&event);
                    manager.handle(event, &vanished);
                }
                Some(ended) = manager.workers.join_next() => manager.worker_ended(ended.ok()),
            }
        }
    }
}

/// Parses an object; an invalid one is logged and skipped.
pub(super) fn parse(object: &Object) -> Option<Value> {
    serde_json::from_slice(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "skipped invalid object"))
        .ok()
}

async fn watch_services(machine: Arc<Machine>, mut watch: Watch, synced: watch::Sender<bool>) {
    let mut names = KnownKeys::default();
    loop {
        let event = watch.next().await;
        let vanished = names.apply(&event);
        let mut services = machine.services.lock();
        for key in vanished {
            services.remove(&*key);
        }
        match &event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(value) = parse(object) {
                    services.insert(object.key(), ServiceInfo::read(&value));
                }
            }
            Event::Delete(object) => drop(services.remove(&object.key())),
            Event::InitDone => drop(synced.send_replace(true)),
            Event::Init => {}
        }
    }
}

/// Starts and stops workers as Pods are bound to this node and deleted.
struct PodManager {
    machine: Arc<Machine>,
    /// UIDs of the initial list.
    listed: BTreeSet<String>,
    workers: JoinSet<(PodId, String)>,
    /// Whether the initial list is complete.
    synced: bool,
    ready: watch::Sender<bool>,
    /// The queue of the adopted-Pod controller.
    adopted: Queue,
}

fn id_of(pod: &Value) -> PodId {
    PodId { namespace: pod.text("metadata.namespace").to_owned(), name: pod.text("metadata.name").to_owned() }
}

/// Whether an agent has completed the deletion of a Pod that a finalizer keeps. A worker would report containers that never started.
fn is_ended(pod: &Value) -> bool {
    let deleted = pod.has("metadata.deletionTimestamp") && pod.int("metadata.deletionGracePeriodSeconds") == 0;
    deleted && matches!(pod.text("status.phase"), "Succeeded" | "Failed")
}

impl PodManager {
    fn handle(&mut self, event: Event, vanished: &[Box<str>]) {
        for key in vanished {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            self.remove(&PodId { namespace: namespace.to_owned(), name: name.to_owned() }, None);
        }
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(pod) = parse(&object) {
                    if !self.synced {
                        self.listed.insert(pod.text("metadata.uid").to_owned());
                    }
                    self.apply(Arc::new(pod));
                }
            }
            Event::Delete(object) => {
                if let Some(pod) = parse(&object) {
                    self.remove(&id_of(&pod), Some(pod.text("metadata.uid")));
                }
            }
            Event::InitDone => {
                if !std::mem::replace(&mut self.synced, true) {
                    self.remove_orphans();
                    let _ = self.adopted.send(AdapterEvent::PodsSynced);
                    self.ready.send_replace(true);
                }
            }
            Event::Init => {}
        }
    }

    /// Handles a Pod that was created or changed.
    fn apply(&mut self, pod: Arc<Value>) {
        let (id, uid) = (id_of(&pod), pod.text("metadata.uid").to_owned());
        let slot = self.machine.pods.lock().get(&id).cloned();
        if let Some(slot) = slot {
            if slot.uid == uid {
                if let Some(slot) = self.machine.pods.lock().get_mut(&id) {
                    slot.pod = pod.clone();
                }
                let _ = slot.queue.send(PodEvent::Updated(pod));
                return;
            }
            // A new Pod with the name of the previous one.
            let _ = slot.queue.send(PodEvent::Deleted);
        }
        if adopted::how(&pod).is_some() {
            let _ = self.adopted.send(AdapterEvent::PodUpdated(pod));
            return;
        }
        if self.machine.adopted.lock().contains_key(&id) {
            // The name belonged to an adopted Pod before.
            let _ = self.adopted.send(AdapterEvent::PodDeleted(id.clone(), None));
        }
        if is_ended(&pod) && !self.machine.dir.pod(&uid).path().exists() {
            return;
        }
        self.spawn(Worker::new(self.machine.clone(), pod.clone()), id, uid, pod);
    }

    fn spawn(&mut self, worker: Worker, id: PodId, uid: String, pod: Arc<Value>) {
        self.machine.pods.lock().insert(id.clone(), PodSlot { uid: uid.clone(), pod, queue: worker.queue() });
        self.workers.spawn(async move {
            worker.run().await;
            (id, uid)
        });
    }

    /// Handles a Pod that was deleted.
    fn remove(&mut self, id: &PodId, uid: Option<&str>) {
        let _ = self.adopted.send(AdapterEvent::PodDeleted(id.clone(), uid.map(str::to_owned)));
        let pods = self.machine.pods.lock();
        if let Some(slot) = pods.get(id).filter(|slot| uid.is_none_or(|uid| slot.uid == uid)) {
            let _ = slot.queue.send(PodEvent::Deleted);
        }
    }

    /// Frees the slot of a Pod whose resources are all released.
    fn worker_ended(&mut self, ended: Option<(PodId, String)>) {
        if let Some((id, uid)) = ended {
            let mut pods = self.machine.pods.lock();
            if pods.get(&id).is_some_and(|slot| slot.uid == uid) {
                pods.remove(&id);
            }
        }
    }

    /// Removes Pods that have a directory but were deleted while the agent did not run.
    fn remove_orphans(&mut self) {
        let uids: BTreeMap<String, Option<Value>> = self
            .machine
            .dir
            .uids()
            .into_iter()
            .map(|uid| (uid.clone(), files::get(&self.machine.dir.pod(&uid).pod())))
            .collect();
        let keep: BTreeSet<String> = uids.keys().chain(&self.listed).cloned().collect();
        if let Err(error) = self.machine.pool.lock().release_others(&keep) {
            tracing::warn!(%error, "failed to release addresses of deleted Pods");
        }
        for (uid, pod) in uids.into_iter().filter(|(uid, _)| !self.listed.contains(uid)) {
            let pod = pod.unwrap_or_else(|| serde_json::json!({"metadata": {"uid": uid}}));
            tracing::info!(uid, "removing orphaned Pod: it was deleted while the agent did not run");
            let pod = Arc::new(pod);
            let mut worker = Worker::new(self.machine.clone(), pod.clone());
            worker.mark_deleted();
            self.workers.spawn(async move {
                worker.run().await;
                (id_of(&pod), uid)
            });
        }
    }
}
