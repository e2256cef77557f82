//! The Pods of an argument: a Pod, or those of an object that selects Pods, such as a Deployment or a Service.

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use api::view::annotations::DEFAULT_CONTAINER;
use serde_json::Value;

use super::client::{Client, Query};
use super::target::{self, Object};
use crate::terminal;

/// The Pods of an object, the best first: ready before running before others, old before new.
pub(super) async fn of(client: &mut Client, object: &Object) -> anyhow::Result<Vec<Value>> {
    if object.kind.plural == "pods" {
        return Ok(vec![object.value.clone()]);
    }
    let selector = selector(&object.value)
        .with_context(|| format!("{} selects no Pods; name a Pod, or what makes or selects Pods", object.named()))?;
    let kind = client.kind("pods").await?;
    let mut pods = client.objects(&kind, &Query::new().add("labelSelector", &selector)).await?;
    pods.sort_by_cached_key(rank);
    Ok(pods)
}

/// The best Pod of the named object; a name alone is that of a Pod.
pub(super) async fn best(client: &mut Client, words: &[String]) -> anyhow::Result<(Object, Value)> {
    let kinds = client.kinds().await?;
    let one = target::parse_one(&kinds, words, Some("pods"))?;
    let object = target::one(client, &one).await?;
    let pods = of(client, &object).await?;
    let pod = pods.into_iter().next();
    let pod = pod.with_context(|| {
        format!("{} has no Pods yet; `waypost describe {}` shows why", object.named(), object.named())
    })?;
    Ok((object, pod))
}

/// The labels by which an object selects Pods, as a selector.
pub(super) fn selector(object: &Value) -> Option<String> {
    let spec = object.at("spec.selector");
    let (labels, rules) = if spec.has("matchLabels") || spec.has("matchExpressions") {
        (spec.at("matchLabels"), spec.items("matchExpressions"))
    } else {
        (spec, &[][..])
    };
    let mut out: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for rule in rules {
        let (key, values) = (rule.text("key"), rule.texts("values").join(","));
        out.push(match rule.text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    (!out.is_empty()).then(|| out.join(","))
}

/// Smaller is better.
fn rank(pod: &Value) -> (bool, bool, bool, String) {
    let running = pod.text("status.phase") == "Running";
    let going = pod.has("metadata.deletionTimestamp");
    (going, !is_ready(pod), !running, pod.text("metadata.creationTimestamp").to_owned())
}

/// Whether a Pod is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod.items("status.conditions").iter();
    conditions.any(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")
}

/// The container: the named one, the default of the Pod, or its first; the last choice is noted when there are several.
pub(super) fn container(pod: &Value, named: Option<&str>) -> anyhow::Result<String> {
    let names: Vec<&str> = ["spec.containers", "spec.initContainers"]
        .iter()
        .flat_map(|list| pod.items(list))
        .map(|container| container.text("name"))
        .collect();
    let annotation = pod.at("metadata.annotations").get(DEFAULT_CONTAINER);
    let usual = annotation.and_then(Value::as_str).filter(|name| names.contains(name));
    let name = named.or(usual).or_else(|| names.first().copied()).unwrap_or_default();
    let (pod, all) = (pod.text("metadata.name"), names.join(", "));
    ensure!(names.contains(&name), "the Pod {pod} has no container {name:?}; it has: {all}");
    if named.or(usual).is_none() && names.len() > 1 {
        terminal::note(&format!("the container {name} of {all}; -c chooses another"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_of_all_kinds_become_text() {
        let of = |spec: Value| selector(&json!({"spec": {"selector": spec}}));
        assert_eq!(of(json!({"app": "web", "tier": "x"})).as_deref(), Some("app=web,tier=x"));
        let rules = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["1", "2"]}, {"key": "b", "operator": "DoesNotExist"},
            {"key": "c", "operator": "Exists"}]});
        assert_eq!(of(rules).as_deref(), Some("app=web,a in (1,2),!b,c"));
        assert_eq!(of(json!({})), None);
    }

    #[test]
    fn ready_pods_rank_first_and_terminating_ones_last() {
        let pod = |name: &str, ready: &str, going: bool| {
            let mut pod = json!({"metadata": {"name": name, "creationTimestamp": name}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}]}});
            if going {
                pod.put("metadata.deletionTimestamp", "now");
            }
            pod
        };
        let mut pods =
            [pod("d", "True", true), pod("c", "False", false), pod("b", "True", false), pod("a", "True", false)];
        pods.sort_by_cached_key(rank);
        assert_eq!(pods.map(|pod| pod.text("metadata.name").to_owned()), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_unknown_container_is_reported_with_the_existing_ones() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}, {"name": "side"}]}});
        assert_eq!(container(&pod, None).expect("the first"), "main");
        let message = container(&pod, Some("no")).expect_err("none").to_string();
        assert_eq!(message, "the Pod p has no container \"no\"; it has: main, side");
    }
}
