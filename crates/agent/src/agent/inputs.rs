//! Watches of an agent: its Pods, its Node, all Nodes, all Services and their ranges.

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
use crate::adapters::{Inbox, News};
use crate::files;
use crate::machine::{self, Machine, Seat};
use crate::pod::{Message, Worker};
use crate::workloads::PodId;

/// The watches.
pub(super) struct Watches {
    pods: Watch,
    nodes: Watch,
    services: Watch,
    service_ranges: Watch,
}

impl Watches {
    pub(super) fn begin(source: &dyn Source, node: &str) -> Result<Self, Status> {
        let pods = Selection::all(&kinds::pod::KIND).selected("", &format!("spec.nodeName={node}"))?;
        Ok(Self {
            pods: source.watch(pods),
            nodes: source.watch(Selection::all(&kinds::node::KIND)),
            services: source.watch(Selection::all(&kinds::service::KIND)),
            service_ranges: source.watch(Selection::all(&kinds::servicecidr::KIND).optional()),
        })
    }

    /// Follows all of them. Pods begin when Services and the network are known.
    pub(super) async fn run(
        self,
        machine: Arc<Machine>,
        ranges: watch::Sender<Vec<IpNet>>,
        ready: watch::Sender<bool>,
        adopted: Inbox,
    ) {
        let Self { mut pods, nodes, services, service_ranges } = self;
        let (services_known, mut wait_services) = watch::channel(false);
        let (nodes_known, mut wait_nodes) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_services(machine.clone(), services, services_known));
        tasks.spawn(network::follow(machine.clone(), nodes, service_ranges, ranges, nodes_known));
        let _ = wait_services.wait_for(|known| *known).await;
        let _ = wait_nodes.wait_for(|known| *known).await;
        let mut desk = Desk { machine, listed: BTreeSet::new(), workers: JoinSet::new(), first: true, ready, adopted };
        let mut known = KnownKeys::default();
        loop {
            tokio::select! {
                event = pods.next() => {
                    let vanished = known.apply(&event);
                    desk.hear(event, &vanished);
                }
                Some(ended) = desk.workers.join_next() => desk.leave(ended.ok()),
            }
        }
    }
}

/// An object as JSON; one that cannot be read is said and left out.
pub(super) fn parse(object: &Object) -> Option<Value> {
    serde_json::from_slice(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "an object cannot be read; it is left out"))
        .ok()
}

async fn follow_services(machine: Arc<Machine>, mut watching: Watch, known: watch::Sender<bool>) {
    let mut names = KnownKeys::default();
    loop {
        let event = watching.next().await;
        let vanished = names.apply(&event);
        let mut services = machine.services.lock();
        for key in vanished {
            services.remove(&*key);
        }
        match &event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(value) = parse(object) {
                    services.insert(object.key(), machine::Known::read(&value));
                }
            }
            Event::Delete(object) => drop(services.remove(&object.key())),
            Event::InitDone => drop(known.send_replace(true)),
            Event::Init => {}
        }
    }
}

/// Where Pods come and go.
struct Desk {
    machine: Arc<Machine>,
    /// The uids of the first list.
    listed: BTreeSet<String>,
    workers: JoinSet<(PodId, String)>,
    first: bool,
    ready: watch::Sender<bool>,
    /// Where Pods go that stand for what runs without us.
    adopted: Inbox,
}

fn id_of(pod: &Value) -> PodId {
    PodId { namespace: pod.text("metadata.namespace").to_owned(), name: pod.text("metadata.name").to_owned() }
}

impl Desk {
    fn hear(&mut self, event: Event, vanished: &[Box<str>]) {
        for key in vanished {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            self.gone(&PodId { namespace: namespace.to_owned(), name: name.to_owned() }, None);
        }
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(pod) = parse(&object) {
                    if self.first {
                        self.listed.insert(pod.text("metadata.uid").to_owned());
                    }
                    self.here(Arc::new(pod));
                }
            }
            Event::Delete(object) => {
                if let Some(pod) = parse(&object) {
                    self.gone(&id_of(&pod), Some(pod.text("metadata.uid")));
                }
            }
            Event::InitDone => {
                if std::mem::take(&mut self.first) {
                    self.orphans();
                    let _ = self.adopted.send(News::Listed);
                    self.ready.send_replace(true);
                }
            }
            Event::Init => {}
        }
    }

    /// A Pod that the API has.
    fn here(&mut self, pod: Arc<Value>) {
        let (id, uid) = (id_of(&pod), pod.text("metadata.uid").to_owned());
        let seat = self.machine.seats.lock().get(&id).cloned();
        if let Some(seat) = seat {
            if seat.uid == uid {
                if let Some(seat) = self.machine.seats.lock().get_mut(&id) {
                    seat.pod = pod.clone();
                }
                let _ = seat.inbox.send(Message::Pod(pod));
                return;
            }
            // Another of the same name was here before it.
            let _ = seat.inbox.send(Message::Gone);
        }
        if adopted::how(&pod).is_some() {
            let _ = self.adopted.send(News::Pod(pod));
            return;
        }
        if self.machine.adopted.lock().contains_key(&id) {
            // It is one of ours from now on.
            let _ = self.adopted.send(News::Gone(id.clone(), None));
        }
        self.employ(Worker::new(self.machine.clone(), pod.clone()), id, uid, pod);
    }

    fn employ(&mut self, worker: Worker, id: PodId, uid: String, pod: Arc<Value>) {
        self.machine.seats.lock().insert(id.clone(), Seat { uid: uid.clone(), pod, inbox: worker.inbox() });
        self.workers.spawn(async move {
            worker.run().await;
            (id, uid)
        });
    }

    /// A Pod that the API has no more.
    fn gone(&mut self, id: &PodId, uid: Option<&str>) {
        let _ = self.adopted.send(News::Gone(id.clone(), uid.map(str::to_owned)));
        let seats = self.machine.seats.lock();
        if let Some(seat) = seats.get(id).filter(|seat| uid.is_none_or(|uid| seat.uid == uid)) {
            let _ = seat.inbox.send(Message::Gone);
        }
    }

    /// Nothing of a Pod is left.
    fn leave(&mut self, ended: Option<(PodId, String)>) {
        if let Some((id, uid)) = ended {
            let mut seats = self.machine.seats.lock();
            if seats.get(&id).is_some_and(|seat| seat.uid == uid) {
                seats.remove(&id);
            }
        }
    }

    /// Pods that have a folder here, and that the API has forgotten while we were away.
    fn orphans(&mut self) {
        let uids: BTreeMap<String, Option<Value>> = self
            .machine
            .home
            .uids()
            .into_iter()
            .map(|uid| (uid.clone(), files::get(&self.machine.home.pod(&uid).pod())))
            .collect();
        let keep: BTreeSet<String> = uids.keys().chain(&self.listed).cloned().collect();
        if let Err(error) = self.machine.pool.lock().keep_only(&keep) {
            tracing::warn!(%error, "addresses of Pods that are gone could not be taken back");
        }
        for (uid, pod) in uids.into_iter().filter(|(uid, _)| !self.listed.contains(uid)) {
            let pod = pod.unwrap_or_else(|| serde_json::json!({"metadata": {"uid": uid}}));
            tracing::info!(uid, "a Pod was deleted while the agent was away; what is left of it goes");
            let pod = Arc::new(pod);
            let mut worker = Worker::new(self.machine.clone(), pod.clone());
            worker.gone();
            self.workers.spawn(async move {
                worker.run().await;
                (id_of(&pod), uid)
            });
        }
    }
}
