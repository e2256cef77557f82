//! What the Job controller reads of a Pod, besides the fields that every reduced Pod has.

use api::kinds::job::TRACKING_FINALIZER;
use api::view;
use api::view::annotations::{JOB_INDEX_FAILURE_COUNT, JOB_INDEX_IGNORED_FAILURE_COUNT};
use api::view::labels::JOB_COMPLETION_INDEX;
use serde::Deserialize;
use store::Entry;

use super::or_default;
use super::pod::seconds;

/// A Pod of a Job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobPod {
    /// Whether it has the tracking finalizer: no status counts it yet.
    pub tracked: bool,
    /// Its completion index.
    pub index: Option<i64>,
    /// How many Pods of its index failed before it.
    pub failures: i64,
    /// How many of them more did not count.
    pub ignored_failures: i64,
    /// When it finished, or was last known to run, in seconds since the epoch.
    pub finished_at: i64,
    /// The restarts of all its containers.
    pub restarts: i64,
    /// Containers that ended with an exit code other than 0, init containers last.
    pub failed_containers: Box<[FailedContainer]>,
    /// Type and status of its conditions.
    pub conditions: Box<[(Box<str>, Box<str>)]>,
}

/// A container that ended with an exit code other than 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedContainer {
    /// Its name.
    pub name: Box<str>,
    /// Its exit code.
    pub code: i64,
}

impl JobPod {
    /// Reads a stored Pod; `None` for a Pod that no Job owns or tracks.
    pub(super) fn of(pod: &view::Pod, entry: &Entry) -> Option<Self> {
        let metadata = &pod.metadata;
        let tracked = metadata.finalizers.iter().any(|have| **have == *TRACKING_FINALIZER);
        let owned = metadata.owner_references.iter().any(|one| &*one.kind == "Job" && &*one.api_version == "batch/v1");
        if !tracked && !owned {
            return None;
        }
        let raw: Raw = super::read(&entry.value);
        let count = |key: &str| {
            let count = metadata.annotations.get(key).and_then(|text| text.parse::<i32>().ok());
            i64::from(count.unwrap_or_default().max(0))
        };
        let all = || raw.status.container_statuses.iter().chain(&raw.status.init_container_statuses);
        let failed = all().filter_map(|status| {
            let code = status.state.terminated.as_ref()?.exit_code;
            (code != 0).then(|| FailedContainer { name: status.name.clone(), code })
        });
        let conditions = pod.status.conditions.iter().map(|one| (one.kind.clone(), one.status.clone()));
        Some(Self {
            tracked,
            index: metadata
                .annotations
                .get(JOB_COMPLETION_INDEX)
                .and_then(|text| text.parse::<u32>().ok())
                .map(i64::from),
            failures: count(JOB_INDEX_FAILURE_COUNT),
            ignored_failures: count(JOB_INDEX_IGNORED_FAILURE_COUNT),
            finished_at: finished_at(pod, &raw),
            restarts: all().map(|status| status.restart_count).sum(),
            failed_containers: failed.collect(),
            conditions: conditions.collect(),
        })
    }

    /// How many Pods of its index failed before it, those that did not count included.
    #[must_use]
    pub fn all_failures(&self) -> i64 {
        self.failures + self.ignored_failures
    }
}

/// When a Pod finished: by its containers, by the Ready condition, by its deletion, or else its creation.
fn finished_at(pod: &view::Pod, raw: &Raw) -> i64 {
    let is_sidecar = |status: &&ContainerStatus| {
        raw.spec.init_containers.iter().any(|one| one.name == status.name && &*one.restart_policy == "Always")
    };
    let sidecars = raw.status.init_container_statuses.iter().filter(is_sidecar);
    let ends: Option<Vec<i64>> =
        raw.status.container_statuses.iter().chain(sidecars).map(ContainerStatus::end).collect();
    let not_ready = || {
        let ready = pod.condition("Ready").filter(|condition| &*condition.status == "False")?;
        ready.last_transition_time.as_deref().map(seconds)
    };
    let deleted = || {
        let at = seconds(pod.metadata.deletion_timestamp.as_deref()?);
        Some(at - raw.metadata.deletion_grace_period_seconds)
    };
    let last = ends.and_then(|ends| ends.into_iter().max());
    last.or_else(not_ready).or_else(deleted).unwrap_or_else(|| seconds(&pod.metadata.creation_timestamp))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "or_default")]
    deletion_grace_period_seconds: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<InitContainer>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct InitContainer {
    #[serde(deserialize_with = "or_default")]
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    restart_policy: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    #[serde(deserialize_with = "or_default")]
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    restart_count: i64,
    #[serde(deserialize_with = "or_default")]
    state: ContainerState,
}

impl ContainerStatus {
    /// When it ended; `None` while it has not.
    fn end(&self) -> Option<i64> {
        let terminated = self.state.terminated.as_ref()?;
        (!terminated.finished_at.is_empty()).then(|| seconds(&terminated.finished_at))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    #[serde(deserialize_with = "or_default")]
    exit_code: i64,
    #[serde(deserialize_with = "or_default")]
    finished_at: Box<str>,
}
