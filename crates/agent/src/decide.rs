//! What to do next for a Pod: a pure function.
//!
//! In: the Pod as the API has it, what is known of it here, the time. Out: steps, the status that the API should show, and when to look
//! again though nothing happened. Steps that are under way are facts (`Starting`, `Making`), so they are not taken twice.
//!
//! ```text
//! sandbox ─▶ init containers, one after the other (sidecars stay) ─▶ containers ─▶ ends: restart policy and back-off
//!    └────────────── deletion, deadline: containers end, then sidecars, then the sandbox, then the object
//! ```

pub mod back_off;
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

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the network and the folders of the Pod.
    MakeSandbox,
    /// Begin a container.
    Start(String),
    /// End a container.
    Stop {
        /// Which.
        name: String,
        /// How long it has, in seconds.
        grace: u32,
        /// Why, for people.
        why: String,
    },
    /// Take the network away.
    RemoveSandbox,
    /// Nothing is left here: tell the API, and remove its folder.
    Forget,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do now.
    pub steps: Vec<Step>,
    /// The status that the API should show.
    pub status: Value,
    /// When to look again.
    pub again: Option<Timestamp>,
}

/// Decides.
#[must_use]
pub fn decide(pod: &Value, facts: &Facts, now: Timestamp) -> Decision {
    let spec = Spec::read(pod);
    let mut course = Course { spec: &spec, facts, now, steps: Vec::new(), again: None };
    let overdue = course.overdue(pod);
    let finished = spec.is_finished(facts) || matches!(pod.text("status.phase"), "Succeeded" | "Failed");
    let leaving = facts.gone || pod.has("metadata.deletionTimestamp");
    if leaving || overdue || finished {
        course.end(pod, leaving);
    } else {
        course.run();
    }
    let Course { steps, again, .. } = course;
    let status = status::status(pod, &spec, facts, &status::Around { now, overdue });
    Decision { steps, status, again }
}

struct Course<'a> {
    spec: &'a Spec<'a>,
    facts: &'a Facts,
    now: Timestamp,
    steps: Vec<Step>,
    again: Option<Timestamp>,
}

impl<'a> Course<'a> {
    fn container(&self, name: &str) -> Option<&'a Container> {
        self.facts.containers.get(name)
    }

    fn wait(&mut self, until: Timestamp) {
        self.again = Some(self.again.map_or(until, |again| again.min(until)));
    }

    /// Whether its time is over.
    fn overdue(&mut self, pod: &Value) -> bool {
        let (Some(seconds), Some(began)) = (pod.at("spec.activeDeadlineSeconds").as_i64(), self.facts.began) else {
            return false;
        };
        let until = began.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if self.now < until {
            self.wait(until);
        }
        self.now >= until
    }

    // === running ===

    fn run(&mut self) {
        match &self.facts.sandbox {
            Sandbox::Absent => self.steps.push(Step::MakeSandbox),
            Sandbox::Failed { until, .. } if *until <= self.now => self.steps.push(Step::MakeSandbox),
            Sandbox::Failed { until, .. } => self.wait(*until),
            Sandbox::Ready { .. } => self.containers(),
            Sandbox::Making | Sandbox::Removing | Sandbox::Removed => {}
        }
    }

    fn containers(&mut self) {
        let begun = self.spec.has_begun(self.facts);
        for part in &self.spec.parts {
            let passed = match part.role {
                Role::Main => {
                    self.keep(part.name);
                    true
                }
                Role::Sidecar => {
                    self.keep(part.name);
                    begun
                        || self
                            .container(part.name)
                            .is_some_and(|sidecar| sidecar.is_running() && sidecar.health.started)
                }
                // What was done before the containers began is not done again when they begin again.
                Role::Init if begun => true,
                Role::Init => self.initialize(part.name),
            };
            if !passed {
                return;
            }
        }
    }

    /// An init container: true when the next may begin.
    fn initialize(&mut self, name: &'a str) -> bool {
        if self.container(name).and_then(Container::ending).is_some_and(|ending| ending.code == 0) {
            return true;
        }
        self.keep(name);
        false
    }

    /// Has a container run, if it should.
    fn keep(&mut self, name: &'a str) -> Option<()> {
        match self.container(name).map(|container| (container, &container.state)) {
            None | Some((_, State::New)) => self.steps.push(Step::Start(name.to_owned())),
            Some((_, State::Refused { until, .. })) if *until <= self.now => {
                self.steps.push(Step::Start(name.to_owned()));
            }
            Some((_, State::Refused { until, .. })) => self.wait(*until),
            Some((_, State::Starting | State::Running { stopping: Some(_), .. })) => {}
            Some((container, State::Running { .. })) => {
                let why = container.health.condemned.clone()?;
                let grace = self.spec.grace_after_probe(name);
                self.steps.push(Step::Stop { name: name.to_owned(), grace, why });
            }
            Some((container, State::Ended(ending))) if self.spec.restarts(name, ending.code) => {
                let until = back_off::until(ending.finished, container.back_off);
                match until <= self.now {
                    true => self.steps.push(Step::Start(name.to_owned())),
                    false => self.wait(until),
                }
            }
            Some((_, State::Ended(_))) => {}
        }
        Some(())
    }

    // === ending ===

    fn end(&mut self, pod: &Value, leaving: bool) {
        let grace = self.spec.grace(pod, self.facts.gone);
        let alive = |role: fn(Role) -> bool| {
            let parts = self.spec.parts.iter().filter(move |part| role(part.role));
            parts.filter(|part| self.container(part.name).is_some_and(Container::is_alive)).map(|part| part.name)
        };
        // Sidecars serve the others to their end, and then go in the reverse order of their coming.
        let first: Vec<&str> = alive(|role| role != Role::Sidecar).collect();
        let next: Vec<&str> = match first.is_empty() {
            true => alive(|role| role == Role::Sidecar).next_back().into_iter().collect(),
            false => first,
        };
        let done = next.is_empty();
        for name in next {
            // Whoever was asked is asked again only when there is less time now.
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
            Sandbox::Making | Sandbox::Removing => {}
            Sandbox::Ready { .. } | Sandbox::Failed { .. } => self.steps.push(Step::RemoveSandbox),
            Sandbox::Absent if leaving => self.steps.push(Step::RemoveSandbox),
            Sandbox::Removed if leaving => self.steps.push(Step::Forget),
            Sandbox::Absent | Sandbox::Removed => {}
        }
    }
}
