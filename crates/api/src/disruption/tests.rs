use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:01:00Z";

fn pod(phase: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"metadata": {"name": "p"}, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
}

fn budget(status: &Value) -> Value {
    json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": status})
}

fn cause(status: &Status) -> &str {
    status.details.as_ref().map_or("", |details| details.items("causes")[0].text("message"))
}

#[test]
fn pods_that_a_budget_does_not_protect_are_deleted() {
    let always = json!({
        "metadata": {"name": "b"}, "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"desiredHealthy": 3},
    });
    let healthy = budget(&json!({"currentHealthy": 2, "desiredHealthy": 2}));
    let disrupted = budget(&json!({"currentHealthy": 1, "desiredHealthy": 2}));
    let nothing_desired = budget(&json!({"currentHealthy": 1, "desiredHealthy": 0}));
    let mut deleting = pod("Running", true);
    deleting.put("metadata.deletionTimestamp", NOW);
    let (delete, charge) = (Decision::Delete, Decision::Charge("b"));
    let (waiting, unhealthy) = (Decision::DeleteUnchanged(None), Decision::DeleteUnchanged(Some("b")));
    let cases = [
        (pod("Succeeded", false), vec![&disrupted], delete),
        (pod("Failed", false), vec![&disrupted, &healthy], delete),
        (deleting, vec![&disrupted], delete),
        (pod("Pending", false), vec![&disrupted, &healthy], waiting),
        (pod("Running", true), vec![], delete),
        (pod("Running", true), vec![&healthy], charge),
        (pod("Running", true), vec![&always], charge),
        (pod("Running", false), vec![&always], unhealthy),
        (pod("Running", false), vec![&healthy], unhealthy),
        (pod("Running", false), vec![&disrupted], charge),
        (pod("Running", false), vec![&nothing_desired], charge),
    ];
    for (pod, budgets, expected) in cases {
        let budgets: Vec<Value> = budgets.into_iter().cloned().collect();
        assert_eq!(decide(&pod, &budgets), Ok(expected), "{pod} {budgets:?}");
    }
    let several = decide(&pod("Running", true), &[healthy, disrupted]).expect_err("two budgets");
    assert_eq!((several.code, several.reason, several.message.as_str()), (500, None, SEVERAL_BUDGETS));
}

#[test]
fn a_charge_uses_one_disruption() {
    let two = budget(&json!({"observedGeneration": 2, "disruptionsAllowed": 2, "disruptedPods": {"a": NOW}}));
    let one = charge(&two, "p", LATER).expect("allowed");
    assert_eq!(one.at("status.disruptedPods"), &json!({"a": NOW, "p": LATER}));
    assert_eq!((one.int("status.disruptionsAllowed"), one.items("status.conditions")), (1, &[][..]));
    let none = charge(&one, "q", LATER).expect("allowed");
    assert_eq!(
        none.items("status.conditions"),
        [json!({
            "type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
            "lastTransitionTime": LATER, "observedGeneration": 2,
        })]
    );
    assert_eq!(charge(&none, "r", LATER).expect_err("used up").code, 429);
}

#[test]
fn refusals_say_why() {
    let failed = json!([{"type": ALLOWED, "status": "False", "reason": SYNC_FAILED, "message": "no scale"}]);
    let other = json!([{"type": ALLOWED, "status": "False", "reason": "Frozen", "message": "until Monday"}]);
    let cases = [
        (json!({"observedGeneration": 1}), 429, "The disruption budget b is still being processed by the server."),
        (
            json!({"observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 2}),
            429,
            "The disruption budget b needs 2 healthy pods and has 1 currently",
        ),
        (
            json!({"observedGeneration": 2, "conditions": failed}),
            429,
            "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
        ),
        (
            json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 2, "conditions": other}),
            429,
            "The disruption budget b does not allow evicting pods currently (Frozen): until Monday",
        ),
        (
            json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 2}),
            429,
            "The disruption budget b does not allow evicting pods currently",
        ),
    ];
    for (status, code, expected) in cases {
        let refused = charge(&budget(&status), "p", NOW).expect_err("refused");
        assert_eq!((refused.code, cause(&refused)), (code, expected));
        assert_eq!((refused.reason, refused.message.as_str()), (Some("TooManyRequests"), VIOLATION));
        let wait = refused.details.as_ref().map(|details| details.int("retryAfterSeconds"));
        assert_eq!(wait, Some(if expected.ends_with("the server.") { 10 } else { 0 }));
    }
    let crowd: serde_json::Map<String, Value> = (0..=MAX_DISRUPTED).map(|n| (n.to_string(), NOW.into())).collect();
    for (status, expected) in [
        (
            json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
            "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative",
        ),
        (
            json!({"observedGeneration": 2, "disruptionsAllowed": 1, "disruptedPods": crowd}),
            "poddisruptionbudget.policy \"b\" is forbidden: DisruptedPods map too big - too many evictions not confirmed \
             by PDB controller",
        ),
    ] {
        let refused = charge(&budget(&status), "p", NOW).expect_err("refused");
        assert_eq!((refused.code, refused.message.as_str()), (403, expected));
    }
}

#[test]
fn no_selector_selects_nothing_and_an_empty_one_everything() {
    let facts = crate::kind::labels_of(&json!({"metadata": {"labels": {"app": "web"}}}));
    let cases = [
        (Value::Null, false),
        (json!({}), true),
        (json!({"matchLabels": {"app": "web"}}), true),
        (json!({"matchLabels": {"app": "db"}}), false),
        (json!({"matchExpressions": [{"key": "app", "operator": "Frob"}]}), false),
    ];
    for (selector, expected) in cases {
        assert_eq!(selects(&json!({"spec": {"selector": selector}}), &facts), expected, "{selector}");
    }
}

#[test]
fn conditions_keep_their_time_until_they_change() {
    let mut budget = budget(&json!({"disruptionsAllowed": 1, "conditions": [{"type": "Other"}]}));
    set_allowed(&mut budget, NOW);
    set_allowed(&mut budget, LATER);
    assert_eq!(budget.items("status.conditions")[1].text("lastTransitionTime"), NOW);
    set_failed(&mut budget, "why", LATER);
    let condition = &budget.items("status.conditions")[1];
    assert_eq!((condition.text("lastTransitionTime"), condition.text("message")), (LATER, "why"));
    assert_eq!((budget.int("status.disruptionsAllowed"), budget.items("status.conditions").len()), (0, 2));

    let mut pod = pod("Running", true);
    set_target(&mut pod, Some(("EvictionByEvictionAPI", "Eviction API: evicting")), NOW);
    let marked = pod.clone();
    set_target(&mut pod, Some(("EvictionByEvictionAPI", "Eviction API: evicting")), LATER);
    assert_eq!(pod, marked);
    set_target(&mut pod, None, LATER);
    assert_eq!(
        pod.items("status.conditions")[1],
        json!({"type": TARGET, "status": "False", "lastProbeTime": null, "lastTransitionTime": LATER})
    );
}
