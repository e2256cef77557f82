//! Requests and limits of a Pod as a whole.
//!
//! In: a Pod. Out: the sum over its containers. Init containers run one after the other, so the maximum over them
//! counts; restartable init containers (sidecars) keep running, so they are added to everything that starts after them.

use serde_json::Value;

use super::{ResourceList, names};
use crate::value::ValueExt as _;

/// Which half of `resources`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// `requests`.
    Requests,
    /// `limits`.
    Limits,
}

impl Part {
    /// The name in `resources`.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// The requests or limits of a value with `resources`: a container, a container status, the spec of a Pod or claim.
#[must_use]
pub fn of(holder: &Value, part: Part) -> ResourceList {
    ResourceList::of(holder.at("resources").at(part.field()))
}

/// The sum over the containers of the spec, without overhead. Pod-level resources replace the sum for the names for
/// which `pod_level` holds.
#[must_use]
pub fn specified(pod: &Value, part: Part, pod_level: fn(&str) -> bool) -> ResourceList {
    let mut sum = aggregate(pod, |container, _| of(container, part));
    replace(&mut sum, pod, part, pod_level);
    sum
}

/// The resources that are charged to a quota: those of the spec, with overhead and, during an in-place resize, with the
/// resources that containers have or were allocated.
#[must_use]
pub fn charged(pod: &Value, part: Part) -> ResourceList {
    let infeasible = is_resize_infeasible(pod);
    let mut sum = aggregate(pod, |container, restarts| {
        let status = Some(container_status(pod, container)).filter(|status| restarts && status.has("resources"));
        status.map_or_else(|| of(container, part), |status| effective(container, status, part, infeasible))
    });
    replace(&mut sum, pod, part, names::is_pod_level);
    let overhead = ResourceList::of(pod.at("spec.overhead"));
    match part {
        Part::Requests => sum.add(&overhead),
        // Overhead is added only to limits that are set.
        Part::Limits => {
            let limited = overhead.masked(|name| sum.get(name).is_some_and(|limit| !limit.is_zero()));
            sum.add(&limited);
        }
    }
    sum
}

/// Whether pod-level resources are set.
#[must_use]
pub fn is_pod_level_set(pod: &Value) -> bool {
    let is_set = |part| of(pod.at("spec"), part).0.keys().any(|name| names::is_pod_level(name));
    is_set(Part::Requests) || is_set(Part::Limits)
}

fn replace(sum: &mut ResourceList, pod: &Value, part: Part, pod_level: fn(&str) -> bool) {
    sum.0.extend(of(pod.at("spec"), part).masked(pod_level).0);
}

/// The sum over containers. The second argument of `resources` is whether the container can be resized: init containers
/// that run to completion cannot.
fn aggregate(pod: &Value, resources: impl Fn(&Value, bool) -> ResourceList) -> ResourceList {
    let mut sum = ResourceList::default();
    for container in pod.items("spec.containers") {
        sum.add(&resources(container, true));
    }
    let (mut sidecars, mut most) = (ResourceList::default(), ResourceList::default());
    for container in pod.items("spec.initContainers") {
        let is_sidecar = container.text("restartPolicy") == "Always";
        let mut own = resources(container, is_sidecar);
        if is_sidecar {
            sum.add(&own);
            sidecars.add(&own);
            own.clone_from(&sidecars);
        } else {
            own.add(&sidecars);
        }
        most.raise_to(&own);
    }
    sum.raise_to(&most);
    sum
}

/// The status of a container; null when there is none.
fn container_status<'p>(pod: &'p Value, container: &Value) -> &'p Value {
    let statuses = ["status.containerStatuses", "status.initContainerStatuses"].map(|list| pod.items(list));
    let mut named = statuses.into_iter().flatten().filter(|status| status.text("name") == container.text("name"));
    named.next_back().unwrap_or(&Value::Null)
}

/// Resources of a container during an in-place resize: the maximum of desired, actual and allocated resources. The
/// desired ones do not count while the resize is infeasible.
fn effective(container: &Value, status: &Value, part: Part, infeasible: bool) -> ResourceList {
    let mut out = if infeasible { ResourceList::default() } else { of(container, part) };
    out.raise_to(&of(status, part));
    if part == Part::Requests {
        out.raise_to(&ResourceList::of(status.at("allocatedResources")));
    }
    out
}

fn is_resize_infeasible(pod: &Value) -> bool {
    let pending = pod.items("status.conditions").iter().find(|one| one.text("type") == "PodResizePending");
    pending.is_some_and(|condition| condition.text("reason") == "Infeasible")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        let mut container = container(name, cpu);
        container.put("restartPolicy", "Always");
        container
    }

    fn requests(pod: &Value) -> String {
        charged(pod, Part::Requests).to_string()
    }

    #[test]
    fn the_maximum_over_init_containers_counts() {
        let pod = |init: Value| {
            let containers = [container("a", "1"), container("b", "1")];
            json!({"spec": {"containers": containers, "initContainers": init}})
        };
        assert_eq!(requests(&pod(json!([]))), "cpu=2");
        assert_eq!(requests(&pod(json!([container("i", "3"), container("j", "1")]))), "cpu=3");
        assert_eq!(requests(&pod(json!([sidecar("s", "500m"), container("i", "1")]))), "cpu=2500m");
        assert_eq!(requests(&pod(json!([sidecar("s", "500m"), container("i", "3")]))), "cpu=3500m");
        assert_eq!(requests(&pod(json!([container("i", "3"), sidecar("s", "500m")]))), "cpu=3");
    }

    #[test]
    fn overhead_counts_for_limits_that_there_are() {
        let pod = json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}],
            "overhead": {"cpu": "100m", "memory": "1Mi"},
        }});
        assert_eq!(requests(&pod), "cpu=1100m,memory=1Mi");
        assert_eq!(charged(&pod, Part::Limits).to_string(), "memory=1025Mi");
        assert_eq!(specified(&pod, Part::Requests, names::is_pod_level).to_string(), "cpu=1");
    }

    #[test]
    fn resources_of_the_pod_replace_those_of_containers() {
        let pod = json!({"spec": {
            "containers": [container("a", "1"), {"resources": {"requests": {"example.com/x": "1"}}}],
            "resources": {"requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "example.com/x": "9"}},
        }});
        assert!(is_pod_level_set(&pod) && !is_pod_level_set(&json!({"spec": {"resources": {"limits": {"x": "1"}}}})));
        assert_eq!(requests(&pod), "cpu=3,example.com/x=1,hugepages-2Mi=4Mi");
    }

    #[test]
    fn a_resize_counts_with_the_maximum() {
        let mut pod = json!({
            "spec": {"containers": [container("a", "1")]},
            "status": {"containerStatuses": [{
                "name": "a", "allocatedResources": {"cpu": "4"},
                "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
            }]},
        });
        assert_eq!((requests(&pod), charged(&pod, Part::Limits).to_string()), ("cpu=4".into(), "cpu=3".into()));
        pod.put("spec.containers", json!([container("a", "9")]));
        assert_eq!(requests(&pod), "cpu=9");
        pod.put("status.conditions", json!([{"type": "PodResizePending", "reason": "Infeasible"}]));
        assert_eq!((requests(&pod), charged(&pod, Part::Limits).to_string()), ("cpu=4".into(), "cpu=3".into()));
    }
}
