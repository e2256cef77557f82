//! Which endpoint responds and which source address it sees, for every source, frontend, policy, protocol and family.
//!
//! The table is the rule and nothing is computed from it but addresses: an endpoint on each node, and for every cell either
//! both answer or only that of the node by which the client goes; and they see either the client or a node.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use testbed::net::objects::Slice;
use testbed::net::{Family, Host, Node, Pod, Protocol};

use super::stage::{Frontend, Stage, TARGET};

/// The endpoints that respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    All,
    Local,
}

/// The source address that the endpoint sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sees {
    Client,
    Node,
}

type Cell = (Who, Sees);

const ALL: Cell = (Who::All, Sees::Client);
const ALL_MASKED: Cell = (Who::All, Sees::Node);
const LOCAL: Cell = (Who::Local, Sees::Client);
const LOCAL_MASKED: Cell = (Who::Local, Sees::Node);

/// The client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A pod, by its own node.
    Pod,
    /// The node itself.
    Node,
    /// A client outside of the cluster.
    Outside,
    /// A pod of another node: by that node.
    PodElsewhere,
}

/// The policies, in the order of the table: the Service, and its number.
const POLICIES: [(&str, u8); 3] = [("both-cluster", 1), ("external-local", 2), ("internal-local", 3)];

/// What holds: for a source and a kind of frontend, the cell of each policy.
const TABLE: [(Source, bool, [Cell; 3]); 8] = [
    (Source::Pod, false, [ALL, ALL, LOCAL]),
    (Source::Pod, true, [ALL_MASKED, ALL, ALL_MASKED]),
    (Source::Node, false, [ALL_MASKED, ALL_MASKED, LOCAL_MASKED]),
    (Source::Node, true, [ALL_MASKED, ALL_MASKED, ALL_MASKED]),
    (Source::Outside, false, [ALL_MASKED, ALL_MASKED, LOCAL_MASKED]),
    (Source::Outside, true, [ALL_MASKED, LOCAL, ALL_MASKED]),
    (Source::PodElsewhere, false, [ALL, ALL, LOCAL]),
    (Source::PodElsewhere, true, [ALL_MASKED, ALL, ALL_MASKED]),
];

/// The number of requests until all have responded. Two respond; that one of them is not selected for so long is
/// practically impossible.
const ATTEMPTS: usize = 50;
/// The number of requests where only one may respond.
const ENOUGH: usize = 8;

/// The stage with its Services, an endpoint on each node, and a client pod on each.
struct Scene {
    stage: Stage,
    pods: [Pod; 2],
    /// The tested families.
    families: &'static [Family],
}

impl Scene {
    fn new(stage: Stage) -> Self {
        let servers = [stage.near.pod("web-near"), stage.far.pod("web-far")];
        let pods = [stage.near.pod("pod-near"), stage.far.pod("pod-far")];
        servers.iter().for_each(|server| server.echo(TARGET));
        for (name, number) in POLICIES {
            let service = stage.published(name, number);
            let service = match name {
                "external-local" => service.policy_local(),
                "internal-local" => service.internal_local(),
                _ => service,
            };
            stage.served.put(&service.json());
            stage.endpoints(name, |slice| servers.iter().fold(slice, Slice::endpoint));
        }
        stage.served.settle();
        Self { stage, pods, families: &Family::BOTH }
    }

    /// The client machine, and the node that its traffic enters.
    fn asks(&self, source: Source) -> (&Host, &Node) {
        match source {
            Source::Pod => (&self.pods[0], &self.stage.near),
            Source::Node => (&self.stage.near, &self.stage.near),
            Source::Outside => (&self.stage.outside, &self.stage.near),
            Source::PodElsewhere => (&self.pods[1], &self.stage.far),
        }
    }

    /// Sends requests along one path and returns the deviation from the table.
    fn check(&self, source: Source, way: (Frontend, Protocol, Family), policy: usize, cell: Cell) -> Option<String> {
        let (frontend, protocol, family) = way;
        let (client, node) = self.asks(source);
        let (address, port) = frontend.at(POLICIES[policy].1, family, node);
        let local = if node.name() == self.stage.near.name() { "web-near" } else { "web-far" };
        let may_answer: BTreeSet<&str> =
            if cell.0 == Who::All { ["web-near", "web-far"].into() } else { [local].into() };
        let (mut answered, mut wrong) = (BTreeSet::new(), String::new());
        for turn in 0..ATTEMPTS {
            if answered.len() == may_answer.len() && (turn >= ENOUGH || may_answer.len() > 1) {
                break;
            }
            match client.ask(protocol, address, port) {
                Err(failure) => {
                    let _ = write!(wrong, " {failure};");
                    break;
                }
                Ok(answer) => {
                    if !may_answer.contains(answer.name.as_str()) {
                        let _ = write!(wrong, " {} answers;", answer.name);
                    }
                    if !self.may_be_seen(cell.1, client, node, family, answer.client.ip()) {
                        let _ = write!(wrong, " {} sees {};", answer.name, answer.client.ip());
                    }
                    answered.insert(answer.name);
                }
            }
        }
        let silent: Vec<_> = may_answer.iter().filter(|name| !answered.contains(**name)).collect();
        let label = POLICIES[policy].0;
        (!wrong.is_empty() || !silent.is_empty())
            .then(|| format!("{source:?} → {way:?} {label}: wanted {cell:?}:{wrong} silent: {silent:?}"))
    }

    fn may_be_seen(&self, sees: Sees, client: &Host, node: &Node, family: Family, seen: IpAddr) -> bool {
        // The node is seen by the address of the interface towards the endpoint.
        let of_node = [node.address(family), node.gateway(family)].contains(&seen);
        match sees {
            Sees::Node => of_node,
            Sees::Client if self.stage.served.mode().keeps_source => seen == client.address(family),
            Sees::Client => of_node || seen == client.address(family),
        }
    }

    /// Holds one kind of frontend against this table.
    #[track_caller]
    fn hold(&self, frontend: Frontend, table: &[(Source, bool, [Cell; 3])]) {
        let is_external = frontend != Frontend::ClusterIp;
        let mut wrong = Vec::new();
        for (source, _, cells) in table.iter().filter(|row| row.1 == is_external) {
            let ways = self.stage.ways().into_iter().filter(|(_, family)| self.families.contains(family));
            for (protocol, family) in ways {
                for (policy, cell) in cells.iter().enumerate() {
                    wrong.extend(self.check(*source, (frontend, protocol, family), policy, *cell));
                }
            }
        }
        assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn s20_cluster_ips_serve_everybody_and_s27_pods_are_seen_as_they_are() {
    Scene::new(Stage::new()).hold(Frontend::ClusterIp, &TABLE);
}

#[test]
fn s42_node_ports_serve_everybody_and_s27_local_policy_keeps_the_source() {
    Scene::new(Stage::new()).hold(Frontend::NodePort, &TABLE);
}

#[test]
fn s49_external_ips_serve_everybody() {
    Scene::new(Stage::new()).hold(Frontend::ExternalIp, &TABLE);
}

#[test]
fn s43_load_balancer_addresses_serve_everybody() {
    Scene::new(Stage::new()).hold(Frontend::LoadBalancer, &TABLE);
}

#[test]
fn s42_a_node_port_of_another_node_serves_pods_too() {
    let scene = Scene::new(Stage::new());
    let pod = &scene.pods[1];
    for (protocol, family) in scene.stage.ways() {
        for (_, number) in [POLICIES[0], POLICIES[2]] {
            let (address, port) = Frontend::NodePort.at(number, family, &scene.stage.near);
            let tally = pod.ask_many(ATTEMPTS, protocol, address, port).all_answered();
            assert_eq!(tally.names(), ["web-far", "web-near"], "{protocol:?} {family:?}");
        }
    }
}

#[test]
fn s26_local_policy_and_a_pod_of_another_node_all_answer_and_every_answer_comes_back() {
    // It counts as one of the cluster; its answers would go home past the node unless the node is seen.
    let scene = Scene::new(Stage::new());
    for (protocol, family) in scene.stage.ways() {
        let near = &scene.stage.near;
        let (address, port) = Frontend::NodePort.at(POLICIES[1].1, family, near);
        let caller = scene.pods[1].caller().timeout(Duration::from_millis(500));
        let tally = caller.ask_many(ATTEMPTS, protocol, address, port).all_answered();
        assert_eq!(tally.names(), ["web-far", "web-near"], "{protocol:?} {family:?}");
        let of_node = [near.address(family), near.gateway(family)];
        assert!(tally.clients.iter().all(|seen| of_node.contains(seen)), "{protocol:?}: {:?}", tally.clients);
    }
}

#[test]
fn s27_masquerade_all_hides_pods_at_cluster_ips() {
    const HIDDEN: [(Source, bool, [Cell; 3]); 3] = [
        (Source::Pod, false, [ALL_MASKED, ALL_MASKED, LOCAL_MASKED]),
        (Source::Outside, false, [ALL_MASKED, ALL_MASKED, LOCAL_MASKED]),
        (Source::PodElsewhere, false, [ALL_MASKED, ALL_MASKED, LOCAL_MASKED]),
    ];
    Scene::new(Stage::with(&["--masquerade-all"])).hold(Frontend::ClusterIp, &HIDDEN);
}

#[test]
fn s27_where_no_range_of_pods_is_known_nobody_is_masked_at_cluster_ips_and_no_way_is_cut_short() {
    const PLAIN: [(Source, bool, [Cell; 3]); 2] =
        [(Source::Pod, false, [ALL, ALL, LOCAL]), (Source::Pod, true, [ALL_MASKED, LOCAL, ALL_MASKED])];
    let mut scene = Scene::new(Stage::exactly(&["--cluster-cidr", "10.244.0.0/16"]));
    scene.families = &[Family::V6];
    Frontend::ALL.iter().for_each(|frontend| scene.hold(*frontend, &PLAIN));
    // An outside client would get the answer of the far endpoint past the node: only the near one can answer it here.
    for protocol in scene.stage.served.mode().protocols {
        let (address, port) = Frontend::ClusterIp.at(POLICIES[2].1, Family::V6, &scene.stage.near);
        let answer = scene.stage.outside.ask(*protocol, address, port).expect("an answer of the near endpoint");
        let sees_client = answer.client.ip() == scene.stage.outside.v6();
        assert_eq!(sees_client, scene.stage.served.mode().keeps_source, "{protocol:?}");
    }
    scene.families = &[Family::V4];
    Frontend::ALL.iter().for_each(|frontend| scene.hold(*frontend, &TABLE));
}
