//! `kubectl get` of Services in every form of output.

use serde_json::{Value, json};

use super::{Bed, cells};

/// One Service of each type, with addresses that are known.
fn one_of_each(bed: &Bed) {
    bed.service("cluster", "{clusterIP: 10.96.0.20, selector: {app: web, tier: front}, ports: [{port: 80}]}");
    bed.service("headless", "{clusterIP: None, selector: {app: web}, ports: [{port: 80}]}");
    let ports =
        "ports: [{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}]";
    bed.service("node", &format!("{{type: NodePort, clusterIP: 10.96.0.21, {ports}}}"));
    let ports = "ports: [{port: 443, nodePort: 30043}]";
    bed.service("balanced", &format!("{{type: LoadBalancer, clusterIP: 10.96.0.22, {ports}}}"));
    bed.service("outside", "{type: ExternalName, externalName: example.com}");
}

#[test]
fn s39_the_table_shows_every_type_as_people_know_it() {
    let bed = Bed::start();
    one_of_each(&bed);
    let out = bed.ok("get services");
    let rows = cells(&out);
    assert_eq!(rows[0], ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]);
    let wanted = [
        ["balanced", "LoadBalancer", "10.96.0.22", "<pending>", "443:30043/TCP"],
        ["cluster", "ClusterIP", "10.96.0.20", "<none>", "80/TCP"],
        ["headless", "ClusterIP", "None", "<none>", "80/TCP"],
        ["kubernetes", "ClusterIP", "10.96.0.1", "<none>", "443/TCP"],
        ["node", "NodePort", "10.96.0.21", "<none>", "80:30080/TCP,53:30053/UDP"],
        ["outside", "ExternalName", "<none>", "example.com", "<none>"],
    ];
    let found: Vec<_> = rows[1..].iter().map(|row| &row[..5]).collect();
    assert_eq!(found, wanted);
    for row in &rows[1..] {
        assert!(row[5].ends_with(['s', 'm']), "an age: {row:?}");
    }
}

#[test]
fn s01_the_wide_table_and_label_columns_show_more() {
    let bed = Bed::start();
    one_of_each(&bed);
    bed.ok("label service cluster team=blue tier=front");
    let out = bed.ok("get services -o wide");
    let rows = cells(&out);
    assert_eq!(rows[0].last(), Some(&"SELECTOR"));
    assert_eq!(rows[2][6], "app=web,tier=front");
    assert_eq!(rows[6][6], "<none>");

    let out = bed.ok("get service cluster --show-labels --no-headers");
    assert_eq!(cells(&out)[0][6], "team=blue,tier=front");
    let out = bed.ok("get service cluster kubernetes -L team");
    assert_eq!(cells(&out)[0][6], "TEAM");
    assert_eq!(cells(&out)[1][6], "blue");
    assert_eq!(cells(&out)[2].len(), 6, "no such label: {out}");
}

#[test]
fn s01_yaml_can_be_put_back_as_it_came() {
    let bed = Bed::start();
    one_of_each(&bed);
    for name in ["cluster", "headless", "node", "balanced", "outside"] {
        let yaml = bed.ok(&format!("get service {name} -o yaml"));
        assert!(yaml.starts_with("apiVersion: v1\nkind: Service\nmetadata:\n"), "{yaml}");
        assert_eq!(bed.ok_with("replace -f -", &yaml), format!("service/{name} replaced\n"));
    }
    let all = bed.ok("get services -o yaml");
    assert!(all.starts_with("apiVersion: v1\nitems:\n") && all.contains("\nkind: List\n"), "{all}");
}

#[test]
fn s01_json_is_the_whole_object() {
    let bed = Bed::start();
    one_of_each(&bed);
    let node = bed.json("service node");
    assert_eq!((&node["apiVersion"], &node["kind"]), (&json!("v1"), &json!("Service")));
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": 80, "nodePort": 30080, "protocol": "TCP"},
        {"name": "dns", "port": 53, "targetPort": 53, "nodePort": 30053, "protocol": "UDP"}]);
    let wanted = json!({"clusterIP": "10.96.0.21", "clusterIPs": ["10.96.0.21"], "externalTrafficPolicy": "Cluster",
        "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": ports,
        "sessionAffinity": "None", "type": "NodePort"});
    assert_eq!(node["spec"], wanted);
    assert_eq!(node["status"], json!({"loadBalancer": {}}));
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(node["metadata"][key].is_string(), "{key} in {node}");
    }
    let list = bed.json("services,namespaces");
    assert_eq!(list["kind"], "List");
    let kinds: Vec<_> = list["items"].as_array().expect("items").iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "Service").count(), 6);
    assert_eq!(kinds.iter().filter(|kind| **kind == "Namespace").count(), 4);
}

#[test]
fn s01_jsonpath_templates_and_custom_columns_pick_values() {
    let bed = Bed::start();
    one_of_each(&bed);
    let path = "{range .items[?(@.spec.type==\"NodePort\")]}{.metadata.name}={.spec.ports[*].nodePort}{\"\\n\"}{end}";
    assert_eq!(bed.ok(&format!("get services -o 'jsonpath={path}'")), "node=30080 30053\n");
    let template = "{{range .items}}{{.metadata.name}} {{end}}";
    let names = bed.ok(&format!("get services -o 'go-template={template}'"));
    assert_eq!(names, "balanced cluster headless kubernetes node outside ");

    let out = bed.ok("get services node outside -o custom-columns=NAME:.metadata.name,PORTS:.spec.ports[*].port");
    assert_eq!(cells(&out), [["NAME", "PORTS"], ["node", "80,53"], ["outside", "<none>"]]);
    let out = bed.ok("get services node outside -o name");
    assert_eq!(out, "service/node\nservice/outside\n");
}

#[test]
fn s01_rows_can_be_sorted_by_any_field() {
    let bed = Bed::start();
    one_of_each(&bed);
    let names =
        |by: &str| bed.ok(&format!("get services --sort-by={by} -o custom-columns=N:.metadata.name --no-headers"));
    assert_eq!(names(".metadata.name"), "balanced\ncluster\nheadless\nkubernetes\nnode\noutside\n");
    let by_type = names(".spec.type");
    assert!(
        by_type.ends_with("outside\nbalanced\nnode\n"),
        "ClusterIP, ExternalName, LoadBalancer, NodePort: {by_type}"
    );
    // Sorted as a table, where kubectl needs the objects beside the rows.
    let out = bed.ok("get services --field-selector spec.clusterIP!=None --sort-by=.spec.ports[0].port");
    let order: Vec<_> = cells(&out)[1..].iter().map(|row| row[0]).collect();
    assert_eq!(order, ["outside", "cluster", "node", "balanced", "kubernetes"], "{out}");
}

#[test]
fn s01_short_names_categories_and_several_kinds_at_once() {
    let bed = Bed::start();
    let plain = bed.ok("get services -o name");
    for name in ["svc", "service", "Services", "services.v1.", "svc/kubernetes", "all"] {
        assert_eq!(bed.ok(&format!("get {name} -o name")), plain, "{name}");
    }
    let out = bed.ok("get svc,ns,servicecidrs");
    for wanted in ["service/kubernetes", "namespace/kube-system", "servicecidr.networking.k8s.io/kubernetes"] {
        assert!(out.contains(wanted), "{wanted} in\n{out}");
    }
}

#[test]
fn s01_raw_paths_answer_as_they_are() {
    let bed = Bed::start();
    let list: Value = serde_json::from_str(&bed.ok("get --raw /api/v1/services?limit=1")).expect("JSON");
    assert_eq!(list["kind"], "ServiceList");
    assert_eq!(list["items"][0]["metadata"]["name"], "kubernetes");
    assert_eq!(bed.ok("get --raw /readyz"), "ok");
    assert!(bed.fails("get --raw /nothing/here").contains("NotFound"));
}

#[test]
fn s01_nothing_found_is_said_plainly() {
    let bed = Bed::start();
    bed.ok("create namespace empty");
    let run = bed.run("get services -n empty", "");
    assert_eq!((run.ok, run.out.as_str(), run.err.as_str()), (true, "", "No resources found in empty namespace.\n"));
    let missing = bed.fails("get service nothing");
    assert_eq!(missing, "Error from server (NotFound): services \"nothing\" not found\n");
    assert_eq!(bed.ok("get service nothing --ignore-not-found"), "");
    assert_eq!(bed.fails("get nothings"), "error: the server doesn't have a resource type \"nothings\"\n");
}
