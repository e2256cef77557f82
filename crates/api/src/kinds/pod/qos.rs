//! The quality of service class of a Pod, derived from its requests and limits.

use serde_json::Value;

use crate::quantity::Amount;
use crate::value::ValueExt as _;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn class(pod: &Value) -> &'static str {
    let spec = pod.at("spec");
    if ["requests", "limits"].iter().any(|kind| spec.at("resources").map(kind).is_some_and(|map| !map.is_empty())) {
        return of_resources(spec.at("resources"));
    }
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.items(list));
    let mut class = None;
    for container in containers {
        let one = of_resources(container.at("resources"));
        if class.is_some_and(|class| class != one) {
            return "Burstable";
        }
        class = Some(one);
    }
    class.unwrap_or("BestEffort")
}

fn of_resources(resources: &Value) -> &'static str {
    let of_one = |name: &str| {
        let read = |kind: &str| Amount::of(resources.at(kind).get(name).unwrap_or(&Value::Null));
        match (read("requests"), read("limits")) {
            (request, limit) if request != limit => "Burstable",
            (request, _) if request.is_zero() => "BestEffort",
            _ => "Guaranteed",
        }
    };
    if ["requests", "limits"].iter().all(|kind| resources.map(kind).is_none_or(serde_json::Map::is_empty)) {
        return "BestEffort";
    }
    // Only these two count; asking for something else alone leaves the Pod at best effort.
    let (cpu, memory) = (of_one("cpu"), of_one("memory"));
    if cpu == memory { cpu } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let full = json!({"resources": {"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}});
        assert_eq!(class(&pod(json!([{}]))), "BestEffort");
        assert_eq!(class(&pod(json!([full]))), "Guaranteed");
        assert_eq!(class(&pod(json!([full, {}]))), "Burstable");
        assert_eq!(class(&pod(json!([{"resources": {"requests": {"cpu": "1"}}}]))), "Burstable");
        assert_eq!(class(&pod(json!([{"resources": {"requests": {"example.com/x": "1"}}}]))), "BestEffort");
        assert_eq!(class(&json!({"spec": {"resources": {"limits": both, "requests": both}}})), "Guaranteed");
    }
}
