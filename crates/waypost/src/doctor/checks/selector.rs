//! The selector: whether there is one, and which Pods it finds; when none, which it nearly finds.

use api::value::ValueExt as _;
use serde_json::{Map, Value};

use super::super::evidence::{Evidence, has_labels, is_over};
use super::super::near::{count, is_near, listed, quoted};
use super::super::verdict::Judged;

/// Whether something says where the Service leads.
pub(super) fn present(evidence: &Evidence<'_>) -> Judged {
    if evidence.service().is_none() || evidence.is_external_name() {
        return Judged::moot("such a Service selects nothing");
    }
    if let Some(selector) = evidence.selector() {
        return Judged::proved(written(selector));
    }
    let endpoints = evidence.endpoints().len();
    if endpoints > 0 {
        return Judged::proved(format!("none; {} kept by hand", count(endpoints, "endpoint")));
    }
    let namesake =
        evidence.cluster.workloads.iter().find(|one| {
            one.text("metadata.namespace") == evidence.namespace && one.text("metadata.name") == evidence.name
        });
    let labels = namesake.and_then(|one| one.map("spec.selector.matchLabels")).map(written);
    let labels = labels.unwrap_or_else(|| format!("app={}", evidence.name));
    Judged::disproved("it has no selector, and no slice names an endpoint", set_selector(evidence, &labels))
}

/// Labels as people write them.
fn written(labels: &Map<String, Value>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

fn set_selector(evidence: &Evidence<'_>, labels: &str) -> String {
    format!("kubectl set selector service {} {} {}", evidence.name, evidence.flag(), quoted(labels))
}

/// Whether the selector finds Pods.
pub(super) fn matches(evidence: &Evidence<'_>) -> Judged {
    let Some(selector) = evidence.selector() else { return Judged::moot("it has no selector") };
    let found = evidence.pods();
    if !found.is_empty() {
        let names: Vec<&str> = found.iter().map(|pod| pod.text("metadata.name")).collect();
        return Judged::proved(format!("{}: {}", count(found.len(), "Pod"), listed(&names)));
    }
    let saw = format!("no Pod of namespace {} has {}", evidence.namespace, written(selector));
    nearly(evidence, selector, &saw)
        .or_else(|| elsewhere(evidence, selector, &saw))
        .or_else(|| unscaled(evidence, selector, &saw))
        .unwrap_or_else(|| nobody(evidence, selector, &saw))
}

/// Pods of the namespace whose labels are nearly those.
fn nearly(evidence: &Evidence<'_>, selector: &Map<String, Value>, saw: &str) -> Option<Judged> {
    let here = evidence.cluster.pods.iter().filter(|pod| pod.text("metadata.namespace") == evidence.namespace);
    let live = here.filter(|pod| !is_over(pod));
    let (_, pod, meant) = live
        .filter_map(|pod| near_miss(pod.map("metadata.labels")?, selector).map(|(far, meant)| (far, pod, meant)))
        .min_by_key(|(far, ..)| *far)?;
    let same = evidence.cluster.pods.iter().filter(|other| {
        other.text("metadata.namespace") == evidence.namespace && has_labels(other, "metadata.labels", &meant)
    });
    let names: Vec<&str> = same.map(|pod| pod.text("metadata.name")).collect();
    let differs: Vec<String> = differences(selector, &meant);
    let name = if names.is_empty() { vec![pod.text("metadata.name")] } else { names };
    Some(Judged::disproved(
        format!(
            "{saw}; {} {} nearly: {}",
            listed(&name),
            if name.len() == 1 { "does" } else { "do" },
            listed(&differs)
        ),
        set_selector(evidence, &written(&meant)),
    ))
}

/// What a selector probably means by these labels, and how far that is; nothing when it means something else.
fn near_miss(labels: &Map<String, Value>, selector: &Map<String, Value>) -> Option<(usize, Map<String, Value>)> {
    let (mut meant, mut far) = (Map::new(), 0);
    for (key, value) in selector {
        let text = value.as_str().unwrap_or_default();
        let at = labels.get(key).and_then(Value::as_str);
        match at {
            Some(there) if there == text => {
                meant.insert(key.clone(), value.clone());
            }
            // With another label that fits, any other value is a near miss.
            Some(there) if is_near(there, text) || selector.len() > 1 => {
                far += if is_near(there, text) { 1 } else { 3 };
                meant.insert(key.clone(), there.into());
            }
            _ => {
                let (other, there) = labels.iter().find(|(other, there)| {
                    *there == value
                        && (is_near(other, key) || other.rsplit('/').next() == key.rsplit('/').next() || at.is_none())
                })?;
                far += 2;
                meant.insert(other.clone(), there.clone());
            }
        }
    }
    let exact = selector.iter().any(|(key, value)| meant.get(key) == Some(value));
    let is_near_miss = far > 0 && (far <= 2 || exact);
    is_near_miss.then_some((far, meant))
}

/// What differs, label by label.
fn differences(selector: &Map<String, Value>, meant: &Map<String, Value>) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut said = Vec::new();
    for (key, value) in meant {
        match selector.get(key) {
            Some(asked) if asked == value => {}
            Some(asked) => {
                let (have, want) = (text(Some(value)), text(Some(asked)));
                let case = if have.eq_ignore_ascii_case(&want) { " (capitals count)" } else { "" };
                said.push(format!("{key} is {have}, not {want}{case}"));
            }
            None => {
                let asked = selector.keys().find(|asked| !meant.contains_key(*asked)).cloned().unwrap_or_default();
                said.push(format!("the label is called {key}, not {asked}"));
            }
        }
    }
    said
}

/// Pods with these labels in other namespaces.
fn elsewhere(evidence: &Evidence<'_>, selector: &Map<String, Value>, saw: &str) -> Option<Judged> {
    let pods: Vec<&Value> =
        evidence.cluster.pods.iter().filter(|pod| has_labels(pod, "metadata.labels", selector)).collect();
    let pod = pods.iter().find(|pod| pod.text("metadata.namespace") != evidence.namespace && !is_over(pod))?;
    let (of, name) = (pod.text("metadata.namespace"), pod.text("metadata.name"));
    let port = evidence.ports().into_iter().next()?;
    let target = port.target.as_str().map_or_else(|| port.target.to_string(), str::to_owned);
    Some(Judged::disproved(
        format!("{saw}; Pod {of}/{name} has, but a Service never leads into another namespace"),
        format!(
            "kubectl expose pod {name} -n {of} --name={} --selector={} --port={} --target-port={target} --protocol={}",
            evidence.name,
            quoted(&written(selector)),
            port.number,
            port.protocol
        ),
    ))
}

/// Workloads that would make such Pods.
fn unscaled(evidence: &Evidence<'_>, selector: &Map<String, Value>, saw: &str) -> Option<Judged> {
    let workload = evidence.cluster.workloads.iter().find(|one| {
        one.text("metadata.namespace") == evidence.namespace
            && has_labels(one, "spec.template.metadata.labels", selector)
    })?;
    let (kind, name) = (workload.text("kind").to_lowercase(), workload.text("metadata.name"));
    Some(match workload.int("spec.replicas") {
        0 => Judged::disproved(
            format!("{saw}; {kind} {name} would make them and is scaled to 0"),
            format!("kubectl scale {kind} {name} {} --replicas=1", evidence.flag()),
        ),
        wanted => Judged::disproved(
            format!("{saw}; {kind} {name} should have made {wanted} and has not"),
            format!("kubectl describe {kind} {name} {}", evidence.flag()),
        ),
    })
}

fn nobody(evidence: &Evidence<'_>, selector: &Map<String, Value>, saw: &str) -> Judged {
    let ended = evidence.cluster.pods.iter().filter(|pod| {
        pod.text("metadata.namespace") == evidence.namespace && has_labels(pod, "metadata.labels", selector)
    });
    let ended = match ended.count() {
        0 => "and no Pod anywhere has labels like these".to_owned(),
        n => format!("but {} that ended", count(n, "Pod")),
    };
    let port = evidence.ports().first().and_then(|port| port.target.as_u64());
    let port = port.map(|port| format!(" --port={port}")).unwrap_or_default();
    Judged::disproved(
        format!("{saw}, {ended}"),
        format!(
            "kubectl run {} {} --image=IMAGE --labels={}{port}",
            evidence.name,
            evidence.flag(),
            quoted(&written(selector))
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved};
    use super::*;

    fn world(selector: &Value) -> World {
        let mut world = World::new();
        world.service("shop", "web", json!({"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]}));
        world
    }

    #[test]
    fn a_selector_that_finds_pods_is_proved() {
        let mut world = world(&json!({"app": "web"}));
        world.pod("shop", "web-1", json!({"app": "web", "more": "x"}));
        assert!(proved(world.judge("shop", "web", present)).contains("app=web"));
        assert!(proved(world.judge("shop", "web", matches)).contains("web-1"));
    }

    #[test]
    fn a_value_that_is_nearly_right_is_named_with_the_command() {
        for (asked, says) in [("wbe", "app is web, not wbe"), ("Web", "capitals count")] {
            let mut world = world(&json!({"app": asked}));
            world.pod("shop", "web-1", json!({"app": "web"}));
            world.pod("shop", "api-1", json!({"app": "billing"}));
            let (saw, fix) = disproved(world.judge("shop", "web", matches));
            assert!(saw.contains(says) && saw.contains("web-1"), "{saw}");
            assert_eq!(fix, "kubectl set selector service web -n shop app=web");
        }
    }

    #[test]
    fn a_key_that_is_nearly_right_is_named_and_the_rest_is_kept() {
        let mut world = world(&json!({"ap": "web", "tier": "front"}));
        world.pod("shop", "web-1", json!({"app": "web", "tier": "front"}));
        let (saw, fix) = disproved(world.judge("shop", "web", matches));
        assert!(saw.contains("the label is called app, not ap"), "{saw}");
        assert_eq!(fix, "kubectl set selector service web -n shop app=web,tier=front");
    }

    #[test]
    fn pods_of_another_namespace_are_found_but_not_led_to() {
        let mut world = world(&json!({"app": "web"}));
        world.pod("prod", "web-1", json!({"app": "web"}));
        world.pod("shop", "other", json!({"app": "billing"}));
        let (saw, fix) = disproved(world.judge("shop", "web", matches));
        assert!(saw.contains("Pod prod/web-1 has"), "{saw}");
        assert!(fix.starts_with("kubectl expose pod web-1 -n prod --name=web --selector=app=web --port=80"), "{fix}");
    }

    #[test]
    fn a_workload_without_replicas_is_scaled() {
        let mut world = world(&json!({"app": "web"}));
        world.workload("shop", "web", 0, &json!({"app": "web"}));
        assert_eq!(
            disproved(world.judge("shop", "web", matches)).1,
            "kubectl scale deployment web -n shop --replicas=1"
        );
        world.cluster.workloads[0].put("spec.replicas", 2);
        assert_eq!(disproved(world.judge("shop", "web", matches)).1, "kubectl describe deployment web -n shop");
    }

    #[test]
    fn nobody_is_nobody() {
        let mut world = world(&json!({"app": "web"}));
        let (saw, fix) = disproved(world.judge("shop", "web", matches));
        assert!(saw.contains("no Pod anywhere"), "{saw}");
        assert!(fix.contains("--labels=app=web --port=8080"), "{fix}");
        world.pod("shop", "other", json!({"app": "completely-different"}));
        assert!(disproved(world.judge("shop", "web", matches)).0.contains("no Pod anywhere"));
    }

    #[test]
    fn without_a_selector_slices_by_hand_are_enough() {
        let mut world = World::new();
        world.service("shop", "web", json!({"ports": [{"port": 80}]}));
        assert!(disproved(world.judge("shop", "web", present)).1.ends_with("app=web"));
        moot(world.judge("shop", "web", matches));
        world.slice("shop", "web", 8080, &[("192.0.2.1", true, "")]);
        assert!(proved(world.judge("shop", "web", present)).contains("by hand"));
    }
}
