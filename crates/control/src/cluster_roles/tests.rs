use serde_json::json;

use super::*;
use crate::testing::Cluster;

fn part(name: &str, label: &str, resource: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {label: "true"}},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}],
    })
}

fn whole(name: &str, labels: &Value, of: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {of: "true"}}]},
    })
}

fn resources(cluster: &Cluster, name: &str) -> Vec<String> {
    let role = cluster.get("clusterroles", name).expect("a role");
    role.items("rules").iter().flat_map(|rule| rule.texts("resources")).map(str::to_owned).collect()
}

#[test]
fn aggregated_rules_are_the_union_of_all_selected_roles() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("clusterroles", whole("edit", &json!({}), "to-edit"));
    cluster.put("clusterroles", whole("view", &json!({"to-edit": "true"}), "to-view"));
    cluster.put("clusterroles", part("a", "to-view", "pods"));
    cluster.put("clusterroles", part("b", "to-edit", "secrets"));
    cluster.put("clusterroles", part("c", "to-view", "pods"));
    cluster.converge();
    assert_eq!(resources(&cluster, "view"), ["pods"], "the same rule counts once");
    assert_eq!(resources(&cluster, "edit"), ["secrets", "pods"]);
    assert_ne!(cluster.writes_to("clusterroles"), 0);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to("clusterroles"), 0, "what is right stays as it is");
    for part in ["a", "c"] {
        cluster.remove("clusterroles", part);
    }
    cluster.converge();
    assert!(resources(&cluster, "view").is_empty());
    assert_eq!(resources(&cluster, "edit"), ["secrets"]);
}
