//! An address of a load balancer whose node dies: how long until a client reaches it again.
//!
//! In: how often. Out: [`Figures`]. Two nodes at a time serve and announce on one wire in network namespaces; a third has the Pod. The
//! node that answers for the address loses its wire and its process at one moment, as in a power cut; a new one takes its place for
//! the next round.

use std::time::{Duration, Instant};

use anyhow::ensure;
use testbed::net::{Mode, Node, Outside, Protocol, Served, objects};

use crate::report::{Figures, Row, less};
use crate::stats::percentile;

/// The address, and its port.
const ADDRESS: (&str, u16) = ("192.0.2.200", 80);
const TARGET: u16 = 8080;
/// Timeout of a query: short, since most of them get no response.
const QUESTION: Duration = Duration::from_millis(50);
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where the Lease of the address is.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/waypost-address-192.0.2.200";

/// The lines of the report.
#[must_use]
pub fn rows() -> Vec<Row> {
    vec![
        less("failover_p50_ms", "from the death of a node until a client reaches its address again, p50 (ms)", None),
        less("failover_p90_ms", "  p90 (ms)", None),
        less("failover_max_ms", "  longest (ms)", Some(2000.0)),
        less(
            "handover_p50_ms",
            "from asking the program of a node to end until another has its address, p50 (ms)",
            None,
        ),
        less("handover_max_ms", "  longest (ms)", None),
    ]
}

/// Measures each this many times.
///
/// # Errors
/// When the address is not announced at all.
pub fn measure(times: u16) -> anyhow::Result<Figures> {
    // No kubelet sends heartbeats for these Nodes: the grace period keeps them ready.
    let served = Served::with_server(Mode::under_test(), &["--node-monitor-grace-period", "3600"]);
    let home = served.node("home");
    served.serve(&home, &[]);
    let outside = served.cluster().outside("outside");
    let pod = home.pod("web");
    pod.echo_on(&[Protocol::Tcp], TARGET);
    served.put(&objects::slice("web").port(TARGET).endpoint(&pod).json());
    let service =
        objects::service("web").cluster_ip("10.96.0.60").load_balancer(ADDRESS.0).port(ADDRESS.1).target(TARGET);
    served.put(&service.spec("loadBalancerClass", "waypost.dev/l2").json());
    let mut nodes: Vec<Node> = Vec::new();
    let (mut deaths, mut ends) = (Vec::new(), Vec::new());
    for round in 0..times * 2 {
        while nodes.len() < 2 {
            let node = served.node(&format!("n{round}-{}", nodes.len()));
            served.serve(&node, &["--roles", "proxy,announce"]);
            nodes.push(node);
        }
        let owner = settle(&served, &outside, &nodes)?;
        let dead = nodes.remove(owner);
        if round % 2 == 0 {
            let begun = Instant::now();
            cut(&dead)?;
            served.kill_proxy(&dead);
            deaths.push(until_reached(&outside, begun)?);
        } else {
            // Its rules keep serving: this measures who owns the address.
            let begun = Instant::now();
            served.with_proxy(&dead, |program| program.ask_to_end());
            ends.push(until_another(&served, dead.name(), begun)?);
            served.kill_proxy(&dead);
            cut(&dead)?;
        }
    }
    let mut figures = Figures::default();
    for (name, samples) in [("failover", &deaths), ("handover", &ends)] {
        figures.set(&format!("{name}_p50_ms"), percentile(samples, 0.5));
        figures.set(&format!("{name}_p90_ms"), percentile(samples, 0.9));
        figures.set(&format!("{name}_max_ms"), percentile(samples, 1.0));
    }
    Ok(figures)
}

/// Drops all packets that arrive at the node; the testbed can still reach into its namespace.
fn cut(node: &Node) -> anyhow::Result<()> {
    let rules = "table netdev cut {\n chain in {\n type filter hook ingress device \"eth0\" priority -500\n policy drop\n }\n}\n";
    let run = node.run_with("nft -f -", rules);
    ensure!(run.ok, "nft: {}", run.err);
    Ok(())
}

/// Waits until the client reaches the address, and returns the node that responds for it.
fn settle(served: &Served, outside: &Outside, nodes: &[Node]) -> anyhow::Result<usize> {
    let begun = Instant::now();
    loop {
        ensure!(begun.elapsed() < TIMEOUT, "no node serves the address in time");
        let reached = outside.caller().timeout(QUESTION).ask(Protocol::Tcp, ADDRESS.0, ADDRESS.1).is_ok();
        let holder = holder(served);
        let owner = nodes.iter().position(|node| *node.name() == holder);
        if let Some(owner) = owner.filter(|_| reached) {
            return Ok(owner);
        }
    }
}

fn holder(served: &Served) -> String {
    let lease = served.session(|session| session.get(LEASE));
    lease.body["spec"]["holderIdentity"].as_str().map_or_else(String::new, str::to_owned)
}

/// Milliseconds until the client reaches the address.
fn until_reached(outside: &Outside, begun: Instant) -> anyhow::Result<f64> {
    let caller = outside.caller().timeout(QUESTION);
    while caller.ask(Protocol::Tcp, ADDRESS.0, ADDRESS.1).is_err() {
        ensure!(begun.elapsed() < TIMEOUT, "the address is not reached again");
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Milliseconds until another node has the address.
fn until_another(served: &Served, before: &str, begun: Instant) -> anyhow::Result<f64> {
    loop {
        let now = holder(served);
        if !now.is_empty() && now != before {
            return Ok(begun.elapsed().as_secs_f64() * 1e3);
        }
        ensure!(begun.elapsed() < TIMEOUT, "no node took the address");
    }
}
