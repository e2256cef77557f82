//! The reconcile function of a Pod. Pure.
//!
//! In: the Pod object, the observed state, the time. Out: the next steps, the desired status, and when to reconcile again without an event. Steps
//! that are under way are part of the observed state (`Starting`, `Creating`), so they are not repeated.
//!
//! ```text
//! sandbox ─▶ init containers, one after the other (sidecars keep running) ─▶ containers ─▶ exit: restart policy and backoff
//!    └────────────── deletion, deadline, eviction: stop containers, then sidecars; remove the sandbox, then the object
//! ```

pub mod backoff;
pub mod eviction;
pub mod spec;
mod status;
#[cfg(test)]
mod tests;

use api::value::ValueExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::spec::{Role, Spec};
pub use self::status::patch;
use crate::facts::{Container, Facts, Sandbox, State};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create the sandbox: network, files, volumes.
    CreateSandbox,
    /// Start a container.
    Start(String),
    /// Stop a container.
    Stop {
        /// The container.
        name: String,
        /// The grace period, in seconds.
        grace: u32,
        /// The message of the Event.
        why: String,
    },
    /// Remove the sandbox.
    RemoveSandbox,
    /// All resources are released: delete the Pod object and its directory.
    DeletePod,
}

/// The result of a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The next steps.
    pub steps: Vec<Step>,
    /// The desired status.
    pub status: Value,
    /// When to reconcile again without an event.
    pub requeue_at: Option<Timestamp>,
    /// Why the Pod is evicted, if it is.
    pub evicted: Option<String>,
}

/// Reconciles a Pod.
#[must_use]
pub fn decide(pod: &Value, facts: &Facts, now: Timestamp) -> Decision {
    let spec = Spec::read(pod);
    let mut planner = Planner { spec: &spec, facts, now, steps: Vec::new(), requeue_at: None };
    let overdue = planner.overdue(pod);
    let finished = spec.is_finished(facts) || matches!(pod.text("status.phase"), "Succeeded" | "Failed");
    let terminating = facts.deleted || pod.has("metadata.deletionTimestamp");
    let ends = terminating || overdue || finished;
    let evicted = match &facts.evicted {
        None if !ends => eviction::message(pod, &facts.storage),
        decided => decided.clone(),
    };
    if ends || evicted.is_some() {
        let grace = spec.grace(pod, facts.deleted);
        let grace = if evicted.is_some() { grace.min(eviction::GRACE) } else { grace };
        planner.end(grace, terminating);
    } else {
        planner.run();
    }
    let Planner { steps, requeue_at, .. } = planner;
    let context = status::Context { now, overdue, evicted: evicted.as_deref() };
    let status = status::status(pod, &spec, facts, &context);
    Decision { steps, status, requeue_at, evicted }
}

struct Planner<'a> {
    spec: &'a Spec<'a>,
    facts: &'a Facts,
    now: Timestamp,
    steps: Vec<Step>,
    requeue_at: Option<Timestamp>,
}

impl<'a> Planner<'a> {
    fn container(&self, name: &str) -> Option<&'a Container> {
        self.facts.containers.get(name)
    }

    fn wait(&mut self, until: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(until, |requeue_at| requeue_at.min(until)));
    }

    /// Whether `activeDeadlineSeconds` has passed.
    fn overdue(&mut self, pod: &Value) -> bool {
        let (Some(seconds), Some(started)) = (pod.at("spec.activeDeadlineSeconds").as_i64(), self.facts.started) else {
            return false;
        };
        let until = started.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if self.now < until {
            self.wait(until);
        }
        self.now >= until
    }

    // === running ===

    fn run(&mut self) {
        match &self.facts.sandbox {
            Sandbox::Absent => self.steps.push(Step::CreateSandbox),
            Sandbox::Failed { until, .. } if *until <= self.now => self.steps.push(Step::CreateSandbox),
            Sandbox::Failed { until, .. } => self.wait(*until),
            Sandbox::Ready { .. } => self.containers(),
            Sandbox::Creating | Sandbox::Removing | Sandbox::Removed => {}
        }
    }

    fn containers(&mut self) {
        let begun = self.spec.has_begun(self.facts);
        for part in &self.spec.parts {
            let passed = match part.role {
                Role::Main => {
                    self.ensure_running(part.name);
                    true
                }
                Role::Sidecar => {
                    self.ensure_running(part.name);
                    begun
                        || self
                            .container(part.name)
                            .is_some_and(|sidecar| sidecar.is_running() && sidecar.health.started)
                }
                // Init containers do not run again when a container restarts.
                Role::Init if begun => true,
                Role::Init => self.initialize(part.name),
            };
            if !passed {
                return;
            }
        }
    }

    /// An init container: true when the next one may start.
    fn initialize(&mut self, name: &'a str) -> bool {
        if self.container(name).and_then(Container::ending).is_some_and(|ending| ending.code == 0) {
            return true;
        }
        self.ensure_running(name);
        false
    }

    /// Starts, restarts or kills a container as its state requires.
    fn ensure_running(&mut self, name: &'a str) -> Option<()> {
        match self.container(name).map(|container| (container, &container.state)) {
            None | Some((_, State::New)) => self.steps.push(Step::Start(name.to_owned())),
            Some((_, State::StartFailed { until, .. })) if *until <= self.now => {
                self.steps.push(Step::Start(name.to_owned()));
            }
            Some((_, State::StartFailed { until, .. })) => self.wait(*until),
            Some((_, State::Starting | State::Running { stopping: Some(_), .. })) => {}
            Some((container, State::Running { .. })) => {
                let why = container.health.kill_reason.clone()?;
                let grace = self.spec.grace_after_probe(name);
                self.steps.push(Step::Stop { name: name.to_owned(), grace, why });
            }
            Some((container, State::Terminated(ending))) if self.spec.restarts(name, ending.code) => {
                let until = backoff::until(ending.finished, container.backoff);
                match until <= self.now {
                    true => self.steps.push(Step::Start(name.to_owned())),
                    false => self.wait(until),
                }
            }
            Some((_, State::Terminated(_))) => {}
        }
        Some(())
    }

    // === ending ===

    fn end(&mut self, grace: u32, terminating: bool) {
        let alive = |role: fn(Role) -> bool| {
            let parts = self.spec.parts.iter().filter(move |part| role(part.role));
            parts.filter(|part| self.container(part.name).is_some_and(Container::is_alive)).map(|part| part.name)
        };
        // Sidecars are stopped after all others, in reverse order of their start.
        let first: Vec<&str> = alive(|role| role != Role::Sidecar).collect();
        let next: Vec<&str> = match first.is_empty() {
            true => alive(|role| role == Role::Sidecar).next_back().into_iter().collect(),
            false => first,
        };
        let done = next.is_empty();
        for name in next {
            // A stop is repeated only with a shorter grace period.
            let is_due = match self.container(name).map(|container| &container.state) {
                Some(State::Running { stopping, .. }) => stopping.is_none_or(|given| grace < given),
                _ => false,
            };
            if is_due {
                let why = format!("Stopping container {name}");
                self.steps.push(Step::Stop { name: name.to_owned(), grace, why });
            }
        }
        if !done {
            return;
        }
        match &self.facts.sandbox {
            Sandbox::Creating | Sandbox::Removing => {}
            Sandbox::Ready { .. } | Sandbox::Failed { .. } => self.steps.push(Step::RemoveSandbox),
            Sandbox::Absent if terminating => self.steps.push(Step::RemoveSandbox),
            Sandbox::Removed if terminating => self.steps.push(Step::DeletePod),
            Sandbox::Absent | Sandbox::Removed => {}
        }
    }
}
