//! The delay before a failed Pod is replaced: 10 s, doubled by each failure since the last success, at most 10 minutes.
//!
//! Computed from the Pods that exist, so that it survives a restart. Failed Pods exist until they or their Job are deleted.

use std::sync::Arc;

use super::spec::{Spec, is_tracked, job_pod};
use crate::objects::pod::{Phase, Pod};

/// The delay after the first failure, in seconds.
const MIN_DELAY: i64 = 10;
/// The longest delay, in seconds.
const MAX_DELAY: i64 = 600;

/// The remaining delay of a Job, in seconds.
pub(super) fn of_job(spec: &Spec<'_>, pods: &[&Arc<Pod>], now: i64) -> i64 {
    let ends = |is: &dyn Fn(&Pod) -> bool| -> Vec<i64> {
        let chosen = pods.iter().filter(|pod| is(pod)).filter_map(|pod| job_pod(pod));
        chosen.map(|pod| pod.finished_at).collect()
    };
    let success = ends(&|pod| pod.phase == Phase::Succeeded).into_iter().max();
    // A Pod that is deleted and not tracked was deleted by the controller.
    let mut failures = ends(&|pod| spec.is_failed(pod) && (is_tracked(pod) || !pod.deleting));
    failures.retain(|end| success.is_none_or(|success| *end > success));
    match failures.iter().max() {
        Some(last) => remaining(i64::try_from(failures.len()).unwrap_or(i64::MAX), *last, now),
        None => 0,
    }
}

/// The remaining delay of an index whose last Pod has failed, in seconds.
pub(super) fn of_index(last: Option<&Arc<Pod>>, now: i64) -> i64 {
    let last = last.and_then(|pod| job_pod(pod));
    last.map_or(0, |pod| remaining(pod.all_failures() + 1, pod.finished_at, now))
}

fn remaining(failures: i64, last: i64, now: i64) -> i64 {
    let doublings = u32::try_from(failures - 1).unwrap_or_default().min(10);
    let delay = (MIN_DELAY << doublings).min(MAX_DELAY);
    (last.saturating_add(delay) - now).clamp(0, MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_ten_minutes() {
        let delays: Vec<i64> = [1, 2, 3, 6, 7, 8, 1000].iter().map(|failures| remaining(*failures, 100, 100)).collect();
        assert_eq!(delays, [10, 20, 40, 320, 600, 600, 600]);
        assert_eq!(remaining(1, 100, 104), 6);
        assert_eq!(remaining(1, 100, 200), 0);
        assert_eq!(remaining(1, 9000, 100), 600, "a clock that is ahead does not delay for ever");
    }
}
