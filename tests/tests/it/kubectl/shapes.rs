//! The tables of the kinds beside Services: every kind has the columns that people expect of it.

use super::{Bed, cells};

/// The table of a kind without the ages, which change.
#[track_caller]
fn table(bed: &Bed, arguments: &str) -> Vec<Vec<String>> {
    let out = bed.ok(&format!("get {arguments}"));
    let mut rows: Vec<Vec<String>> =
        cells(&out).into_iter().map(|row| row.into_iter().map(str::to_owned).collect()).collect();
    let age = rows[0].iter().position(|name| name == "AGE");
    let last = age == Some(rows[0].len() - 1);
    for row in &mut rows {
        // In the last column it is the last field, however many words the cells before it have.
        age.map(|age| row.remove(if last { row.len() - 1 } else { age }));
    }
    rows
}

#[test]
fn s38_endpoints_and_slices_show_addresses_and_ports() {
    let bed = Bed::start();
    let legacy = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web}\nsubsets:\n- ports: [{port: 80}]\n  \
                  addresses: [{ip: 10.0.0.1}, {ip: 10.0.0.2}, {ip: 10.0.0.3}, {ip: 'fd00::4'}]\n";
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-6}\naddressType: IPv6\n\
                 ports: [{name: http, port: 80}, {name: tls, port: 443}]\nendpoints: [{addresses: ['fd00::1']}]\n";
    bed.ok_with("create -f -", &[legacy, slice].join("---\n"));
    let rows = table(&bed, "endpoints web");
    assert_eq!(rows[0], ["NAME", "ENDPOINTS"]);
    assert_eq!(rows[1].join(" "), "web 10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...");
    let rows = table(&bed, "endpointslices web-6 kubernetes");
    assert_eq!(rows[0], ["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS"]);
    assert_eq!(rows[1], ["web-6", "IPv6", "80,443", "fd00::1"]);
    let (host, port) = bed.server.address.rsplit_once(':').expect("an address");
    assert_eq!(rows[2], ["kubernetes", "IPv4", port, host]);
}

#[test]
fn s01_pods_are_stored_and_shown_though_nothing_runs_them_here() {
    let bed = Bed::start();
    bed.ok("run web --image=example.com/web:1 --port=8080 --labels=app=web");
    let rows = table(&bed, "pods");
    assert_eq!(rows, [["NAME", "READY", "STATUS", "RESTARTS"], ["web", "0/1", "Pending", "0"]]);
    let rows = table(&bed, "pods -o wide");
    assert_eq!(rows[0].join(" "), "NAME READY STATUS RESTARTS IP NODE NOMINATED NODE READINESS GATES");
    let pod = bed.json("pod web");
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(bed.ok("get pods -l app=web --field-selector status.phase=Pending -o name"), "pod/web\n");
    assert_eq!(bed.ok("logs web"), "", "as the recorded answer: a Pod without a node has written nothing");
    assert!(bed.ok("delete pod web").starts_with("pod \"web\" deleted"));
}

#[test]
fn s01_nodes_show_their_state() {
    let bed = Bed::start();
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: one, labels: {node-role.kubernetes.io/edge: ''}}\n";
    bed.ok_with("create -f -", node);
    assert_eq!(table(&bed, "nodes"), [vec!["NAME", "STATUS", "ROLES", "VERSION"], vec!["one", "Unknown", "edge"]]);
    assert_eq!(bed.ok("cordon one"), "node/one cordoned\n");
    assert_eq!(table(&bed, "nodes")[1], ["one", "Unknown,SchedulingDisabled", "edge"]);
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v9"}}}"#;
    super::change::patch_status(&bed, "/api/v1/nodes/one", status);
    assert_eq!(bed.ok("uncordon one"), "node/one uncordoned\n");
    assert_eq!(table(&bed, "nodes")[1], ["one", "Ready", "edge", "v9"]);
}

#[test]
fn s01_namespaces_config_secrets_and_accounts_show_theirs() {
    let bed = Bed::start();
    let rows = table(&bed, "namespaces");
    let names = ["default", "kube-node-lease", "kube-public", "kube-system"];
    assert_eq!(rows[0], ["NAME", "STATUS"]);
    assert_eq!(rows[1..].iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), names);
    assert!(rows[1..].iter().all(|row| row[1] == "Active"), "{rows:?}");

    bed.ok("create configmap settings --from-literal=a=1 --from-literal=b=2");
    assert_eq!(table(&bed, "configmaps settings"), [["NAME", "DATA"], ["settings", "2"]]);
    bed.ok("create secret generic login --from-literal=password=hush");
    assert_eq!(table(&bed, "secrets login"), [["NAME", "TYPE", "DATA"], ["login", "Opaque", "1"]]);
    bed.ok("create serviceaccount robot");
    assert_eq!(table(&bed, "serviceaccounts robot")[1][0], "robot");
}

#[test]
fn s01_ingresses_classes_and_leases_show_theirs() {
    let bed = Bed::start();
    let class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: edge, annotations: \
                 {ingressclass.kubernetes.io/is-default-class: 'true'}}\nspec: {controller: example.com/edge}\n";
    bed.ok_with("create -f -", class);
    let rows = table(&bed, "ingressclasses");
    assert_eq!(rows[0], ["NAME", "CONTROLLER", "PARAMETERS"]);
    assert_eq!(rows[1].join(" "), "edge (default) example.com/edge <none>");

    bed.ok("create ingress web --rule=example.com/*=web:80,tls=cert");
    let rows = table(&bed, "ingresses");
    assert_eq!(rows[0], ["NAME", "CLASS", "HOSTS", "ADDRESS", "PORTS"]);
    assert_eq!(rows[1].join(" "), "web edge example.com 80, 443", "the default class was filled in");

    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: lock}\nspec: {holderIdentity: me}\n";
    bed.ok_with("create -f -", lease);
    assert_eq!(table(&bed, "leases"), [["NAME", "HOLDER"], ["lock", "me"]]);
}

#[test]
fn s31_allocated_addresses_and_ranges_can_be_seen() {
    let bed = Bed::start();
    bed.service("web", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    let rows = table(&bed, "ipaddresses");
    assert_eq!(rows[0], ["NAME", "PARENTREF"]);
    assert_eq!(rows[1], ["10.96.0.1", "services/default/kubernetes"]);
    assert_eq!(rows[2], ["10.96.0.20", "services/default/web"]);
    let rows = table(&bed, "servicecidrs");
    assert_eq!(rows, [["NAME", "CIDRS"], ["kubernetes", "10.96.0.0/16,fd00:10:96::/112"]]);
    bed.ok("delete service web");
    assert_eq!(bed.ok("get ipaddresses -o name"), "ipaddress.networking.k8s.io/10.96.0.1\n");
}
