//! The office of adopted Pods: compares what was found with what the API has, and sets right what differs.
//!
//! In: Pods of the API that were adopted, what adapters found, answers to questions. Out: Pods that are made, shown and removed. One task does all
//! of it, one write after the other: there is little to do, and nobody waits for it.

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

use super::registered::{Answer, Asking};
use super::standing::{Asked, Life, Standing, facts};
use super::{Found, Inbox, News};
use crate::api::{forget_pod, pod_path};
use crate::decide::{self, decide};
use crate::machine::Machine;
use crate::workloads::PodId;

/// How long the API may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// When a thing that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Office {
    machine: Arc<Machine>,
    inbox: Inbox,
    news: mpsc::UnboundedReceiver<News>,
    pods: BTreeMap<PodId, Held>,
    /// What each adapter found; one that has not said anything yet is not here.
    found: BTreeMap<&'static str, BTreeMap<PodId, Found>>,
    /// Whether all Pods of the API are known.
    complete: bool,
    /// Conflicts that people were told of.
    told: BTreeSet<PodId>,
    /// Whether somebody will say that it is time to look again.
    waiting: bool,
    waits: JoinSet<()>,
}

/// A Pod that the API has.
struct Held {
    pod: Arc<Value>,
    answer: Option<Answer>,
    asking: Option<Questions>,
}

/// Somebody who asks it how it is. Dropped, they stop.
struct Questions {
    how: Value,
    addresses: Vec<IpAddr>,
    _task: JoinSet<()>,
}

impl Office {
    pub(super) fn new(machine: Arc<Machine>, inbox: Inbox, news: mpsc::UnboundedReceiver<News>) -> Self {
        Self {
            machine,
            inbox,
            news,
            pods: BTreeMap::new(),
            found: BTreeMap::new(),
            complete: false,
            told: BTreeSet::new(),
            waiting: false,
            waits: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(news) = self.news.recv().await {
            let mut touched = self.hear(news);
            // What came together is looked at together.
            while let Ok(more) = self.news.try_recv() {
                touched.append(&mut self.hear(more));
            }
            if !self.complete {
                continue;
            }
            for id in touched {
                let set = timeout(PATIENCE, self.settle(&id)).await;
                let why = match set {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("the API does not answer within {PATIENCE:?}"),
                };
                tracing::warn!(why, pod = %format_args!("{}/{}", id.namespace, id.name), "an adopted Pod could not be set right; it is tried again");
                self.look_later();
            }
        }
    }

    /// Takes news in; answers which Pods they concern.
    fn hear(&mut self, news: News) -> BTreeSet<PodId> {
        match news {
            News::Pod(pod) => {
                let id = PodId {
                    namespace: pod.text("metadata.namespace").to_owned(),
                    name: pod.text("metadata.name").to_owned(),
                };
                self.hold(&id, pod);
                [id].into()
            }
            News::Gone(id, uid) => {
                let is_it = |held: &Held| uid.as_deref().is_none_or(|uid| held.pod.text("metadata.uid") == uid);
                if !self.pods.get(&id).is_some_and(is_it) {
                    return BTreeSet::new();
                }
                self.pods.remove(&id);
                self.machine.adopted.lock().remove(&id);
                [id].into()
            }
            News::Listed => {
                self.complete = true;
                self.everything()
            }
            News::Found(how, all) => {
                let all: BTreeMap<PodId, Found> = all.into_iter().map(|found| (found.id(), found)).collect();
                let before = self.found.insert(how, all);
                let now = self.found.get(how);
                let of_this_kind = self.pods.iter().filter(|(_, held)| adopted::how(&held.pod) == Some(how));
                let known = of_this_kind.map(|(id, _)| id.clone()).filter(|_| before.is_none());
                let old =
                    before.iter().flatten().filter(|(id, found)| now.and_then(|now| now.get(*id)) != Some(*found));
                let new = now.into_iter().flatten().filter(|(id, found)| {
                    before.as_ref().and_then(|before| before.get(*id)) != Some(*found)
                        || !(self.pods.contains_key(*id) || self.told.contains(*id))
                });
                old.chain(new).map(|(id, _)| id.clone()).chain(known).collect()
            }
            News::Answered(id, uid, answer) => match self.pods.get_mut(&id) {
                Some(held) if held.pod.text("metadata.uid") == uid => {
                    held.answer = Some(answer);
                    [id].into()
                }
                _ => BTreeSet::new(),
            },
            News::Look => {
                self.waiting = false;
                self.everything()
            }
        }
    }

    fn everything(&self) -> BTreeSet<PodId> {
        self.pods.keys().chain(self.found.values().flat_map(BTreeMap::keys)).cloned().collect()
    }

    /// Knows a Pod; what was known of another one of its name is forgotten.
    fn hold(&mut self, id: &PodId, pod: Arc<Value>) {
        self.machine.adopted.lock().insert(id.clone(), pod.clone());
        match self.pods.get_mut(id) {
            Some(held) if held.pod.text("metadata.uid") == pod.text("metadata.uid") => held.pod = pod,
            _ => drop(self.pods.insert(id.clone(), Held { pod, answer: None, asking: None })),
        }
    }

    fn wanted(&self, id: &PodId) -> Option<&Found> {
        self.found.values().find_map(|all| all.get(id))
    }

    /// Sets one Pod right.
    async fn settle(&mut self, id: &PodId) -> Result<(), ApiError> {
        let wanted = self.wanted(id).cloned();
        let Some(held) = self.pods.get(id) else {
            return match wanted {
                Some(found) => self.make(id, &found).await,
                None => Ok(()),
            };
        };
        let pod = held.pod.clone();
        let how = adopted::how(&pod).unwrap_or_default();
        let stays = match &wanted {
            _ if pod.has("metadata.deletionTimestamp") => false,
            _ if how == REGISTERED => true,
            Some(found) => found.draft.is(&pod),
            // Who looks after it has not said anything yet, or is a stranger.
            None => !self.found.contains_key(how),
        };
        if !stays {
            // When it is gone, a new one is made of what still runs.
            return forget_pod(&*self.machine.api, &id.namespace, &id.name, pod.text("metadata.uid")).await;
        }
        let runs = Standing { life: Life::Running(None), ..Standing::default() };
        match (how, wanted) {
            (REGISTERED, _) => self.show(id, &runs).await,
            (_, Some(found)) => self.show(id, &found.standing).await,
            (_, None) => Ok(()),
        }
    }

    /// Makes the Pod of something that was found.
    async fn make(&mut self, id: &PodId, found: &Found) -> Result<(), ApiError> {
        let node = self.machine.settings.node.clone();
        let object = find(&*self.machine.api, &format!("/api/v1/nodes/{node}")).await?.unwrap_or_default();
        let pod = found.draft.pod(&node, object.text("metadata.uid"));
        let path = format!("/api/v1/namespaces/{}/pods", id.namespace);
        match self.machine.api.request(Verb::Create, &path, Some(&pod)).await {
            Ok(made) => {
                tracing::info!(pod = %format_args!("{}/{}", id.namespace, id.name), how = found.draft.how, source = found.draft.source, "adopted");
                self.told.remove(id);
                self.hold(id, Arc::new(made));
                self.show(id, &found.standing).await
            }
            Err(ApiError::Refused { code: code @ (400..500), message }) => {
                if self.told.insert(id.clone()) {
                    let PodId { namespace, name } = id;
                    let advice = match code {
                        409 => "give it another name with the label waypost.dev/name",
                        404 => "make its namespace with `kubectl create namespace`",
                        _ => "look at its name, labels and ports",
                    };
                    tracing::warn!(
                        how = found.draft.how,
                        source = found.draft.source,
                        "cannot become the Pod {namespace}/{name}: {message}; {advice}"
                    );
                }
                self.look_later();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Shows how a Pod is, and has it asked if it must be.
    async fn show(&mut self, id: &PodId, standing: &Standing) -> Result<(), ApiError> {
        self.attend(id, standing);
        let Some(held) = self.pods.get(id) else { return Ok(()) };
        let asked = match (&held.asking, &held.answer) {
            (None, _) if Asking::question(&held.pod).is_null() => Asked::Never,
            (None, _) | (Some(_), None) => Asked::NotYet,
            (Some(_), Some(answer)) => Asked::Answers(&answer.0),
        };
        let now = Timestamp::now();
        let facts = facts(&held.pod, standing, asked, &self.machine.host, now);
        let mut status = decide(&held.pod, &facts, now).status;
        name_keeper(&mut status, &held.pod, &standing.id);
        let Some(patch) = decide::patch(&held.pod, &status) else { return Ok(()) };
        let path = pod_path(&id.namespace, &id.name) + "/status";
        match self.machine.api.request(Verb::Patch, &path, Some(&patch)).await {
            Ok(pod) => {
                self.hold(id, Arc::new(pod));
                Ok(())
            }
            // It is gone, or another of its name is there: the watch will say so.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has a Pod asked by its probe while it runs.
    fn attend(&mut self, id: &PodId, standing: &Standing) {
        let Some(held) = self.pods.get_mut(id) else { return };
        let how = Asking::question(&held.pod).clone();
        let addresses = match held.pod.flag("spec.hostNetwork") {
            true => self.machine.host.iter().copied().filter(|ip| !ip.is_loopback()).collect(),
            false => standing.addresses.clone(),
        };
        if how.is_null() || !matches!(standing.life, Life::Running(_)) {
            (held.asking, held.answer) = (None, None);
            return;
        }
        if held.asking.as_ref().is_some_and(|asking| asking.how == how && asking.addresses == addresses) {
            return;
        }
        let asking = Asking {
            pod: held.pod.clone(),
            addresses: addresses.clone(),
            inbox: self.inbox.clone(),
            teller: self.machine.teller.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(asking.run());
        held.asking = Some(Questions { how, addresses, _task: task });
    }

    fn look_later(&mut self) {
        if std::mem::replace(&mut self.waiting, true) {
            return;
        }
        let inbox = self.inbox.clone();
        self.waits.spawn(async move {
            tokio::time::sleep(AGAIN).await;
            let _ = inbox.send(News::Look);
        });
        while self.waits.try_join_next().is_some() {}
    }
}

/// Says by whose id the container goes.
fn name_keeper(status: &mut Value, pod: &Value, id: &str) {
    let how = adopted::how(pod).unwrap_or_default();
    for container in status.items_mut("containerStatuses") {
        container.put("containerID", if id.is_empty() { String::new() } else { format!("{how}://{id}") });
    }
}
