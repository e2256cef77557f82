use api::value::ValueExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::garbage;
use crate::testing::Cluster;
use crate::workloads::replicas;
use crate::workloads::testing::{converge, edit, owner, play_the_node, start};

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER, &replicas::CONTROLLER, &garbage::CONTROLLER])
}

fn web(cluster: &Cluster) -> Value {
    cluster.get("deployments", "default/web").expect("the Deployment")
}

/// Image and size of each set, sorted by revision.
fn sets(cluster: &Cluster) -> Vec<(String, i64)> {
    let mut sets: Vec<(i64, String, i64)> = cluster
        .all("replicasets")
        .iter()
        .map(|set| {
            let number = set.at("metadata.annotations").get(DEPLOYMENT_REVISION).and_then(Value::as_str);
            let image = set.items("spec.template.spec.containers")[0].text("image").to_owned();
            (number.and_then(|text| text.parse().ok()).unwrap_or(0), image, set.int("spec.replicas"))
        })
        .collect();
    sets.sort();
    sets.into_iter().map(|(_, image, size)| (image, size)).collect()
}

fn set_image(cluster: &mut Cluster, image: &str) {
    let containers = json!([{"name": "c", "image": image}]);
    edit(cluster, "deployments", "default/web", |web| {
        web.put("spec.template.spec.containers", containers);
        api::kinds::deployment::KIND.rules.default(web);
    });
}

fn reason(cluster: &Cluster, kind: &str) -> (String, String) {
    let web = web(cluster);
    let condition = super::super::condition(web.at("status"), kind).expect("a condition").clone();
    (condition.text("status").to_owned(), condition.text("reason").to_owned())
}

#[test]
fn a_new_deployment_creates_a_set_and_becomes_complete() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 3, "i:1"));
    cluster.converge();
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 3)]);
    let set = cluster.all("replicasets").remove(0);
    let hash = set.at("metadata.labels").get(revision::HASH).and_then(Value::as_str).expect("a hash").to_owned();
    assert_eq!(set.text("metadata.name"), format!("web-{hash}"));
    assert_eq!(set.at("spec.selector"), &json!({"matchLabels": {"app": "web", "pod-template-hash": hash}}));
    assert_eq!(cluster.all("pods")[0].at("metadata.labels"), &json!({"app": "web", "pod-template-hash": hash}));
    assert_eq!(reason(&cluster, "Available"), ("False".into(), "MinimumReplicasUnavailable".into()));
    converge(&mut cluster);
    let now = web(&cluster);
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
    assert_eq!(counts.map(|field| now.at("status").int(field)), [3, 3, 3, 3, 0]);
    assert_eq!(now.at("metadata.annotations"), &json!({"deployment.kubernetes.io/revision": "1"}));
    assert_eq!(now.int("metadata.generation"), 1, "the annotation is no wish of the author");
    assert_eq!(reason(&cluster, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(reason(&cluster, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    cluster.written.clear();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written, [], "nothing to do after a restart");
}

#[test]
fn an_update_respects_surge_and_unavailable() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 10, "i:1"));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    // A quarter of ten: three more, two fewer.
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 8), ("i:2".to_owned(), 5)]);
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 0), ("i:2".to_owned(), 10)]);
    assert_eq!(reason(&cluster, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert!(cluster.events.iter().any(|(reason, text)| reason == "ScalingReplicaSet" && text.starts_with("Scaled up")));
}

#[test]
fn a_rollback_reuses_the_old_set() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 2, "i:1"));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    set_image(&mut cluster, "i:1");
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:2".to_owned(), 0), ("i:1".to_owned(), 2)]);
    let all = cluster.all("replicasets");
    let back = all.iter().find(|set| set.int("spec.replicas") == 2).expect("the set");
    let annotation = |name: &str| back.at("metadata.annotations").get(name).and_then(Value::as_str).map(str::to_owned);
    assert_eq!(annotation("deployment.kubernetes.io/revision").as_deref(), Some("3"));
    assert_eq!(annotation("deployment.kubernetes.io/revision-history").as_deref(), Some("1"));
    assert_eq!(web(&cluster).at("metadata.annotations"), &json!({"deployment.kubernetes.io/revision": "3"}));
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let mut cluster = cluster();
    let mut web = owner("deployments", "web", 1, "i:0");
    web.put("spec.revisionHistoryLimit", 2);
    cluster.put("deployments", web);
    converge(&mut cluster);
    for number in 1..6 {
        set_image(&mut cluster, &format!("i:{number}"));
        converge(&mut cluster);
    }
    let images: Vec<String> = sets(&cluster).into_iter().map(|(image, _)| image).collect();
    assert_eq!(images, ["i:3", "i:4", "i:5"]);
}

#[test]
fn recreate_stops_all_pods_first() {
    let mut cluster = cluster();
    let mut web = owner("deployments", "web", 2, "i:1");
    web.put("spec.strategy", json!({"type": "Recreate"}));
    cluster.put("deployments", web);
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 0)], "the old Pods are still ending");
    assert!(cluster.all("pods").iter().all(|pod| pod.has("metadata.deletionTimestamp")));
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 0), ("i:2".to_owned(), 2)]);
}

#[test]
fn a_paused_deployment_scales_and_does_not_update() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 2, "i:1"));
    converge(&mut cluster);
    edit(&mut cluster, "deployments", "default/web", |web| web.put("spec.paused", true));
    converge(&mut cluster);
    assert_eq!(reason(&cluster, "Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
    set_image(&mut cluster, "i:2");
    edit(&mut cluster, "deployments", "default/web", |web| web.put("spec.replicas", 3));
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 3)]);
    edit(&mut cluster, "deployments", "default/web", |web| web.put("spec.paused", false));
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 0), ("i:2".to_owned(), 3)]);
    assert_eq!(reason(&cluster, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn scaling_during_an_update_is_proportional() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 10, "i:1"));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 8), ("i:2".to_owned(), 5)]);
    edit(&mut cluster, "deployments", "default/web", |web| web.put("spec.replicas", 20));
    cluster.deliver_all();
    cluster.run(0, "default/web");
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 15), ("i:2".to_owned(), 10)], "25 in all, in the same proportion");
    converge(&mut cluster);
    assert_eq!(sets(&cluster), [("i:1".to_owned(), 0), ("i:2".to_owned(), 20)]);
}

#[test]
fn an_update_without_progress_is_reported() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 1, "i:1"));
    cluster.converge();
    let outcome = cluster.reconcile(&CONTROLLER, "default/web");
    assert_eq!(outcome.requeue_after, Some(std::time::Duration::from_secs(601)));
    let mut late = web(&cluster);
    for condition in late.items_mut("status.conditions") {
        condition.put("lastUpdateTime", "1969-12-31T00:00:00Z");
    }
    cluster.put("deployments", late);
    cluster.converge();
    assert_eq!(reason(&cluster, "Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    converge(&mut cluster);
    assert_eq!(reason(&cluster, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn a_hash_collision_is_resolved() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 1, "i:1"));
    cluster.converge();
    let name = cluster.all("replicasets")[0].text("metadata.name").to_owned();
    let mut cluster = self::cluster();
    let mut stranger = owner("replicasets", &name, 0, "other");
    stranger.put("metadata.namespace", "default");
    cluster.put("replicasets", stranger);
    cluster.put("deployments", owner("deployments", "web", 1, "i:1"));
    converge(&mut cluster);
    assert_eq!(web(&cluster).int("status.collisionCount"), 1);
    assert_eq!(cluster.all("replicasets").len(), 2);
    assert_eq!(reason(&cluster, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn annotations_are_copied_to_the_newest_set() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 1, "i:1"));
    converge(&mut cluster);
    edit(&mut cluster, "deployments", "default/web", |web| {
        let mut annotations = web.at("metadata.annotations").clone();
        annotations["kubernetes.io/change-cause"] = "because".into();
        web.put("metadata.annotations", annotations);
    });
    converge(&mut cluster);
    let set = cluster.all("replicasets").remove(0);
    let cause = set.at("metadata.annotations").get("kubernetes.io/change-cause").cloned();
    assert_eq!(cause, Some("because".into()));
}

#[test]
fn deleting_a_deployment_deletes_its_dependents() {
    let mut cluster = cluster();
    cluster.put("deployments", owner("deployments", "web", 2, "i:1"));
    converge(&mut cluster);
    cluster.remove("deployments", "default/web");
    converge(&mut cluster);
    assert_eq!((cluster.all("replicasets").len(), cluster.all("pods").len()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any order of nodes and controllers, an update never has fewer ready Pods than `maxUnavailable` allows, and never creates more
    /// than `maxSurge` allows.
    #[test]
    fn every_step_respects_surge_and_unavailable(
        replicas in 1_i64..7, surge in 0_i64..4, missing in 0_i64..4,
        turns in proptest::collection::vec((0_usize..4, 0_usize..8), 1..120),
    ) {
        prop_assume!(surge + missing > 0);
        let mut cluster = cluster();
        let mut web = owner("deployments", "web", replicas, "i:1");
        web.put("spec.strategy.rollingUpdate", json!({"maxSurge": surge, "maxUnavailable": missing}));
        cluster.put("deployments", web);
        converge(&mut cluster);
        set_image(&mut cluster, "i:2");
        for (what, pick) in turns {
            match what {
                0 => cluster.deliver_all(),
                1 => {
                    let queued = cluster.queued.iter().nth(pick % cluster.queued.len().max(1)).cloned();
                    if let Some((index, key)) = queued {
                        cluster.run(index, &key);
                        // A key is not reconciled before its own writes are delivered.
                        cluster.deliver_all();
                    }
                }
                _ => {
                    let pods = cluster.all("pods");
                    if let Some(pod) = pods.get(pick % pods.len().max(1)) {
                        let key = format!("default/{}", pod.text("metadata.name"));
                        if pod.has("metadata.deletionTimestamp") {
                            cluster.remove("pods", &key);
                        } else {
                            start(&mut cluster, &key);
                        }
                    }
                }
            }
            let pods = cluster.all("pods");
            let alive: Vec<&Value> = pods.iter().filter(|pod| !pod.has("metadata.deletionTimestamp")).collect();
            let ready = alive.iter().filter(|pod| pod.text("status.phase") == "Running").count() as i64;
            let sizes: i64 = sets(&cluster).iter().map(|(_, size)| size).sum();
            prop_assert!(sizes <= replicas + surge, "{sizes} of {replicas}+{surge}");
            prop_assert!(ready >= (replicas - missing).max(0), "{ready} of {replicas}-{missing}");
        }
        converge(&mut cluster);
        prop_assert_eq!(sets(&cluster), [("i:1".to_owned(), 0), ("i:2".to_owned(), replicas)]);
        prop_assert!(!play_the_node(&mut cluster));
    }
}
