//! Property test: after any changes in any order of delivery, endpoints equal those of a naive computation.

use std::collections::{BTreeMap, BTreeSet};

use api::value::ValueExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::testing::{Cluster, node, pod, service};
use crate::{endpoints, endpointslice};

const CONTROLLERS: &[&Controller] = &[&endpointslice::CONTROLLER, &endpoints::CONTROLLER];
const APPS: [&str; 3] = ["a", "b", "c"];
/// Small, so that there are many slices.
const MAX: usize = 4;

/// A step of a test run.
#[derive(Clone, Debug)]
enum Step {
    Pod {
        number: usize,
        app: usize,
        ready: bool,
        deleting: bool,
        finished: bool,
        port: Option<u16>,
        node: usize,
    },
    DeletePod {
        number: usize,
    },
    Service {
        number: usize,
        app: usize,
        publish: bool,
        named: bool,
        labelled: bool,
        headless: bool,
    },
    Node {
        number: usize,
        zone: Option<usize>,
    },
    DeleteNode {
        number: usize,
    },
    DeleteSlice {
        pick: usize,
    },
    EditSlice {
        pick: usize,
    },
    /// Delivers a change of one table.
    Deliver {
        pick: usize,
    },
    /// Reconciles one of the queued keys.
    Run {
        pick: usize,
    },
    /// Restarts the controllers.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let pod = (0..24usize, 0..3usize, any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let pod = (pod, prop::option::of(8080..8082u16), 0..3usize).prop_map(
        |((number, app, ready, deleting, finished), port, node)| Step::Pod {
            number,
            app,
            ready,
            deleting,
            finished,
            port,
            node,
        },
    );
    let service = (0..3usize, 0..3usize, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let service = service.prop_map(|(number, app, publish, named, labelled, headless)| Step::Service {
        number,
        app,
        publish,
        named,
        labelled,
        headless,
    });
    prop_oneof![
        8 => pod,
        2 => (0..24usize).prop_map(|number| Step::DeletePod { number }),
        2 => service,
        1 => (0..3usize, prop::option::of(0..2usize)).prop_map(|(number, zone)| Step::Node { number, zone }),
        1 => (0..3usize).prop_map(|number| Step::DeleteNode { number }),
        1 => (0..8usize).prop_map(|pick| Step::DeleteSlice { pick }),
        1 => (0..8usize).prop_map(|pick| Step::EditSlice { pick }),
        8 => (0..8usize).prop_map(|pick| Step::Deliver { pick }),
        6 => (0..8usize).prop_map(|pick| Step::Run { pick }),
        1 => Just(Step::Restart),
    ]
}

fn new_cluster() -> Cluster {
    let mut cluster = Cluster::new(CONTROLLERS);
    cluster.settings.max_endpoints_per_slice = MAX;
    cluster
}

fn make_pod(number: usize, app: usize, ready: bool, port: Option<u16>, node: usize) -> Value {
    let mut pod = pod(&format!("p{number}"), APPS[app], number, ready);
    pod.put("spec.nodeName", format!("node{node}"));
    if let Some(port) = port {
        let ports = json!([{"name": "http", "containerPort": port, "protocol": "TCP"}]);
        pod.put("spec.containers", json!([{"name": "c", "image": "i", "ports": ports}]));
    }
    pod
}

fn happen(cluster: &mut Cluster, step: &Step) {
    match *step {
        Step::Pod { number, app, ready, deleting, finished, port, node } => {
            let mut pod = make_pod(number, app, ready, port, node);
            if deleting {
                pod.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
            }
            if finished {
                pod.put("status.phase", "Succeeded");
            }
            cluster.put("pods", pod);
        }
        Step::DeletePod { number } => cluster.remove("pods", &format!("default/p{number}")),
        Step::Service { number, app, publish, named, labelled, headless } => {
            let mut service = service(&format!("s{number}"), APPS[app]);
            let address = if headless { "None".to_owned() } else { format!("10.96.0.{}", number + 1) };
            service.put("spec.clusterIP", address.as_str());
            service.put("spec.clusterIPs", json!([address]));
            service.put("spec.publishNotReadyAddresses", publish);
            if named {
                service.put("spec.ports", json!([{"port": 80, "targetPort": "http", "protocol": "TCP"}]));
            }
            if labelled {
                service.put("metadata.labels", json!({"team": "x"}));
            }
            cluster.put("services/specs", service);
        }
        Step::Node { number, zone } => {
            let mut node = node(&format!("node{number}"));
            if let Some(zone) = zone {
                node.put("metadata.labels", json!({"topology.kubernetes.io/zone": format!("z{zone}")}));
            }
            cluster.put("minions", node);
        }
        Step::DeleteNode { number } => cluster.remove("minions", &format!("node{number}")),
        Step::DeleteSlice { pick } => {
            if let Some(slice) = pick_slice(cluster, pick) {
                cluster.remove("endpointslices", &format!("default/{}", slice.text("metadata.name")));
            }
        }
        Step::EditSlice { pick } => {
            if let Some(mut slice) = pick_slice(cluster, pick) {
                slice.put("endpoints", json!([{"addresses": ["10.9.9.9"]}]));
                cluster.put("endpointslices", slice);
            }
        }
        Step::Deliver { pick } => {
            let tables = cluster.undelivered();
            if let Some(table) = tables.get(pick % tables.len().max(1)) {
                cluster.deliver(*table);
            }
        }
        Step::Run { pick } => {
            let queued: Vec<_> = cluster.queued.iter().cloned().collect();
            // The runner does not run a key before its own writes are delivered.
            let own = cluster
                .undelivered()
                .iter()
                .any(|table| matches!(table.as_str(), "endpointslices" | "services/endpoints"));
            if let Some((index, key)) = queued.get(pick % queued.len().max(1)).filter(|_| !own) {
                cluster.run(*index, key);
            }
        }
        Step::Restart => cluster.restart(),
    }
}

fn pick_slice(cluster: &Cluster, pick: usize) -> Option<Value> {
    let slices = cluster.all("endpointslices");
    slices.get(pick % slices.len().max(1)).cloned()
}

/// An endpoint: address, ready, serving, terminating, node, zone, port.
type EndpointTuple = (String, bool, bool, bool, String, String, Option<i64>);

/// The endpoints in the slices of a Service.
fn published(cluster: &Cluster, name: &str) -> Vec<EndpointTuple> {
    let mut seen = Vec::new();
    for slice in cluster.all("endpointslices") {
        if slice.at("metadata.labels").get("kubernetes.io/service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        assert!(slice.items("endpoints").len() <= MAX, "{slice}");
        let port = slice.items("ports").first().map(|port| port.int("port"));
        for endpoint in slice.items("endpoints") {
            seen.push((
                endpoint.texts("addresses").join(","),
                endpoint.flag("conditions.ready"),
                endpoint.flag("conditions.serving"),
                endpoint.flag("conditions.terminating"),
                endpoint.text("nodeName").to_owned(),
                endpoint.text("zone").to_owned(),
                port,
            ));
        }
    }
    seen.sort();
    seen
}

/// The endpoints by a naive computation.
fn naive(cluster: &Cluster, service: &Value) -> Vec<EndpointTuple> {
    let publish = service.flag("spec.publishNotReadyAddresses");
    let mut seen = Vec::new();
    for pod in cluster.all("pods") {
        let node = cluster.get("minions", pod.text("spec.nodeName"));
        let selected = pod.text("metadata.labels.app") == service.text("spec.selector.app");
        if !selected || pod.text("status.phase") == "Succeeded" || (node.is_none() && !publish) {
            continue;
        }
        let (serving, terminating) = (is_ready(&pod), pod.has("metadata.deletionTimestamp"));
        let zone = node.and_then(|node| {
            node.at("metadata.labels").get("topology.kubernetes.io/zone").and_then(Value::as_str).map(str::to_owned)
        });
        let ip = pod.text("status.podIP").to_owned();
        let ready = publish || (serving && !terminating);
        let node_name = pod.text("spec.nodeName").to_owned();
        seen.push((ip, ready, serving, terminating, node_name, zone.unwrap_or_default(), port_in(service, &pod)));
    }
    seen.sort();
    seen
}

fn is_ready(pod: &Value) -> bool {
    pod.items("status.conditions").iter().any(|condition| condition.text("status") == "True")
}

fn port_in(service: &Value, pod: &Value) -> Option<i64> {
    let target = service.items("spec.ports")[0].at("targetPort");
    target.as_i64().or_else(|| {
        let ports = pod.items("spec.containers")[0].items("ports");
        ports.first().map(|port| port.int("containerPort"))
    })
}

/// Ready and not ready addresses of the Endpoints object.
fn legacy(cluster: &Cluster, name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let object = cluster.get("services/endpoints", &format!("default/{name}")).expect("Endpoints");
    let ips = |list: &str| {
        let subsets = object.items("subsets").iter();
        subsets.flat_map(|subset| subset.items(list)).map(|address| address.text("ip").to_owned()).collect()
    };
    (ips("addresses"), ips("notReadyAddresses"))
}

fn naive_legacy(cluster: &Cluster, service: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let publish = service.flag("spec.publishNotReadyAddresses");
    let (mut ready, mut not_ready) = (BTreeSet::new(), BTreeSet::new());
    for pod in cluster.all("pods") {
        let selected = pod.text("metadata.labels.app") == service.text("spec.selector.app");
        let counts = publish || !pod.has("metadata.deletionTimestamp");
        if selected && counts && pod.text("status.phase") != "Succeeded" && port_in(service, &pod).is_some() {
            let list = if publish || is_ready(&pod) { &mut ready } else { &mut not_ready };
            list.insert(pod.text("status.podIP").to_owned());
        }
    }
    (ready, not_ready)
}

fn check(cluster: &Cluster) {
    for service in cluster.all("services/specs") {
        let name = service.text("metadata.name");
        assert_eq!(published(cluster, name), naive(cluster, &service), "{name}");
        assert_eq!(legacy(cluster, name), naive_legacy(cluster, &service), "{name}");
        let slices = cluster.all("endpointslices");
        let mine = slices.iter().filter(|slice| slice.items("metadata.ownerReferences")[0].text("name") == name);
        assert!(mine.count() > 0, "{name} has a slice, if only a placeholder");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s02_endpoints_equal_a_naive_recomputation_after_anything(steps in prop::collection::vec(step(), 1..120)) {
        let mut cluster = new_cluster();
        for step in &steps {
            happen(&mut cluster, step);
        }
        cluster.converge();
        check(&cluster);
        cluster.written.clear();
        cluster.restart();
        cluster.converge();
        prop_assert_eq!(&cluster.written, &[], "a restart finds nothing to do");
    }

    #[test]
    fn s16_no_change_of_one_pod_writes_more_slices_than_it_must(
        before in prop::collection::vec((0..24usize, 0..3usize, any::<bool>(), prop::option::of(8080..8082u16)), 0..40),
        after in (0..24usize, 0..3usize, any::<bool>(), prop::option::of(8080..8082u16)),
        gone in prop::bool::weighted(0.3),
    ) {
        let mut cluster = new_cluster();
        cluster.put("minions", node("node0"));
        for (number, app) in APPS.iter().enumerate() {
            let mut service = service(&format!("s{number}"), app);
            service.put("spec.clusterIP", format!("10.96.0.{}", number + 1));
            service.put("spec.clusterIPs", json!([format!("10.96.0.{}", number + 1)]));
            service.put("spec.ports", json!([{"port": 80, "targetPort": "http", "protocol": "TCP"}]));
            cluster.put("services/specs", service);
        }
        for (number, app, ready, port) in before {
            cluster.put("pods", make_pod(number, app, ready, port, 0));
        }
        cluster.converge();
        let old = by_service(&cluster);
        cluster.written.clear();
        let (number, app, ready, port) = after;
        if gone {
            cluster.remove("pods", &format!("default/p{number}"));
        } else {
            cluster.put("pods", make_pod(number, app, ready, port, 0));
        }
        cluster.converge();
        check(&cluster);
        let new = by_service(&cluster);
        // A Service whose endpoints differ needs one write, or two where an endpoint moves from one set of ports to another.
        let mut least = 0;
        for name in ["s0", "s1", "s2"] {
            let (old, new) = (&old[name], &new[name]);
            let changed: BTreeSet<Option<i64>> = old.symmetric_difference(new).map(|seen| seen.6).collect();
            least += changed.len();
        }
        prop_assert!(cluster.writes_to("endpointslices") <= least, "at most {} writes", least);
    }
}

fn by_service(cluster: &Cluster) -> BTreeMap<&'static str, BTreeSet<EndpointTuple>> {
    ["s0", "s1", "s2"].into_iter().map(|name| (name, published(cluster, name).into_iter().collect())).collect()
}
