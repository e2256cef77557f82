//! Two machines on one wire, each with an agent, and a server on a third: Pods reach each other across, by address and through a Service.

use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Outside, Process, eventually};
use testbed::session::Session;

use super::machine::{PODS, is_ready, script};

/// Ranges that the machines of the testbed do not use themselves.
const RANGES: &str = "10.245.0.0/16,fd00:10:245::/56";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A machine with an agent; however a test ends, nothing of it stays.
struct Agent {
    node: Node,
    home: TempDir,
    process: Option<Process>,
}

impl Agent {
    fn start(node: Node, server: &TempDir) -> Self {
        let home = testbed::folder();
        let mut command = Command::new(testbed::binary());
        command.args(["node", "--roles", "proxy,agent", "--cluster-cidr", RANGES, "--node-name", node.name()]);
        command.arg("--data-dir").arg(home.path()).arg("--kubeconfig").arg(server.path().join("kubeconfig"));
        let process = node.spawn(command);
        process.wait_for_line(" ready", TIMEOUT);
        Self { node, home, process: Some(process) }
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    fn routes(&self) -> String {
        self.node.run("ip route").success() + &self.node.run("ip -6 route").success()
    }

    /// The output of the only container of a Pod.
    fn log(&self, pod: &Value) -> String {
        let uid = pod["metadata"]["uid"].as_str().expect("a uid");
        let file = self.home.path().join("agent/pods").join(uid).join("containers/c/0.log");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n").collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(process) = self.process.as_ref().filter(|_| std::thread::panicking()) {
            eprintln!("{}", process.log());
        }
        self.kill();
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.home.path());
        let run = self.node.run(command);
        assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
    }
}

struct Server {
    api: Outside,
    home: TempDir,
    session: Session,
    _process: Process,
}

impl Server {
    fn start(cluster: &Cluster) -> Self {
        let (api, home) = (cluster.outside("api"), testbed::folder());
        let mut command = Command::new(testbed::binary());
        command.args(["server", "--allocate-node-cidrs", "true", "--cluster-cidr", RANGES, "--listen"]);
        command.arg(format!("{}:6443", api.v4())).arg("--data-dir").arg(home.path());
        let process = api.spawn(command);
        process.wait_for_line(" ready", TIMEOUT);
        let file = home.path().join("kubeconfig");
        let session = api.in_namespace(|| Session::new(Client::from_kubeconfig(&file).expect("a kubeconfig")));
        Self { api, home, session, _process: process }
    }

    fn ask<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (api, session) = (&self.api, &mut self.session);
        api.in_namespace(|| work(session))
    }

    /// Makes a Pod on a node, and waits until it is ready.
    fn pod(&mut self, name: &str, node: &str, container: &Value) -> Value {
        let spec = json!({"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        self.ask(|session| {
            let _ = session.post(PODS, &pod).success();
            let mut watch = session.watch(PODS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|_, pod| is_ready(pod))
        })
    }
}

/// A container that sends its address to each client.
fn seen() -> Value {
    let program = "import socket\ns = socket.create_server(('::', 7000), family=socket.AF_INET6, dualstack_ipv6=True)\n\
                   while True:\n c, a = s.accept()\n c.recv(9)\n c.sendall((a[0].replace('::ffff:', '') + chr(10)).encode())\n c.close()";
    let probe = json!({"tcpSocket": {"port": 7000}, "periodSeconds": 1});
    json!({"name": "c", "image": "host", "command": ["python3", "-c", program], "readinessProbe": probe})
}

fn addresses(pod: &Value) -> Vec<String> {
    let ips = pod["status"]["podIPs"].as_array().expect("addresses").iter();
    ips.map(|ip| ip["ip"].as_str().expect("an address").to_owned()).collect()
}

/// A container that sends requests to these addresses until all have responded, and prints the responses.
fn asks(places: &[(String, u16)]) -> Value {
    let places: Vec<String> = places.iter().map(|(ip, port)| format!("('{ip}', {port})")).collect();
    let program = format!(
        "import socket, time\nfor place in [{}]:\n while True:\n  try:\n   s = socket.create_connection(place, 2)\n   \
         s.sendall(b'who?')\n   print(place[0], s.recv(99).decode(), end='', flush=True)\n   break\n  except OSError: time.sleep(0.1)\n\
         print('that is all', flush=True)\ntime.sleep(1000)",
        places.join(", ")
    );
    json!({"name": "c", "image": "host", "command": ["python3", "-c", program]})
}

#[test]
fn s33_pods_of_two_machines_reach_each_other_and_a_machine_that_goes_is_forgotten() {
    let cluster = Cluster::new();
    let mut server = Server::start(&cluster);
    let (one, two) = (cluster.node("n1"), cluster.node("n2"));
    one.ip("link set eth0 mtu 1400\n");
    let one = Agent::start(one, &server.home);
    let mut two = Agent::start(two, &server.home);
    let there = server.pod("there", "n2", &seen());
    let spec = json!({"selector": {"app": "there"}, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80, "targetPort": 7000}]});
    let service = server.ask(|session| session.create("there", spec));
    let ips = service["spec"]["clusterIPs"].as_array().expect("cluster IPs").iter();
    let ips: Vec<String> = ips.map(|ip| ip.as_str().expect("an address").to_owned()).collect();
    let mut places: Vec<(String, u16)> = addresses(&there).into_iter().map(|ip| (ip, 7000)).collect();
    places.extend(ips.into_iter().map(|ip| (ip, 80)));
    let here = server.pod("here", "n1", &asks(&places));
    eventually("all have answered", || one.log(&here).contains("that is all\n"));
    // The server sees the client's address, by every path.
    let [v4, v6] = &addresses(&here)[..] else { panic!("two addresses: {here}") };
    let lines: Vec<String> =
        places.iter().map(|(ip, _)| format!("{ip} {}", if ip.contains(':') { v6 } else { v4 })).collect();
    assert_eq!(one.log(&here), lines.join("\n") + "\nthat is all\n");
    // Links into Pods carry what the way out of their machine carries.
    let measure = script("c", "ip -o link show eth0 | grep -o 'mtu [0-9]*'; exec sleep 1000");
    for (agent, mtu) in [(&one, "mtu 1400\n"), (&two, "mtu 1500\n")] {
        let name = format!("measure-{}", agent.node.name());
        let pod = server.pod(&name, agent.node.name(), &measure);
        eventually("it has measured", || agent.log(&pod) == mtu);
    }
    let ranges = server.ask(|session| session.get("/api/v1/nodes/n2")).success()["spec"]["podCIDRs"].clone();
    let ranges: Vec<&str> = ranges.as_array().expect("ranges").iter().filter_map(Value::as_str).collect();
    let known = |agent: &Agent| ranges.iter().filter(|range| agent.routes().contains(**range)).count();
    assert_eq!(known(&one), 2, "{}", one.routes());
    two.kill();
    let _ = server.ask(|session| session.delete("/api/v1/nodes/n2")).success();
    eventually("the way to it is forgotten", || known(&one) == 0);
}

#[test]
fn a_node_that_claims_ranges_of_others_draws_no_packets_to_itself() {
    let cluster = Cluster::new();
    let mut server = Server::start(&cluster);
    let one = Agent::start(cluster.node("n1"), &server.home);
    let own = server.ask(|session| session.get("/api/v1/nodes/n1")).success()["spec"]["podCIDR"].clone();
    let own = own.as_str().expect("a range").to_owned();
    let via = server.api.v4().to_string();
    let claims = [
        ("half", "0.0.0.0/1"),
        ("resolver", "8.8.8.8/32"),
        ("machines", "192.0.2.0/24"),
        ("own", own.as_str()),
        ("honest", "10.245.200.0/24"),
        ("thief", "10.245.200.128/25"),
        // Made last: when it is routed, all others have been heard of.
        ("last", "10.245.201.0/24"),
    ];
    for (name, range) in claims {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": range, "podCIDRs": [range]},
            "status": {"addresses": [{"type": "InternalIP", "address": via}]},
        });
        let _ = server.ask(|session| session.post("/api/v1/nodes", &node)).success();
    }
    eventually("the last one is routed", || one.routes().contains("10.245.201.0/24"));
    let routes = one.routes();
    let to: Vec<&str> =
        routes.lines().filter(|line| line.contains(&via)).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(to, ["10.245.200.0/24", "10.245.201.0/24"], "{routes}");
    let log = one.process.as_ref().expect("it runs").log();
    let refused = |name: &str| {
        let field = format!("node={name} ");
        let lines = log.lines().filter(|line| line.contains("refused pod CIDR of node")).map(plain);
        lines.filter(|line| line.contains(&field)).count()
    };
    for name in ["half", "resolver", "machines", "own", "thief"] {
        assert_eq!(refused(name), 1, "{name} is said once:\n{log}");
    }
    assert_eq!((refused("honest"), refused("last")), (0, 0), "{log}");
}

/// A line of a log without colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}
