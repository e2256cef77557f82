//! The parts of a Pod spec that reconciling needs.

use api::value::ValueExt as _;
use serde_json::Value;

use crate::facts::{Facts, State};

/// The default grace period, in seconds.
const DEFAULT_GRACE: u32 = 30;
/// The longest grace period, in seconds, of a Pod whose object is gone: a new Pod with its name may exist already.
const FORCED_GRACE: u32 = 2;

/// The role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to completion before the next container starts.
    Init,
    /// An init container with `restartPolicy: Always`: starts before and stops after the others.
    Sidecar,
    /// A regular container.
    Main,
}

/// A container of the spec.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its role.
    pub role: Role,
    /// Its spec.
    pub value: &'a Value,
}

/// The spec of a Pod.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// Its containers in start order.
    pub parts: Vec<Part<'a>>,
    policy: &'a str,
    grace: u32,
}

impl<'a> Spec<'a> {
    /// Reads a Pod.
    #[must_use]
    pub fn read(pod: &'a Value) -> Self {
        let init = pod.items("spec.initContainers").iter().map(|value| {
            let role = if value.text("restartPolicy") == "Always" { Role::Sidecar } else { Role::Init };
            Part { name: value.text("name"), role, value }
        });
        let main = pod.items("spec.containers").iter();
        let main = main.map(|value| Part { name: value.text("name"), role: Role::Main, value });
        let grace = pod.at("spec.terminationGracePeriodSeconds").as_u64().and_then(|grace| u32::try_from(grace).ok());
        Self {
            parts: init.chain(main).collect(),
            policy: pod.text("spec.restartPolicy"),
            grace: grace.unwrap_or(DEFAULT_GRACE),
        }
    }

    /// A container by its name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&Part<'a>> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// Containers of a role.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &Part<'a>> {
        self.parts.iter().filter(move |part| part.role == role)
    }

    /// Whether a container that exited with this code is restarted.
    #[must_use]
    pub fn restarts(&self, name: &str, code: i32) -> bool {
        let role = self.part(name).map_or(Role::Main, |part| part.role);
        match (role, self.policy) {
            (Role::Sidecar, _) => true,
            (Role::Main, "Never") => false,
            (Role::Main, "OnFailure") => code != 0,
            (Role::Main, _) => true,
            (Role::Init, "Never") => false,
            (Role::Init, _) => code != 0,
        }
    }

    /// The grace period: that of the deletion, or of the spec; shortened when the Pod object is gone.
    #[must_use]
    pub fn grace(&self, pod: &Value, deleted: bool) -> u32 {
        let said = pod.at("metadata.deletionGracePeriodSeconds").as_u64().and_then(|grace| u32::try_from(grace).ok());
        let grace = said.unwrap_or(self.grace);
        if deleted { grace.min(FORCED_GRACE) } else { grace }
    }

    /// The grace period after a failed liveness or startup probe.
    #[must_use]
    pub fn grace_after_probe(&self, name: &str) -> u32 {
        let own = self.part(name).and_then(|part| {
            let probes = ["livenessProbe", "startupProbe"].into_iter();
            probes.filter_map(|probe| part.value.at(probe).at("terminationGracePeriodSeconds").as_u64()).next()
        });
        own.and_then(|grace| u32::try_from(grace).ok()).unwrap_or(self.grace)
    }

    /// Whether a regular container was ever started.
    #[must_use]
    pub fn has_begun(&self, facts: &Facts) -> bool {
        self.of(Role::Main).any(|part| facts.containers.get(part.name).is_some_and(|main| main.state != State::New))
    }

    /// Whether an init container failed and is not restarted.
    #[must_use]
    pub fn init_failed(&self, facts: &Facts) -> bool {
        self.of(Role::Init).any(|part| {
            let ending = facts.containers.get(part.name).and_then(|init| init.ending());
            ending.is_some_and(|ending| ending.code != 0 && !self.restarts(part.name, ending.code))
        })
    }

    /// Whether all containers have terminated and none is restarted.
    #[must_use]
    pub fn is_finished(&self, facts: &Facts) -> bool {
        let ended = |part: &Part<'_>| {
            let ending = facts.containers.get(part.name).and_then(|main| main.ending());
            ending.is_some_and(|ending| !self.restarts(part.name, ending.code))
        };
        self.init_failed(facts) || self.of(Role::Main).all(ended)
    }
}
