//! Tasks of a running container: waiting for its exit, the postStart hook, probes.

use std::time::Duration;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::{PodEvent, Worker, termination};
use crate::decide::spec::Spec;
use crate::machine::Machine;
use crate::probes::run::{ProbeTarget, run_probe};
use crate::probes::{Kind, ProbeOutcome, Tally, Timing};
use crate::shim::{EXIT_FILE, ExitRecord, StartRecord};
use crate::{files, ready};

/// The time limit of a postStart hook.
const POST_START_TIMEOUT: Duration = Duration::from_secs(600);

impl Worker {
    /// Waits for the exit of an instance.
    pub(super) fn watch(&mut self, name: &str, number: u32, start: StartRecord) {
        let (path, name, queue) =
            (self.dir.instance(name, number).join(EXIT_FILE), name.to_owned(), self.queue.clone());
        self.work.spawn(async move {
            wait_for(&start).await;
            let exited = files::get(&path).unwrap_or_else(|| ExitRecord {
                code: 137,
                reason: "ContainerStatusUnknown".to_owned(),
                message: "The shim of the container was killed".to_owned(),
                finished: Timestamp::now(),
            });
            let _ = queue.send(PodEvent::Exited(name, number, exited));
        });
    }

    pub(super) fn probe_target(&self, container: &Value, name: &str, number: u32) -> Option<ProbeTarget> {
        let own = match self.pod.flag("spec.hostNetwork") {
            true => self.facts.host.first(),
            false => self.facts.sandbox.addresses().first(),
        };
        Some(ProbeTarget {
            address: *own?,
            container: container.clone(),
            instance: self.dir.instance(name, number),
            program: self.machine.settings.program.clone(),
        })
    }

    /// Runs the postStart hook, if there is one; probes start after it.
    pub(super) fn run_post_start(&mut self, name: &str, number: u32) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let hook = part.value.at("lifecycle.postStart").clone();
        let queue = self.queue.clone();
        let owner = name.to_owned();
        match self.probe_target(part.value, name, number).filter(|_| !hook.is_null()) {
            None => self.post_start_done(name, number, &Ok(())),
            Some(probe_target) => {
                self.tasks.entry(owner.clone()).or_default().spawn(async move {
                    let answer = run_probe(&hook, &probe_target, POST_START_TIMEOUT).await;
                    let _ = queue.send(PodEvent::PostStartDone(owner, number, answer));
                });
            }
        }
    }

    /// Starts the probes. Without a probe the container counts as started and ready.
    pub(super) fn start_probes(&mut self, name: &str, number: u32) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let probe_target = self.probe_target(part.value, name, number);
        let Some(container) = self.current(name, number) else { return };
        let has = |kind: Kind| part.value.has(kind.field());
        container.health.started |= !has(Kind::Startup);
        container.health.ready |= !has(Kind::Readiness);
        let started = container.health.started;
        let Some(probe_target) = probe_target else { return };
        let (start, _) = tokio::sync::watch::channel(started);
        for kind in Kind::ALL.into_iter().filter(|kind| has(*kind)) {
            if kind == Kind::Startup && started {
                continue;
            }
            let task = ProbeTask {
                kind,
                how: part.value.at(kind.field()).clone(),
                probe_target: probe_target.clone(),
                started: start.clone(),
                record: ProbeSubject { machine: self.machine.clone(), pod: pod.clone(), name: name.to_owned() },
                queue: self.queue.clone(),
                number,
            };
            self.tasks.entry(name.to_owned()).or_default().spawn(task.run());
        }
    }

    /// The termination message of an instance.
    pub(super) fn termination_message(&self, name: &str, number: u32, exited: &ExitRecord) -> String {
        if !exited.message.is_empty() {
            return exited.message.clone();
        }
        let (file, log) =
            (self.dir.instance(name, number).join(super::start::TERMINATION_LOG), self.dir.log(name, number));
        let spec = Spec::read(&self.pod);
        let policy = spec.part(name).map_or("", |part| part.value.text("terminationMessagePolicy"));
        let from_log = policy == "FallbackToLogsOnError" && exited.code != 0;
        termination::message(&file, from_log.then_some(&*log), termination::limit(&self.pod))
    }
}

/// Waits until a shim has exited.
async fn wait_for(start: &StartRecord) {
    if let Ok(Some(handle)) = start.shim().open() {
        let _ = ready::exited(handle).await;
    }
}

/// The container that a probe records Events about.
struct ProbeSubject {
    machine: std::sync::Arc<Machine>,
    pod: std::sync::Arc<Value>,
    name: String,
}

/// A running probe.
struct ProbeTask {
    kind: Kind,
    how: Value,
    probe_target: ProbeTarget,
    started: tokio::sync::watch::Sender<bool>,
    record: ProbeSubject,
    queue: UnboundedSender<PodEvent>,
    number: u32,
}

impl ProbeTask {
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
            let answer = run_probe(&self.how, &self.probe_target, timing.timeout).await;
            if let Err(why) = &answer {
                let message = format!("{} probe failed: {why}", self.kind.word());
                let ProbeSubject { machine, pod, name } = &self.record;
                machine.recorder.record(pod, Some(name), false, "Unhealthy", message);
            }
            let certain = tally.count(answer.is_ok());
            let outcome = match (self.kind, certain) {
                (_, None) => continue,
                (Kind::Startup, Some(true)) => ProbeOutcome::Started,
                (Kind::Readiness, Some(ready)) => ProbeOutcome::Ready(ready),
                (Kind::Liveness, Some(true)) => continue,
                (Kind::Startup | Kind::Liveness, Some(false)) => {
                    let kind = self.kind.word().to_lowercase();
                    ProbeOutcome::Dead(format!("Container {} failed {kind} probe, will be restarted", self.record.name))
                }
            };
            let last = matches!(outcome, ProbeOutcome::Started | ProbeOutcome::Dead(_));
            let is_start = outcome == ProbeOutcome::Started;
            if self.queue.send(PodEvent::ProbeResult(self.record.name.clone(), self.number, outcome)).is_err() {
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
