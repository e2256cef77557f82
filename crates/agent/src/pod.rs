//! One Pod of this machine, from its coming to its going: a task that decides, takes steps, and hears what came of them.
//!
//! ```text
//! API, supervisors, probes ──messages──▶ facts ──decide──▶ steps (tasks of their own) and the status for the API
//! ```
//! Nothing here waits for a container: whatever takes time is a task that sends a message when it is done.

pub mod end;
pub mod fetch;
pub mod image;
pub mod kept;
pub mod start;
mod termination;
pub mod watch;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::value::ValueExt as _;
use client::requests::Verb;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::watch::Sender as Switch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api as requests;
use crate::decide::{self, Step, back_off, decide, spec::Spec};
use crate::facts::{Container, Ending, Facts, Sandbox, State};
use crate::home::PodHome;
use crate::machine::Machine;
use crate::probes::Verdict;
use crate::runtime::Refused;
use crate::shim::{Begun, Ended};
use crate::{files, sandbox};

/// How long the API may take to take a status.
const API_TIMEOUT: Duration = Duration::from_secs(5);
/// When a thing that failed is tried again.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// How often files of volumes are compared with the objects they come from, though no change was heard of.
const REFRESH: Duration = Duration::from_secs(15);

/// News of a Pod.
#[derive(Debug)]
pub enum Message {
    /// The API has it like this.
    Pod(Arc<Value>),
    /// The API has it no more.
    Gone,
    /// The sandbox was made, or not.
    Sandbox(Result<Vec<IpAddr>, String>),
    /// The sandbox was taken away, or not.
    Dismantled(Result<(), String>),
    /// An instance of a container began, or did not; with its image.
    Began(String, u32, Result<(Begun, String), Refused>),
    /// An instance of which it was not known whether it was begun was not, and will not be.
    Unbegun(String, u32),
    /// An instance ended.
    Ended(String, u32, Ended),
    /// The postStart hook of an instance was run.
    Greeted(String, u32, Result<(), String>),
    /// A probe of an instance says something.
    Probed(String, u32, Verdict),
    /// An object that it has mounted has changed.
    Refresh,
    /// Somebody wants it to be looked at again.
    Look,
}

/// The task of a Pod.
pub struct Worker {
    pub(crate) machine: Arc<Machine>,
    pub(crate) pod: Arc<Value>,
    pub(crate) facts: Facts,
    pub(crate) home: PodHome,
    pub(crate) inbox: mpsc::UnboundedSender<Message>,
    news: mpsc::UnboundedReceiver<Message>,
    /// Probes and hooks by container; they end with its instance.
    pub(crate) tasks: BTreeMap<String, JoinSet<()>>,
    /// Whatever else runs for the Pod.
    pub(crate) work: JoinSet<()>,
    /// Whether it is to go: what takes long and is not needed then ends.
    pub(crate) leaving: Switch<bool>,
    /// Of these, those that wait for a container to end.
    pub(crate) stops: BTreeMap<String, tokio::task::AbortHandle>,
}

impl Worker {
    /// A Pod that is here: what is left of it from before is taken over.
    #[must_use]
    pub fn new(machine: Arc<Machine>, pod: Arc<Value>) -> Self {
        let (inbox, news) = mpsc::unbounded_channel();
        let home = machine.home.pod(pod.text("metadata.uid"));
        let mut worker = Self {
            facts: Facts { host: machine.host.clone(), ..Facts::default() },
            machine,
            pod,
            home,
            inbox,
            news,
            tasks: BTreeMap::new(),
            work: JoinSet::new(),
            leaving: Switch::new(false),
            stops: BTreeMap::new(),
        };
        worker.take_over();
        worker
    }

    /// Where news of it go.
    #[must_use]
    pub fn inbox(&self) -> mpsc::UnboundedSender<Message> {
        self.inbox.clone()
    }

    /// Says that the API has it no more.
    pub fn gone(&mut self) {
        self.facts.gone = true;
    }

    /// Runs until nothing of the Pod is left here.
    pub async fn run(mut self) {
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.reset();
        self.follow_objects();
        loop {
            let now = Timestamp::now();
            self.facts.began.get_or_insert(now);
            let decision = decide(&self.pod, &self.facts, now);
            if self.facts.gone || self.pod.has("metadata.deletionTimestamp") {
                self.leaving.send_replace(true);
            }
            let mut again = decision.again.map(|at| at.duration_since(now).unsigned_abs());
            if !self.facts.gone && !self.show(&decision.status).await {
                again = Some(again.unwrap_or(Duration::MAX).min(Duration::from_secs(1)));
            }
            for step in decision.steps {
                if step == Step::Forget {
                    match self.forget().await {
                        true => return,
                        false => again = Some(Duration::from_secs(1)),
                    }
                } else {
                    self.take(step);
                }
            }
            tokio::select! {
                message = self.news.recv() => {
                    let Some(message) = message else { return };
                    self.hear(message);
                    // What came together is decided together.
                    while let Ok(more) = self.news.try_recv() {
                        self.hear(more);
                    }
                }
                () = tokio::time::sleep(again.unwrap_or(Duration::from_secs(3600))) => {}
                _ = refresh.tick() => self.refresh_volumes(),
                Some(_) = self.work.join_next() => {}
            }
        }
    }

    /// Tells the API how the Pod is; false when that must be tried again.
    async fn show(&mut self, status: &Value) -> bool {
        let Some(patch) = decide::patch(&self.pod, status) else { return true };
        let path = requests::pod_path(self.pod.text("metadata.namespace"), self.pod.text("metadata.name")) + "/status";
        match timeout(API_TIMEOUT, self.machine.api.request(Verb::Patch, &path, Some(&patch))).await {
            Ok(Ok(pod)) => {
                self.pod = Arc::new(pod);
                true
            }
            // It is gone, or another of its name is there: the watch will say so.
            Ok(Err(error)) if error.is_not_found() || error.is_conflict() => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, pod = self.key(), "the status of a Pod could not be written");
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

    /// Says something to people.
    pub(crate) fn tell(&self, container: Option<&str>, normal: bool, reason: &'static str, message: String) {
        self.machine.teller.tell(&self.pod, container, normal, reason, message);
    }

    // === steps ===

    fn take(&mut self, step: Step) {
        match step {
            Step::MakeSandbox => self.make_sandbox(),
            Step::Start(name) => self.start(&name),
            Step::Stop { name, grace, why } => self.stop(&name, grace, why),
            Step::RemoveSandbox => self.remove_sandbox(),
            Step::Forget => {}
        }
    }

    fn make_sandbox(&mut self) {
        self.facts.sandbox = Sandbox::Making;
        let (machine, pod, inbox) = (self.machine.clone(), self.pod.clone(), self.inbox.clone());
        if let Err(error) = std::fs::create_dir_all(self.home.path()).and_then(|()| files::put(&self.home.pod(), &*pod))
        {
            tracing::warn!(%error, pod = self.key(), "the folder of a Pod cannot be written");
        }
        self.work.spawn(async move {
            let made = async {
                let payloads = fetch::payloads(&machine, &pod, None).await.map_err(|error| error.to_string())?;
                let work = move || sandbox::make(&machine, &pod, &payloads).map_err(|error| error.to_string());
                tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
            };
            let _ = inbox.send(Message::Sandbox(made.await));
        });
    }

    fn remove_sandbox(&mut self) {
        self.facts.sandbox = Sandbox::Removing;
        let (machine, pod, inbox) = (self.machine.clone(), self.pod.clone(), self.inbox.clone());
        self.work.spawn(async move {
            let work = move || sandbox::remove(&machine, &pod).map_err(|error| error.to_string());
            let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string());
            let _ = inbox.send(Message::Dismantled(done.and_then(|done| done)));
        });
    }

    /// Hears of changes of the objects that it has mounted.
    fn follow_objects(&mut self) {
        let namespace = self.pod.text("metadata.namespace").to_owned();
        for (kind, name) in crate::volumes::references(&self.pod) {
            let Some(object) = self.machine.followed.follow(kind, &namespace, &name) else { continue };
            let inbox = self.inbox.clone();
            self.work.spawn(async move {
                let mut changes = object.changes();
                while changes.changed().await.is_ok() && inbox.send(Message::Refresh).is_ok() {}
            });
        }
    }

    /// Brings files of volumes up to date.
    fn refresh_volumes(&mut self) {
        let follows = self.pod.items("spec.volumes").iter().any(crate::volumes::follows);
        if !follows || !matches!(self.facts.sandbox, Sandbox::Ready { .. }) {
            return;
        }
        let (machine, pod, home) = (self.machine.clone(), self.pod.clone(), self.home.clone());
        self.work.spawn(async move {
            // What is missing now was there before: the files stay as they are.
            let Ok(payloads) = fetch::payloads(&machine, &pod, Some(&home)).await else { return };
            let work = move || crate::volumes::prepare(&pod, &home, &payloads);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await {
                tracing::debug!(%error, "a volume could not be brought up to date");
            }
        });
    }

    /// Nothing is left: says so to the API, and removes the folder. False when the API must be told again.
    async fn forget(&mut self) -> bool {
        let (namespace, name) = (self.pod.text("metadata.namespace"), self.pod.text("metadata.name"));
        if !self.facts.gone {
            let told = requests::forget_pod(&*self.machine.api, namespace, name, self.uid());
            match timeout(API_TIMEOUT, told).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, pod = self.key(), "a Pod that has ended could not be deleted");
                    return false;
                }
                Err(_) => return false,
            }
        }
        let folder = self.home.path().to_owned();
        let removed = tokio::task::spawn_blocking(move || files::remove_folder(&folder)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, pod = self.key(), "the folder of a Pod could not be removed");
        }
        true
    }

    // === news ===

    fn hear(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => {
                let changed = pod.at("metadata.annotations") != self.pod.at("metadata.annotations")
                    || pod.at("metadata.labels") != self.pod.at("metadata.labels");
                self.pod = pod;
                if changed {
                    self.refresh_volumes();
                }
            }
            Message::Gone => self.facts.gone = true,
            Message::Sandbox(Ok(addresses)) => self.facts.sandbox = Sandbox::Ready { addresses },
            Message::Sandbox(Err(why)) => {
                let reason = if why.starts_with("MountVolume") { "FailedMount" } else { "FailedCreatePodSandBox" };
                self.tell(None, false, reason, why.clone());
                self.facts.sandbox = Sandbox::Failed { why, until: later() };
            }
            Message::Dismantled(Ok(())) => self.facts.sandbox = Sandbox::Removed,
            Message::Dismantled(Err(why)) => {
                tracing::warn!(why, pod = self.key(), "what a Pod leaves could not be taken away; it is tried again");
                self.facts.sandbox = Sandbox::Failed { why, until: later() };
                self.look_later();
            }
            Message::Began(name, number, result) => self.began(&name, number, result),
            Message::Unbegun(name, number) => {
                if let Some(container) = self.present(&name, number) {
                    container.state = State::New;
                }
            }
            Message::Ended(name, number, ended) => self.ended(&name, number, &ended),
            Message::Greeted(name, number, result) => self.greeted(&name, number, &result),
            Message::Probed(name, number, verdict) => self.probed(&name, number, verdict),
            Message::Refresh => self.refresh_volumes(),
            Message::Look => {}
        }
    }

    fn look_later(&mut self) {
        let inbox = self.inbox.clone();
        self.work.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = inbox.send(Message::Look);
        });
    }

    /// The container, if this instance of it is the present one.
    pub(crate) fn present(&mut self, name: &str, number: u32) -> Option<&mut Container> {
        self.facts.containers.get_mut(name).filter(|container| container.restarts == number)
    }

    fn ended(&mut self, name: &str, number: u32, ended: &Ended) {
        self.tasks.remove(name);
        let message = self.last_words(name, number, ended);
        let Some(container) = self.present(name, number) else { return };
        let started = match container.state {
            State::Running { since, .. } => Some(since),
            _ => None,
        };
        let ending = Ending {
            code: ended.code,
            reason: ended.reason.clone(),
            message,
            started,
            finished: ended.finished,
            id: container.id.clone(),
        };
        container.back_off = back_off::after_run(container.back_off, started, ended.finished);
        container.state = State::Ended(ending);
        container.health = crate::facts::Health::default();
        let (code, waits) = (ended.code, container.back_off);
        self.keep(name);
        let spec = Spec::read(&self.pod);
        let leaving = self.facts.gone || self.pod.has("metadata.deletionTimestamp");
        if waits > 0 && spec.restarts(name, code) && !leaving {
            let message = format!("Back-off restarting failed container {name} in pod {}", self.key_with_uid());
            self.tell(Some(name), false, "BackOff", message);
        }
        let group = Machine::container_group(self.uid(), name);
        self.machine.groups.kill(&group);
        self.tidy(name, number);
    }

    pub(crate) fn key_with_uid(&self) -> String {
        let meta = self.pod.at("metadata");
        format!("{}_{}({})", meta.text("name"), meta.text("namespace"), meta.text("uid"))
    }

    fn greeted(&mut self, name: &str, number: u32, result: &Result<(), String>) {
        if let Err(why) = result {
            self.tell(Some(name), false, "FailedPostStartHook", format!("PostStartHook failed: {why}"));
        }
        let Some(container) = self.present(name, number) else { return };
        container.health.greeted = true;
        match result {
            Ok(()) => self.begin_probes(name, number),
            Err(_) => {
                container.health.condemned =
                    Some(format!("Container {name} failed its PostStartHook, will be restarted"));
            }
        }
    }

    fn probed(&mut self, name: &str, number: u32, verdict: Verdict) {
        let Some(container) = self.present(name, number).filter(|container| container.is_running()) else { return };
        match verdict {
            Verdict::Started => container.health.started = true,
            Verdict::Ready(ready) => container.health.ready = ready,
            Verdict::Dead(why) => container.health.condemned = Some(why),
        }
    }
}

/// When something that failed is tried again.
pub(crate) fn later() -> Timestamp {
    Timestamp::now().saturating_add(AGAIN).unwrap_or(Timestamp::MAX)
}
