//! `waypost node --roles dns`: in the place of CoreDNS, with its Corefile.

use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testbed::net::{Node, Served};

use super::dig;

/// The default of kubeadm, without an upstream.
const COREFILE: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
}
";

fn command(served: &Served, home: &TempDir, corefile: &str) -> Command {
    let file = home.path().join("Corefile");
    std::fs::write(&file, corefile).expect("written");
    let mut command = Command::new(testbed::binary());
    command.args(["node", "--roles", "dns", "--kubeconfig"]).arg(served.kubeconfig()).arg("--corefile").arg(file);
    command
}

fn page(node: &Node, path: &str, port: u16) -> Option<testbed::net::Page> {
    node.page("127.0.0.1", port, path)
}

#[test]
fn s34_the_corefile_of_a_cluster_is_understood() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let process = node.spawn(command(&served, &home, COREFILE));
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    // It listens at every address, of both families and by both transports.
    for server in ["127.0.0.1", "::1"] {
        for words in ["kubernetes.default.svc.cluster.local", "+tcp kubernetes.default.svc.cluster.local"] {
            assert_eq!(dig(&node, server, words).trim(), "10.96.0.1", "{server} {words}");
        }
    }
    assert_eq!(page(&node, "/ready", 8181).expect("a page").code, 200);
    let metrics = page(&node, "/metrics", 9153).expect("a page").body;
    assert!(metrics.contains("coredns_dns_requests_total"), "{metrics}");
    // A server that is unavailable changes no answer, and is reported.
    served.kill_server();
    process.wait_for_line("watch failed, keeping the last known state", crate::proxy::TIMEOUT);
    assert_eq!(page(&node, "/ready", 8181).expect("a page").code, 503);
    assert_eq!(dig(&node, "127.0.0.1", "kubernetes.default.svc.cluster.local").trim(), "10.96.0.1");
}

/// The code of a page, or nothing if the connection is refused.
fn code(node: &Node, path: &str, port: u16) -> Option<u16> {
    page(node, path, port).map(|page| page.code)
}

#[test]
fn pages_are_where_the_corefile_says_and_move_with_it() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let elsewhere = COREFILE.replace("health {", "health 127.0.0.1:1080 {").replace("    ready\n", "    ready :1081\n");
    let elsewhere = elsewhere.replace("    prometheus :9153\n", "");
    let process = node.spawn(command(&served, &home, &elsewhere));
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    assert_eq!((code(&node, "/health", 1080), code(&node, "/ready", 1081)), (Some(200), Some(200)));
    assert_eq!(
        (code(&node, "/ready", 1080), code(&node, "/metrics", 1081)),
        (Some(404), Some(404)),
        "each has its own"
    );
    for port in [8080, 8181, 9153] {
        assert_eq!(code(&node, "/metrics", port), None, "nobody was asked to listen on {port}");
    }

    std::fs::write(home.path().join("Corefile"), COREFILE.replace("health {", "health :1081 {")).expect("written");
    process.hang_up();
    process.wait_for_line("reloaded Corefile", crate::proxy::TIMEOUT);
    testbed::net::eventually("pages are where the new one says", || {
        [("/health", 1081), ("/ready", 8181), ("/metrics", 9153)]
            .iter()
            .all(|(path, port)| code(&node, path, *port) == Some(200))
    });
    assert_eq!((code(&node, "/ready", 1081), code(&node, "/health", 1080)), (Some(404), None), "and nowhere else");
}

#[test]
fn s34_whoever_is_told_to_end_answers_until_others_know() {
    const LAMEDUCK: Duration = Duration::from_secs(2);
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let mut process = node.spawn(command(&served, &home, &COREFILE.replace("lameduck 5s", "lameduck 2s")));
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    assert_eq!((code(&node, "/ready", 8181), code(&node, "/health", 8080)), (Some(200), Some(200)));
    let told = Instant::now();
    process.ask_to_end();
    process.wait_for_line("stopping DNS", crate::proxy::TIMEOUT);
    assert_eq!((code(&node, "/ready", 8181), code(&node, "/health", 8080)), (Some(503), Some(200)));
    assert_eq!(dig(&node, "127.0.0.1", "kubernetes.default.svc.cluster.local").trim(), "10.96.0.1");
    assert!(told.elapsed() < LAMEDUCK, "this machine was too slow to see anything: {:?}", told.elapsed());
    let ended = process.wait();
    assert!(ended.success() && told.elapsed() >= LAMEDUCK, "{ended:?} after {:?}", told.elapsed());
}

#[test]
fn a_block_answers_at_its_port_alone() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let block = |port: u16, last: u8, more: &str| {
        format!(".:{port} {{\n hosts {{\n  203.0.113.{last} by.port\n  fallthrough\n }}\n{more}}}\n")
    };
    let corefile = block(53, 1, " kubernetes cluster.local\n") + &block(5353, 2, "");
    let process = node.spawn(command(&served, &home, &corefile));
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    let ours = "kubernetes.default.svc.cluster.local";
    for way in ["+notcp", "+tcp"] {
        assert_eq!(dig(&node, "127.0.0.1", &format!("{way} by.port")).trim(), "203.0.113.1");
        assert_eq!(dig(&node, "127.0.0.1", &format!("{way} -p 5353 by.port")).trim(), "203.0.113.2");
        assert_eq!(dig(&node, "127.0.0.1", &format!("{way} {ours}")).trim(), "10.96.0.1");
        let elsewhere = node.run(&*format!("dig +tries=1 +time=3 {way} -p 5353 @127.0.0.1 {ours}")).out;
        assert!(elsewhere.contains("status: REFUSED"), "the cluster is not served there: {elsewhere}");
    }
}

#[test]
fn questions_are_logged_as_coredns_logs_them_where_that_is_wished() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let wish =
        "    log kube-system.svc.cluster.local {\n       class success\n    }\n    log default.svc.cluster.local\n";
    let process = node.spawn(command(&served, &home, &COREFILE.replace("    errors\n", wish)));
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    for (way, proto, room) in [("+notcp", "udp", 1232), ("+tcp", "tcp", 65535)] {
        // Sizes: 12 + 38 + 4 bytes, a record of 38 + 10 + 4; EDNS adds 11 to the query.
        let plain = "+bufsize=1232 +nocookie";
        assert_eq!(
            dig(&node, "127.0.0.1", &format!("{plain} {way} kubernetes.default.svc.cluster.local")).trim(),
            "10.96.0.1"
        );
        let asked =
            format!("\"A IN kubernetes.default.svc.cluster.local. {proto} 65 false {room}\" NOERROR qr,aa,rd 106 0.");
        let line = process.wait_for_line(&asked, crate::proxy::TIMEOUT);
        assert!(line.contains("INFO") && line.contains("dns::log") && line.contains("127.0.0.1:"), "{line}");
        assert!(line.ends_with('s'), "how long it took: {line}");
    }
    // What is not wished for: names that no `log` has, and results that its own does not have.
    dig(&node, "127.0.0.1", "nobody.elsewhere.svc.cluster.local");
    dig(&node, "127.0.0.1", "nobody.kube-system.svc.cluster.local");
    dig(&node, "127.0.0.1", "last.default.svc.cluster.local");
    process.wait_for_line("\"A IN last.default.svc.cluster.local. udp ", crate::proxy::TIMEOUT);
    let log = process.log();
    assert!(!log.contains("nobody."), "{log}");
}

#[test]
fn what_a_corefile_has_and_we_do_not_is_refused_by_name_and_line() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let run = node.run(command(&served, &home, &COREFILE.replace("    loop\n", "    route53 example.org\n")));
    assert!(!run.ok && run.err.contains("Corefile:14") && run.err.contains("route53"), "{}", run.err);
}

#[test]
fn s34_before_everything_is_known_nothing_is_denied() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    served.kill_server();
    let process = node.spawn(command(&served, &home, COREFILE));
    process.wait_for_line("DNS listening", crate::proxy::TIMEOUT);
    let run = node.run("dig +tries=1 +time=3 @127.0.0.1 nobody.default.svc.cluster.local");
    assert!(run.out.contains("status: SERVFAIL"), "{}", run.out);
    served.start_server();
    process.wait_for_line("ready", crate::proxy::TIMEOUT);
    let run = node.run("dig +tries=1 +time=3 @127.0.0.1 nobody.default.svc.cluster.local");
    assert!(run.out.contains("status: NXDOMAIN"), "{}", run.out);
}
