//! Evictions under PodDisruptionBudgets: what is refused, what `kubectl drain` waits for, and who wins when many want the last disruption.

use std::thread;

use serde_json::{Value, json};
use testbed::session::{Answer, Session, text};

use super::{PODS, Stage, cells};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
/// Pods that race for one disruption.
const RACERS: usize = 6;
const ROUNDS: usize = 5;

/// A Pod that no controller owns.
fn pod(name: &str, app: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "image:1"}]},
    })
}

fn budget(name: &str, app: &str, spec: &Value) -> Value {
    let mut budget = json!({"metadata": {"name": name}, "spec": spec});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": app}});
    budget
}

fn evict(session: &mut Session, name: &str, options: &Value) -> Answer {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options,
    });
    session.post(&format!("{PODS}/{name}/eviction"), &eviction)
}

/// Waits until the status of a budget is that of its spec and is what is wanted.
#[track_caller]
fn budget_until(stage: &Stage, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let session = stage.server.session();
    let mut watch = session.watch(BUDGETS, &format!("&fieldSelector=metadata.name={name}"));
    watch.until(|_, budget| {
        budget["status"]["observedGeneration"] == budget["metadata"]["generation"] && wanted(&budget["status"])
    })
}

/// The message of the cause of a refused eviction.
#[track_caller]
fn cause(answer: &Answer) -> String {
    assert_eq!((answer.code, text(&answer.body, "/reason")), (429, "TooManyRequests"), "{}", answer.body);
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(text(&answer.body, "/message"), message);
    assert_eq!(text(&answer.body, "/details/causes/0/reason"), "DisruptionBudget");
    text(&answer.body, "/details/causes/0/message").to_owned()
}

#[test]
fn drain_waits_until_the_budget_allows_each_eviction() {
    let stage = Stage::start();
    stage.ok("cordon two");
    stage.ok("create deployment web --image=image:1 --replicas=2");
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.ok("create poddisruptionbudget web --selector=app=web --min-available=100%");
    budget_until(&stage, "web", |status| status["currentHealthy"] == 2);
    let out = stage.ok("get pdb");
    assert_eq!(cells(&out)[1][..4], ["web", "100%", "N/A", "0"], "{out}");
    stage.ok("uncordon two");
    let said = stage.fails("drain one --timeout=2s");
    assert!(said.contains("Cannot evict pod as it would violate the pod's disruption budget"), "{said}");
    let all_run =
        |pods: &[Value]| pods.len() == 2 && pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    stage.pods_until("app=web", all_run);
    // The drain begins while nothing may go, and ends after the budget was changed.
    let drained = thread::scope(|scope| {
        let drain = scope.spawn(|| stage.run("drain one --timeout=120s", ""));
        stage.ok(r#"patch pdb web --type=merge -p {"spec":{"minAvailable":1}}"#);
        drain.join().expect("the thread ends")
    });
    let _ = drained.success();
    let pods = stage.pods_until("app=web", |pods| {
        pods.iter().filter(|pod| pod["spec"]["nodeName"] == "two" && pod["status"]["phase"] == "Running").count() == 2
    });
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] != "one"), "{pods:?}");
}

#[test]
fn of_many_evictions_one_gets_the_last_disruption() {
    let stage = Stage::start();
    let mut session = stage.server.session();
    let spec = json!({"minAvailable": RACERS - 1});
    let _ = session.post(BUDGETS, &budget("last", "race", &spec)).success();
    for number in 0..RACERS {
        let _ = session.post(PODS, &pod(&format!("p{number}"), "race")).success();
    }
    for round in 0..ROUNDS {
        budget_until(&stage, "last", |status| {
            status["disruptionsAllowed"] == 1 && status["currentHealthy"] == json!(RACERS)
        });
        let racing: Vec<_> = (0..RACERS)
            .map(|number| {
                let mut session = stage.server.session();
                thread::spawn(move || evict(&mut session, &format!("p{number}"), &json!({})))
            })
            .collect();
        let answers: Vec<Answer> = racing.into_iter().map(|one| one.join().expect("an answer")).collect();
        let won: Vec<usize> = (0..RACERS).filter(|number| answers[*number].code == 201).collect();
        assert_eq!(won.len(), 1, "round {round}: {answers:?}");
        for answer in answers.into_iter().filter(|answer| answer.code != 201) {
            let why = cause(&answer);
            assert!(why.starts_with("The disruption budget last "), "round {round}: {why}");
        }
        let name = format!("p{}", won[0]);
        stage.pods_until("app=race", |pods| pods.len() == RACERS - 1);
        let _ = session.post(PODS, &pod(&name, "race")).success();
    }
}

#[test]
fn an_eviction_is_tried_and_refused_and_marks_its_pod() {
    let stage = Stage::start();
    let mut session = stage.server.session();
    let _ = session.post(PODS, &pod("p", "web")).success();
    let _ = session.post(BUDGETS, &budget("web", "web", &json!({"minAvailable": 1}))).success();
    budget_until(&stage, "web", |status| status["currentHealthy"] == 1);
    let why = cause(&evict(&mut session, "p", &json!({})));
    assert_eq!(why, "The disruption budget web needs 1 healthy pods and has 1 currently");
    let _ = session.merge(&format!("{BUDGETS}/web"), &json!({"spec": {"minAvailable": 0}})).success();
    budget_until(&stage, "web", |status| status["disruptionsAllowed"] == 1);

    let _ = evict(&mut session, "p", &json!({"dryRun": ["All"]})).success();
    let after = session.get(&format!("{BUDGETS}/web")).success();
    assert_eq!((&after["status"]["disruptionsAllowed"], &after["status"]["disruptedPods"]), (&json!(1), &Value::Null));
    let stale = evict(&mut session, "p", &json!({"preconditions": {"uid": "another"}})).refused(409);
    assert!(stale.contains("the UID in the precondition (another) does not match"), "{stale}");

    let _ = session.post(BUDGETS, &budget("second", "web", &json!({"maxUnavailable": 1}))).success();
    let said = evict(&mut session, "p", &json!({})).refused(500);
    assert_eq!(
        said,
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    let _ = session.delete(&format!("{BUDGETS}/second")).success();

    let watching = stage.server.session();
    let mut watch = watching.watch(PODS, "&labelSelector=app=web");
    let _ = evict(&mut session, "p", &json!({})).success();
    let marked = watch.until(|_, pod| !pod["metadata"]["deletionTimestamp"].is_null());
    let conditions = marked["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("the condition");
    let said = [text(target, "/status"), text(target, "/reason"), text(target, "/message")];
    assert_eq!(said, ["True", "EvictionByEvictionAPI", "Eviction API: evicting"]);
    budget_until(&stage, "web", |status| status["expectedPods"] == 0 && status["disruptedPods"].is_null());
}

#[test]
fn pods_that_are_not_ready_go_by_the_policy_of_their_budget() {
    let stage = Stage::start();
    let mut session = stage.server.session();
    let _ = session.post(PODS, &pod("p", "web")).success();
    let _ = session.post(BUDGETS, &budget("web", "web", &json!({"minAvailable": 1}))).success();
    budget_until(&stage, "web", |status| status["currentHealthy"] == 1);
    let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let _ = session.merge(&format!("{PODS}/p/status"), &json!({"status": {"conditions": conditions}})).success();
    budget_until(&stage, "web", |status| status["currentHealthy"] == 0);
    let why = cause(&evict(&mut session, "p", &json!({})));
    assert_eq!(why, "The disruption budget web needs 1 healthy pods and has 0 currently");
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    let _ = session.merge(&format!("{BUDGETS}/web"), &always).success();
    let _ = evict(&mut session, "p", &json!({})).success();
}
