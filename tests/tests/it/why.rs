//! `waypost explain`, `trace`, `who` and `top` from outside, beside real machines: what they say is what packets meet.

mod stage;

use serde_json::{Value, json};
use testbed::net::Protocol::Tcp;
use testbed::net::{Connection, eventually};
use testbed::{Run, Server, binary};

use self::stage::{NODE_PORT, Stage, VIP};

/// Lines of the output, trimmed and with single spaces.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(lines(text).iter().any(|one| one == line), "{line:?} is no line of:\n{text}");
}

/// Two machines, and a Service whose traffic from outside stays on its node: one endpoint on each, and one that is not ready.
fn web() -> Stage {
    let mut stage = Stage::start(&["n1", "n2"]);
    stage.service(&json!({
        "type": "NodePort", "clusterIP": VIP, "selector": {"app": "web"}, "externalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
    }));
    stage.pod("web-1", "n1", true);
    stage.pod("web-2", "n2", true);
    stage.pod("sick", "n1", false);
    stage.served();
    stage
}

#[test]
fn explanations_and_traces_are_what_packets_meet() {
    let mut stage = web();
    explained(&mut stage);
    traced(&stage);
    owned(&mut stage);
    reported(&mut stage);
}

fn explained(stage: &mut Stage) {
    let [one, two, sick] = ["web-1", "web-2", "sick"].map(|name| stage.pod_ip(name));
    let told = stage.waypost("explain svc/web --node n1").success();
    has(&told, "Service default/web (NodePort) on node n1");
    has(&told, "rules in the kernel as planned, as the node reports (nftables)");
    has(&told, &format!("in {one}:8080 default/web-1 on n1"));
    let elsewhere =
        "but nothing from outside by its node port: it is on node n2, and this traffic stays here (policy Local)";
    has(&told, &format!("in {two}:8080 default/web-2 on n2 {elsewhere}"));
    has(&told, &format!("out {sick}:8080 default/sick on n1 it is not ready"));
    has(&told, &format!("On node n1, 2 of 3 endpoints get traffic; {sick}:8080 does not: it is not ready."));

    let told = stage.json("explain web --node n2 -o json");
    assert_eq!((&told["measured"], &told["programmed"]), (&json!(true), &json!(true)), "{told}");
    let outside = |told: &Value| -> Vec<Value> {
        let all = told["ports"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        let share = |one: &Value| {
            let ways = one["ways"].as_array().cloned().unwrap_or_default();
            let way = ways
                .into_iter()
                .find(|way| way["frontend"] == format!("*:{NODE_PORT}") && way["sender"] == "from outside");
            way.expect("a way")["share"].clone()
        };
        all.iter().map(share).collect()
    };
    let shares = outside(&told);
    assert_eq!(shares.iter().filter(|share| **share == "1/1").count(), 1, "{told}");
    assert_eq!(shares.iter().filter(|share| share.is_null()).count(), 2, "{told}");

    let refused = stage.waypost("explain wbe").failure();
    assert!(refused.contains("there is no Service default/wbe"), "{refused}");
    let refused = stage.waypost("explain web -n kube-system").failure();
    assert!(refused.contains("but there is default/web; add `-n default`"), "{refused}");
    let refused = stage.waypost("explain web --node n3").failure();
    assert!(refused.contains("there is no Node n3; there are: n1, n2"), "{refused}");
}

fn traced(stage: &Stage) {
    let outside = stage.outside();
    // From outside, by the node port of the first machine: its own endpoint alone, and it sees the client.
    let told = stage.json(&format!("trace outside {NODE_PORT} --node n1 -o json"));
    assert_eq!((&told["verdict"], &told["masquerade"]), (&json!("forward"), &json!(false)), "{told}");
    let endpoints = told["endpoints"].as_array().expect("endpoints");
    assert_eq!(endpoints.len(), 1, "{told}");
    assert_eq!((&endpoints[0]["pod"], &endpoints[0]["share"]), (&json!("default/web-1"), &json!("1/1")));
    for _ in 0..5 {
        let answer = outside.ask(Tcp, stage.node("n1").v4(), NODE_PORT).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.client.ip()), ("web-1", outside.v4().into()));
    }
    // From the node itself to the cluster IP: either, and it sees the node.
    let told = stage.json("trace node web:http --node n1 -o json");
    assert_eq!(told["masquerade"], true, "{told}");
    assert_eq!(told["endpoints"].as_array().map(Vec::len), Some(2), "{told}");
    let seen = stage.node("n1").ask_many(40, Tcp, VIP, 80);
    assert_eq!(seen.names().len(), 2);
    // From a Pod: its node is the one that decides, and both are queried; it keeps its address.
    let told = stage.waypost("trace web-2 -> web:80").success();
    let first = told.lines().next().unwrap_or_default();
    assert!(first.ends_with(&format!("-> {VIP}:80/TCP on node n2")), "{told}");
    assert!(told.contains("source address  kept, except for hairpin traffic"), "{told}");
}

fn owned(stage: &mut Stage) {
    let pod = stage.pod_ip("web-1");
    let told = stage.waypost(&format!("who {VIP}:80")).success();
    has(&told, "cluster IP Service default/web port 80/TCP http");
    let told = stage.waypost(&format!("who {}:{NODE_PORT}", stage.node("n1").v4())).success();
    has(&told, "node port Service default/web port 80/TCP http");
    has(&told, "node address Node n1 InternalIP");
    let told = stage.waypost(&format!("who {pod}:8080")).success();
    has(&told, "Pod address Pod default/web-1 on node n1");
    assert!(told.contains("of Service default/web, port 8080/TCP http, ready"), "{told}");
    let told = stage.json("who 203.0.113.77 -o json");
    assert_eq!(told["owners"], json!([]));
}

fn reported(stage: &mut Stage) {
    let report = stage.get("/api/v1/nodes/n1/proxy/waypost/report?service=default%2Fweb");
    assert_eq!((&report["node"], &report["mode"], &report["synced"]), (&json!("n1"), &json!("nftables"), &json!(true)));
    let web = &report["services"]["default/web"];
    assert_eq!(report["services"].as_object().map(serde_json::Map::len), Some(1), "{report}");
    assert_eq!(web["programmed"], true, "{report}");
    assert_eq!(web["ports"][0]["frontends"], json!([format!("{VIP}:80"), format!("*:{NODE_PORT}")]));
    let local = |backend: &Value| backend["local"] == true;
    assert_eq!(web["ports"][0]["backends"].as_array().map(|all| all.iter().filter(|one| local(one)).count()), Some(1));
    let rules = stage.kubectl("get --raw /api/v1/nodes/n1/proxy/waypost/rules?service=default/web").success();
    assert!(rules.contains(&format!("element ip waypost frontends {{ {VIP} . tcp . 80 : goto")), "{rules}");
}

#[test]
fn top_counts_what_really_passes() {
    let mut stage = web();
    for name in ["n1", "n2"] {
        stage.node(name).sysctl("net/netfilter/nf_conntrack_acct", "1");
    }
    let outside = stage.outside();
    let ask = |connection: &mut Connection| connection.ask().expect("an answer").name;
    let mut open: Vec<Connection> =
        (0..3).map(|_| stage.node("n1").connect(Tcp, VIP, 80).expect("a connection")).collect();
    open.extend((0..2).map(|_| outside.connect(Tcp, stage.node("n2").v4(), NODE_PORT).expect("a connection")));
    let names: Vec<String> = open.iter_mut().map(ask).collect();
    assert_eq!(names[3..], ["web-2", "web-2"]);
    let told = stage.json("top web -o json");
    let web = &told["services"][0];
    assert_eq!((&web["service"], &web["connections"]), (&json!("default/web"), &json!(5)), "{told}");
    for (name, address) in ["web-1", "web-2"].map(|name| (name, stage.pod_ip(name))) {
        let backends = web["ports"][0]["backends"].as_array().expect("backends");
        let backend = backends.iter().find(|one| one["address"] == format!("{address}:8080")).expect("a backend");
        let want = names.iter().filter(|one| *one == name).count();
        assert_eq!(backend["connections"], want, "{name}: {told}");
        assert!(want == 0 || backend["bytes"].as_u64() > Some(100), "{name}: {told}");
    }
    // A closed connection is not counted any more, and the transferred bytes stay for a while.
    drop(open);
    eventually("nobody is connected", || stage.json("top web -o json")["services"][0]["connections"] == 0);
    let table = stage.waypost("top svc/web").success();
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..2], ["default/web", "0"], "{table}");
    assert!(!table.contains("not measured"), "{table}");

    // What the kernel does not count is not guessed, and a node that is gone is named.
    stage.node("n1").sysctl("net/netfilter/nf_conntrack_acct", "0");
    let table = stage.waypost("top web").success();
    assert!(table.contains("not measured") && table.contains("nf_conntrack_acct=1"), "{table}");
    stage.kill("n2");
    let told = stage.json("top web -o json");
    let node =
        |name: &str| told["nodes"].as_array().and_then(|all| all.iter().find(|one| one["node"] == name).cloned());
    assert_eq!(node("n1").expect("n1")["measured"], true);
    let gone = node("n2").expect("n2");
    assert_eq!(gone["measured"], false);
    assert!(gone["why"].as_str().is_some_and(|why| !why.is_empty()), "{told}");
    let told = stage.waypost("explain web --node n2").success();
    has(&told, "rules not measured");
    assert!(told.contains("note: not measured on node n2"), "{told}");
}

/// Runs a command against a server without nodes.
fn run(server: &Server, words: &str) -> Run {
    let mut command = std::process::Command::new(binary());
    command.env_remove("KUBECONFIG").args(words.split_whitespace()).arg("--kubeconfig").arg(server.kubeconfig());
    testbed::run(&mut command, "")
}

#[test]
fn a_bare_server_measures_nothing_and_says_so() {
    let server = Server::start();
    let mut session = server.session();
    let _ = session.create("web", json!({"clusterIP": "10.96.0.91", "ports": [{"port": 80}]}));
    let told = run(&server, "explain web").success();
    has(&told, "rules not measured");
    assert!(told.contains("there is no endpoint, so connections are refused."), "{told}");
    let told = run(&server, "trace 203.0.113.9 web").success();
    assert!(told.contains("rejected: default/web/TCP has no endpoint that could answer"), "{told}");
    assert!(told.contains("not working NoSelector: Service web has no selector and no endpoints."), "{told}");
    let told = run(&server, "trace 203.0.113.9 10.96.0.91:81").success();
    assert!(told.contains("rejected: the Service with this address has no such port"), "{told}");
    let told = run(&server, "top").success();
    assert!(told.contains("not measured: there is no Node"), "{told}");
    let told = run(&server, "who 10.96.0.92").success();
    assert!(told.contains("Service range"), "{told}");
    let refused = run(&server, "trace web-1 -").failure();
    assert!(refused.contains("your shell took `>`"), "{refused}");
    let refused = run(&server, "trace nobody web").failure();
    assert!(refused.contains("there is no Pod default/nobody"), "{refused}");
    let _ = session.create("name", json!({"type": "ExternalName", "externalName": "example.org"}));
    let refused = run(&server, "trace 203.0.113.9 name:80").failure();
    assert!(refused.contains("waypost dig") || refused.contains("has no port"), "{refused}");
    let told = run(&server, "explain name").success();
    assert!(told.contains("another name"), "{told}");
}
