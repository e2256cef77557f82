//! Follows what a running container does: its end, its hook, its probes.

use std::time::Duration;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::{Message, Worker, termination};
use crate::decide::spec::Spec;
use crate::machine::Machine;
use crate::probes::ask::{Place, ask};
use crate::probes::{Kind, Tally, Timing, Verdict};
use crate::shim::{Begun, ENDED, Ended};
use crate::{files, ready};

/// How long a postStart hook may take.
const HOOK: Duration = Duration::from_secs(600);

impl Worker {
    /// Waits for the end of an instance.
    pub(super) fn watch(&mut self, name: &str, number: u32, begun: Begun) {
        let (path, name, inbox) = (self.home.instance(name, number).join(ENDED), name.to_owned(), self.inbox.clone());
        self.work.spawn(async move {
            wait_for(&begun).await;
            let ended = files::get(&path).unwrap_or_else(|| Ended {
                code: 137,
                reason: "ContainerStatusUnknown".to_owned(),
                message: "The supervisor of the container was killed".to_owned(),
                finished: Timestamp::now(),
            });
            let _ = inbox.send(Message::Ended(name, number, ended));
        });
    }

    pub(super) fn place(&self, container: &Value, name: &str, number: u32) -> Option<Place> {
        let own = match self.pod.flag("spec.hostNetwork") {
            true => self.facts.host.first(),
            false => self.facts.sandbox.addresses().first(),
        };
        Some(Place {
            address: *own?,
            container: container.clone(),
            instance: self.home.instance(name, number),
            program: self.machine.settings.program.clone(),
        })
    }

    /// Runs the postStart hook, if there is one; probes begin after it.
    pub(super) fn greet(&mut self, name: &str, number: u32) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let hook = part.value.at("lifecycle.postStart").clone();
        let inbox = self.inbox.clone();
        let owner = name.to_owned();
        match self.place(part.value, name, number).filter(|_| !hook.is_null()) {
            None => self.greeted(name, number, &Ok(())),
            Some(place) => {
                self.tasks.entry(owner.clone()).or_default().spawn(async move {
                    let answer = ask(&hook, &place, HOOK).await;
                    let _ = inbox.send(Message::Greeted(owner, number, answer));
                });
            }
        }
    }

    /// Begins to ask its probes. What it has none for is as well as can be.
    pub(super) fn begin_probes(&mut self, name: &str, number: u32) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let place = self.place(part.value, name, number);
        let Some(container) = self.present(name, number) else { return };
        let has = |kind: Kind| part.value.has(kind.field());
        container.health.started |= !has(Kind::Startup);
        container.health.ready |= !has(Kind::Readiness);
        let started = container.health.started;
        let Some(place) = place else { return };
        let (begun, _) = tokio::sync::watch::channel(started);
        for kind in Kind::ALL.into_iter().filter(|kind| has(*kind)) {
            if kind == Kind::Startup && started {
                continue;
            }
            let asking = Asking {
                kind,
                how: part.value.at(kind.field()).clone(),
                place: place.clone(),
                started: begun.clone(),
                tell: Tell { machine: self.machine.clone(), pod: pod.clone(), name: name.to_owned() },
                inbox: self.inbox.clone(),
                number,
            };
            self.tasks.entry(name.to_owned()).or_default().spawn(asking.run());
        }
    }

    /// What a container says at its end: in the place for that, or the end of its log.
    pub(super) fn last_words(&self, name: &str, number: u32, ended: &Ended) -> String {
        if !ended.message.is_empty() {
            return ended.message.clone();
        }
        let (file, log) =
            (self.home.instance(name, number).join(super::start::LAST_WORDS), self.home.log(name, number));
        let spec = Spec::read(&self.pod);
        let policy = spec.part(name).map_or("", |part| part.value.text("terminationMessagePolicy"));
        let from_log = policy == "FallbackToLogsOnError" && ended.code != 0;
        termination::message(&file, from_log.then_some(&*log), termination::limit(&self.pod))
    }
}

/// Waits until a supervisor has ended.
async fn wait_for(begun: &Begun) {
    if let Ok(Some(handle)) = begun.shim().open() {
        let _ = ready::ended(handle).await;
    }
}

/// How a probe tells people.
struct Tell {
    machine: std::sync::Arc<Machine>,
    pod: std::sync::Arc<Value>,
    name: String,
}

/// A probe that is asked.
struct Asking {
    kind: Kind,
    how: Value,
    place: Place,
    started: tokio::sync::watch::Sender<bool>,
    tell: Tell,
    inbox: UnboundedSender<Message>,
    number: u32,
}

impl Asking {
    async fn run(self) {
        let timing = Timing::read(&self.how);
        if self.kind != Kind::Startup {
            let mut started = self.started.subscribe();
            if started.wait_for(|started| *started).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(timing.delay).await;
        let mut tally = Tally::new(timing);
        let mut every = tokio::time::interval(timing.period);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let answer = ask(&self.how, &self.place, timing.timeout).await;
            if let Err(why) = &answer {
                let message = format!("{} probe failed: {why}", self.kind.word());
                let Tell { machine, pod, name } = &self.tell;
                machine.teller.tell(pod, Some(name), false, "Unhealthy", message);
            }
            let certain = tally.count(answer.is_ok());
            let verdict = match (self.kind, certain) {
                (_, None) => continue,
                (Kind::Startup, Some(true)) => Verdict::Started,
                (Kind::Readiness, Some(ready)) => Verdict::Ready(ready),
                (Kind::Liveness, Some(true)) => continue,
                (Kind::Startup | Kind::Liveness, Some(false)) => {
                    let kind = self.kind.word().to_lowercase();
                    Verdict::Dead(format!("Container {} failed {kind} probe, will be restarted", self.tell.name))
                }
            };
            let last = matches!(verdict, Verdict::Started | Verdict::Dead(_));
            let is_start = verdict == Verdict::Started;
            if self.inbox.send(Message::Probed(self.tell.name.clone(), self.number, verdict)).is_err() {
                return;
            }
            if is_start {
                self.started.send_replace(true);
            }
            if last {
                return;
            }
        }
    }
}
