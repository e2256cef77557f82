//! Services that are broken by the state of a machine: rules of other programs, missing rules, stale conntrack entries; and the
//! report when the kernel cannot be queried.

use serde_json::json;
use testbed::net::{Family, Mode, Protocol, Served, objects};

use super::clinic::{Clinic, Said};

#[test]
fn a_rule_of_somebody_else_that_drops_is_named_and_deleted() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    clinic.doctor("web").is_healthy();
    let ruleset = "table inet guard {\n chain forward { type filter hook forward priority 0; policy accept;\n  \
                   ip saddr 203.0.113.0/24 accept\n  meta l4proto tcp tcp dport { 8080, 8443 } counter drop\n }\n}\n";
    assert!(clinic.node.run_with("nft -f -", ruleset).ok);
    let said = clinic.doctor("web");
    said.names(
        "firewall",
        &["table inet guard", "chain forward", ":8080"],
        "nft delete rule inet guard forward handle ",
    );
    clinic.mend(&said);
    clinic.doctor("web").is_healthy();
}

#[test]
fn rules_of_iptables_and_policies_that_drop_are_rules_of_somebody_else_too() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    for line in
        ["-A FORWARD -p tcp --dport 8080 -m comment --comment closed -j REJECT", "-A FORWARD -p tcp --dport 9 -j DROP"]
    {
        assert!(clinic.node.run(&*format!("iptables-nft {line}")).ok);
    }
    let said = clinic.doctor("web");
    said.names(
        "firewall",
        &["table ip filter", "chain FORWARD", "reject"],
        "nft delete rule ip filter FORWARD handle ",
    );
    clinic.mend(&said);
    clinic.doctor("web").is_healthy();
    for line in ["-P FORWARD DROP", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"] {
        assert!(clinic.node.run(&*format!("iptables-nft {line}")).ok);
    }
    let said = clinic.doctor("web");
    said.names("firewall", &["the policy drop of chain FORWARD"], "nft insert rule ip filter FORWARD ip daddr ");
    clinic.mend(&said);
    clinic.doctor("web").is_healthy();
}

#[test]
fn a_udp_flow_that_leads_to_a_pod_that_is_gone_is_named_and_forgotten() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "dns-1", "dns");
    // A number that no container declares: one that is declared for TCP alone is a fault of its own.
    let ports = json!([{"port": 53, "targetPort": 5353, "protocol": "UDP"}]);
    clinic.service("default", "dns", json!({"selector": {"app": "dns"}, "clusterIP": "10.96.0.82", "ports": ports}));
    clinic.doctor("dns").is_healthy();
    let flow = "conntrack -I -p udp -s 10.244.0.200 -d 10.96.0.82 --sport 4000 --dport 53 -r 10.244.0.77 -q 10.244.0.200 \
                --reply-port-src 5353 --reply-port-dst 4000 --timeout 300 --status ASSURED,SEEN_REPLY --dst-nat 10.244.0.77:5353";
    let run = clinic.node.run(flow);
    assert!(run.ok, "{run:?}");
    let said = clinic.doctor("dns");
    said.names("flows", &["10.244.0.77:5353", "10.96.0.82:53"], "conntrack -D -p udp --orig-dst 10.96.0.82 --dport 53");
    clinic.mend(&said);
    clinic.doctor("dns").is_healthy();
}

#[test]
fn a_node_that_forwards_nothing_is_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    clinic.node.sysctl("net/ipv4/ip_forward", "0");
    let said = clinic.doctor("web");
    said.names("forwarding", &["net.ipv4.ip_forward is 0"], "sysctl -w net.ipv4.ip_forward=1");
    clinic.mend(&said);
    clinic.doctor("web").is_healthy();
}

#[test]
fn rules_of_the_old_iptables_are_read_and_deleted_by_its_own_tool() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    // What the agent sends must pass: a Pod that its probe does not reach is not ready.
    for line in ["-A FORWARD -p udp -j DROP", "-A FORWARD -d 10.244.0.0/16 -p tcp --dport 8080 -j DROP"] {
        assert!(clinic.node.run(&*format!("iptables-legacy {line}")).ok);
    }
    let said = clinic.doctor("web");
    said.names(
        "firewall",
        &["(number 2) of chain FORWARD in table ip filter of iptables-legacy", ":8080"],
        "iptables-legacy -t filter -D FORWARD 2",
    );
    clinic.mend(&said);
    let said = clinic.doctor("web");
    said.is_healthy();
    assert_eq!(said.outcome("firewall"), "proved", "what is left was read as well");
}

/// A cluster with a node, a proxy, a Service and its endpoint.
fn served() -> (Served, testbed::net::Node) {
    served_by(*testbed::net::MODES.first().expect("a mode"))
}

fn served_by(mode: Mode) -> (Served, testbed::net::Node) {
    let served = Served::with_server(mode, &[]);
    let node = served.node("n1");
    served.serve(&node, &[]);
    let web = node.pod("web");
    web.echo(8080);
    served.put(&objects::service("web").cluster_ip("10.96.0.83").port(80).target(8080).json());
    served.put(&objects::slice("web").family(Family::V4).port(8080).endpoint(&web).json());
    served.settle();
    (served, node)
}

#[test]
fn rules_that_were_flushed_while_nobody_watches_are_named_and_come_back() {
    let (served, node) = served();
    let doctor = || Said::by(&node, &served.kubeconfig(), "web");
    doctor().is_healthy();
    served.kill_proxy(&node);
    let said = doctor();
    said.names("proxy", &["no proxy runs on this node"], "systemctl restart waypost");
    assert_eq!(said.outcome("rules"), "proved", "rules stay when the program goes");
    assert!(node.run("nft flush ruleset").ok);
    let said = doctor();
    said.names("rules", &["none of our rules", "flushed", "no proxy runs here"], "systemctl restart waypost");
    assert_eq!(said.outcome("reachable"), "disproved");
    served.serve(&node, &[]);
    doctor().is_healthy();
}

#[test]
fn a_rule_that_somebody_took_out_is_named() {
    let (served, node) = served();
    served.kill_proxy(&node);
    let element = "nft delete element ip waypost frontends { 10.96.0.83 . tcp . 80 }";
    assert!(node.run(element).ok);
    let said = Said::by(&node, &served.kubeconfig(), "web");
    said.names("rules", &["10.96.0.83:80/TCP is missing in frontends"], "systemctl restart waypost");
    assert!(node.ask(Protocol::Tcp, "10.96.0.83", 80).is_err());
}

#[test]
fn where_the_kernel_cannot_be_asked_nothing_is_guessed() {
    let (served, _node) = served();
    let said = Said::by(served.api(), &served.kubeconfig(), "web");
    said.is_healthy();
    for check in ["rules", "proxy", "firewall", "listening", "reachable", "name", "flows"] {
        assert_eq!(said.outcome(check), "not measured", "{check}");
    }
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    let said = clinic.doctor_after(&["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"], "web");
    said.is_healthy();
    for check in ["rules", "firewall", "flows"] {
        assert_eq!(said.outcome(check), "not measured", "{check}");
    }
    for check in ["listening", "name", "reachable", "proxy"] {
        assert_eq!(said.outcome(check), "proved", "{check}");
    }
}

#[test]
fn who_cannot_be_asked_is_said_with_a_code_of_its_own() {
    let home = testbed::folder();
    let mut command = std::process::Command::new(testbed::binary());
    command.args(["doctor", "--kubeconfig"]).arg(home.path().join("none"));
    let run = testbed::run(&mut command, "");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("--kubeconfig"), "{}", run.err);
}

#[test]
fn rules_of_the_mode_iptables_are_compared_with_the_plan() {
    let mode = testbed::net::MODES.iter().find(|mode| mode.name == "iptables").expect("the mode");
    let (served, node) = served_by(*mode);
    let doctor = || Said::by(&node, &served.kubeconfig(), "web");
    let said = doctor();
    said.is_healthy();
    assert_eq!(said.outcome("rules"), "proved", "{:#}", said.whole);
    served.kill_proxy(&node);
    assert_eq!(doctor().outcome("rules"), "proved", "rules stay when the program goes, and are known as ours");
    // One chain of the Service, whichever iptables the proxy chose.
    let flush = "for tool in iptables-nft iptables-legacy; do $tool-save -t nat | sed -n 's/^:\\(KUBE-SVC-[A-Z0-9]*\\) .*/\\1/p' | \
                 while read chain; do $tool -t nat -F $chain; done; done";
    let mut shell = std::process::Command::new("bash");
    shell.args(["-ec", flush]);
    let run = node.run(shell);
    assert!(run.ok, "{run:?}");
    let said = doctor();
    said.names("rules", &["KUBE-SVC-", "has other rules", "no proxy runs here"], "systemctl restart waypost");
    served.serve(&node, &[]);
    doctor().is_healthy();
}
