//! Compares the nftables rules with the plan, by a dry run of the backend.
//!
//! In: the objects, and the current tables. Out: differences, by Service. The plan comes from the planner of the proxy, the
//! difference from its backend, over a port that records the batch instead of applying it: the doctor reports what the proxy
//! would change. The options of the proxy are not known here; what depends on them alone is not compared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::view::labels::SERVICE_PROXY_NAME;
use dataplane::nftables::Nftables;
use dataplane::{Backend as _, SyncScope, nft};
use ipnet::IpNet;
use kernel::Family;
use kernel::nft::{Batch, Change, Counter, Dump, Key, Monitor, Nft, NftError, Part};
use parking_lot::Mutex;
use plan::{Frontend, LocalDetector, Options, Plan, Planner, PortKey, RedirectedFrontends, Update};
use serde_json::{Value, from_value};

use cli::doctor::{Cluster, Measured, Rules, Unmeasured};

/// Sets that depend on the options of the proxy, and not on Services.
const SURROUNDINGS: [&str; 4] = ["pod-ips", "own-pod-ips", "node-ips", "service-ranges"];

/// The differences.
pub(super) fn compare(
    kernel: &mut dyn Nft,
    cluster: &Cluster,
    node: &str,
    machine: &BTreeSet<IpAddr>,
) -> Measured<Rules> {
    let unreadable = |error: NftError| Unmeasured {
        why: format!("reading the table {}: {error}", nft::TABLE),
        how: "run `waypost doctor` as root".to_owned(),
    };
    let mut tables = BTreeMap::new();
    for family in Family::ALL {
        tables.insert(family, kernel.dump(family, nft::TABLE).map_err(unreadable)?);
    }
    for masquerade_all in [false, true] {
        let mut plan = plan(cluster, options(node, masquerade_all, &tables), machine.clone());
        let redirects = nft::redirected_cluster_ips(plan.plan(), &tables, machine);
        plan.update(Update::Redirects(Arc::new(redirects)));
        let changes = difference(&tables, plan.plan())?;
        let replaced = |change: &Change| match change {
            Change::AddTable(family, ..) => tables.get(family).is_some_and(Option::is_some),
            _ => false,
        };
        if !changes.iter().any(replaced) {
            return Ok(read(plan.plan(), &changes));
        }
    }
    Err(Unmeasured {
        why: format!(
            "the table {} was written by another version of this program, or replaced by another program",
            nft::TABLE
        ),
        how: "restart the proxy of this node".to_owned(),
    })
}

/// The probable options of the proxy. Whether it has Pod CIDRs determines some chains; their values only sets that are not compared.
fn options(node: &str, masquerade_all: bool, tables: &BTreeMap<Family, Option<Dump>>) -> Options {
    let knows = |family: &Family| {
        let sets = tables.get(family).and_then(Option::as_ref).map(|table| &table.sets);
        sets.and_then(|sets| sets.get("pod-ips")).is_some_and(|set| !set.elements.is_empty())
    };
    let every = |family: &Family| -> Option<IpNet> {
        let range = if *family == Family::Ip { "0.0.0.0/0" } else { "::/0" };
        knows(family).then(|| range.parse().ok()).flatten()
    };
    let ranges = Family::ALL.iter().filter_map(every).collect();
    Options { node_name: node.to_owned(), masquerade_all, local: LocalDetector::Ranges(ranges), ..Options::default() }
}

/// The plan of the proxy of this node.
pub(super) fn plan(cluster: &Cluster, options: Options, machine: BTreeSet<IpAddr>) -> Planner {
    use api::value::ValueExt as _;
    let node = options.node_name.clone();
    let mut planner = Planner::new(options);
    let ours = |service: &&Value| {
        service.text("spec.clusterIP") != "None" && service.at("metadata.labels").get(SERVICE_PROXY_NAME).is_none()
    };
    // The proxy also skips objects that cannot be parsed.
    let services = cluster.services.iter().filter(ours).filter_map(|one| from_value(one.clone()).ok());
    let services = services.map(|one| Update::Service(Box::new(one)));
    let slices = cluster.slices.iter().filter_map(|one| from_value(one.clone()).ok()).map(Update::Slice);
    let nodes = cluster.nodes.iter().filter(|one| one.text("metadata.name") == node);
    let nodes = nodes.filter_map(|one| from_value(one.clone()).ok()).map(|one| Update::Node(Some(Box::new(one))));
    let ranges = cluster.ranges.iter().filter_map(|one| from_value(one.clone()).ok()).map(Update::Cidr);
    planner.update_all(services.chain(slices).chain(nodes).chain(ranges).chain([Update::Machine(machine)]));
    planner
}

/// The Service of the rules of a port. Redirected load-balancer addresses and ports of leaders have none: the listeners of the
/// gateway and the holders of Leases are not known here.
pub(super) fn owner(plan: &Plan, key: &PortKey) -> String {
    let is_led = plan.ports.get(key).is_some_and(|port| port.balancing.is_exclusive());
    match key.redirected {
        Some(RedirectedFrontends::LoadBalancer) => key.to_string(),
        _ if is_led => key.to_string(),
        Some(RedirectedFrontends::ClusterIp) | None => key.service.to_string(),
    }
}

/// What the backend would write.
fn difference(tables: &BTreeMap<Family, Option<Dump>>, plan: &Plan) -> Measured<Vec<Change>> {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let mut backend = Nftables::new(Dry { tables: tables.clone(), batches: Arc::clone(&batches) });
    backend.sync(plan, &SyncScope::FullResync).map_err(|error| Unmeasured {
        why: format!("comparing rules: {error}"),
        how: "restart the proxy of this node".to_owned(),
    })?;
    // The first batch has the required changes; the others are cleanup.
    let first: Option<Batch> = batches.lock().drain(..).next();
    Ok(first.map(|batch| batch.changes).unwrap_or_default())
}

/// A fake kernel that records the rules it is given.
struct Dry {
    tables: BTreeMap<Family, Option<Dump>>,
    batches: Arc<Mutex<Vec<Batch>>>,
}

impl Nft for Dry {
    fn apply(&mut self, batch: &Batch) -> Result<(), NftError> {
        if !batch.changes.is_empty() {
            self.batches.lock().push(batch.clone());
        }
        Ok(())
    }

    fn dump(&mut self, family: Family, _: &str) -> Result<Option<Dump>, NftError> {
        Ok(self.tables.get(&family).cloned().flatten())
    }

    fn counters(&mut self, _: Family, _: &str, _: &str) -> Result<Vec<Counter>, NftError> {
        Ok(Vec::new())
    }

    fn generation(&mut self) -> Result<u32, NftError> {
        Ok(0)
    }

    fn monitor(&mut self, _: &str) -> Result<Box<dyn Monitor>, NftError> {
        let doing = "listening to a kernel that is only thought of";
        Err(NftError { errno: kernel::Errno::OPNOTSUPP, change: None, doing })
    }
}

/// Changes as text, by Service.
fn read(plan: &Plan, changes: &[Change]) -> Rules {
    let places = Places::of(plan);
    let mut rules = Rules { mode: "nftables".to_owned(), ..Rules::default() };
    for change in changes {
        match change {
            Change::AddTable(family, ..) => rules.whole.push(format!("the table of {family:?} is missing")),
            Change::AddChain(_, _, chain, _) => rules.whole.push(format!("chain {chain} is missing")),
            Change::FlushChain(_, _, chain) => rules.whole.push(format!("chain {chain} has other rules")),
            Change::AddSet(_, _, set, _) => rules.whole.push(format!("set {set} is missing")),
            Change::AddElements(family, _, set, elements) => {
                for (key, _) in elements {
                    places.tell(*family, set, key, "is missing in", &mut rules.of);
                }
            }
            Change::DeleteElements(family, _, set, keys) => {
                for key in keys {
                    places.tell(*family, set, key, "is wrong in", &mut rules.of);
                }
            }
            Change::AddRules(..) | Change::DeleteTable(..) | Change::DeleteChain(..) | Change::DeleteSet(..) => {}
        }
    }
    // A Service without rules has no differences.
    for said in rules.of.values_mut() {
        said.sort_unstable();
        said.dedup();
    }
    rules
}

/// The owners of elements.
struct Places(Vec<Place>);

/// Elements of one Service.
struct Place {
    family: Family,
    /// Whether they are of a node port.
    by_node_port: bool,
    /// The prefix of their keys.
    start: Box<[u8]>,
    service: String,
    /// Their name in messages.
    frontend: String,
}

impl Places {
    fn of(plan: &Plan) -> Self {
        let mut places = Vec::new();
        for (key, port) in &plan.ports {
            let family = if key.family == api::ip::Family::V4 { Family::Ip } else { Family::Ip6 };
            let mut add = |by_node_port, parts: &[Part], frontend: String| {
                let (start, service) = (Key::new(parts).start, owner(plan, key));
                places.push(Place { family, by_node_port, start, service, frontend });
            };
            let number = Part::Protocol(key.protocol.number());
            for (frontend, _) in port.frontends() {
                let called = frontend.to_string();
                match frontend {
                    Frontend::Address(ip, _, port) => {
                        add(false, &[Part::Address(ip), number, Part::Port(port)], called);
                    }
                    Frontend::NodePort(_, _, port) => add(true, &[number, Part::Port(port)], called),
                }
            }
            if let Some(ip) = port.cluster_ip {
                add(false, &[Part::Address(ip)], ip.to_string());
            }
        }
        Self(places)
    }

    fn tell(&self, of: Family, set: &str, key: &Key, what: &str, out: &mut BTreeMap<String, Vec<String>>) {
        if SURROUNDINGS.contains(&set) {
            return;
        }
        let by_node_port = set.contains("node-port");
        let ours = |place: &&Place| {
            place.family == of && place.by_node_port == by_node_port && key.start.starts_with(&place.start)
        };
        // The longest prefix is the nearest: an address alone is a prefix of many keys.
        if let Some(place) = self.0.iter().filter(ours).max_by_key(|place| place.start.len()) {
            out.entry(place.service.clone()).or_default().push(format!("{} {what} {set}", place.frontend));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kernel::nft::fake::Fake;
    use plan::{Redirect, ServicePortName};
    use serde_json::json;

    use super::*;

    /// Two Services with an endpoint each.
    pub(in super::super) fn cluster() -> Cluster {
        let service = |name: &str, ip: &str| {
            json!({"metadata": {"name": name, "namespace": "default"},
                   "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "protocol": "TCP"}]}})
        };
        let slice = |name: &str, ip: &str| {
            json!({"metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
                   "addressType": "IPv4", "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
                   "endpoints": [{"addresses": [ip]}]})
        };
        Cluster {
            services: vec![service("web", "10.96.0.5"), service("api", "10.96.0.6")],
            slices: vec![slice("web", "10.244.0.1"), slice("api", "10.244.0.2")],
            ..Cluster::default()
        }
    }

    /// A kernel in which a proxy with these options has written the rules of a cluster.
    fn written(cluster: &Cluster, masquerade_all: bool) -> Fake {
        written_with(cluster, masquerade_all, &[])
    }

    /// The same, with redirects.
    fn written_with(cluster: &Cluster, masquerade_all: bool, redirects: &[Redirect]) -> Fake {
        let fake = Fake::default();
        let local = LocalDetector::Ranges(vec!["10.244.0.0/16".parse().expect("a range")]);
        let options = Options { node_name: "n1".to_owned(), masquerade_all, local, ..Options::default() };
        let mut plan = plan(cluster, options, BTreeSet::new());
        plan.update(Update::Redirects(Arc::new(redirects.iter().cloned().collect())));
        Nftables::new(fake.clone()).sync(plan.plan(), &SyncScope::FullResync).expect("written");
        fake
    }

    fn compared(kernel: &mut Fake, cluster: &Cluster) -> Rules {
        compare(kernel, cluster, "n1", &BTreeSet::new()).expect("measured")
    }

    #[test]
    fn what_the_proxy_wrote_is_equal_however_it_was_started() {
        let cluster = cluster();
        for masquerade_all in [false, true] {
            let rules = compared(&mut written(&cluster, masquerade_all), &cluster);
            assert_eq!((rules.missing, &rules.whole[..], rules.of.len()), (false, &[][..], 0), "{rules:?}");
        }
    }

    #[test]
    fn what_differs_is_told_of_the_service_that_it_concerns() {
        let mut cluster = cluster();
        let mut kernel = written(&cluster, false);
        use api::value::ValueExt as _;
        cluster.slices[0].items_mut("endpoints")[0].put("addresses", json!(["10.244.0.77"]));
        let rules = compared(&mut kernel, &cluster);
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/web"], "{rules:?}");
        assert!(rules.of["default/web"].iter().any(|said| said.contains("endpoints")), "{rules:?}");
        assert!(rules.whole.is_empty(), "{rules:?}");
    }

    #[test]
    fn a_service_of_the_gateway_is_as_it_should_be_wherever_it_leads() {
        use api::value::ValueExt as _;
        let mut cluster = cluster();
        let annotations = json!({"service.beta.kubernetes.io/aws-load-balancer-backend-protocol": "http"});
        let web = &mut cluster.services[0];
        web.put("metadata.annotations", annotations);
        web.put("spec.type", "LoadBalancer");
        web.put("status", json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}));
        let listener = "192.0.2.11:41000".parse().expect("an address");
        let protocol = plan::Protocol::Tcp;
        for direct in [None, Some(ServicePortName { service: "default/api".into(), port: "".into() })] {
            let (service, port, backends) = ("default/web".into(), "".into(), direct.iter().cloned().collect());
            let frontends = RedirectedFrontends::LoadBalancer;
            let redirect = Redirect { service, port, protocol, frontends, listener, direct, backends };
            let rules = compared(&mut written_with(&cluster, false, &[redirect]), &cluster);
            assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/web/TCP at the gateway"], "{rules:?}");
            assert!(rules.whole.is_empty(), "{rules:?}");
        }
    }

    #[test]
    fn s54_a_cluster_ip_at_layer_7_is_as_it_should_be_while_it_leads_to_this_machine() {
        let cluster = cluster();
        let redirect = Redirect {
            service: "default/web".into(),
            port: "".into(),
            protocol: plan::Protocol::Tcp,
            frontends: RedirectedFrontends::ClusterIp,
            listener: "192.0.2.11:42000".parse().expect("an address"),
            direct: None,
            backends: BTreeSet::new(),
        };
        let mut kernel = written_with(&cluster, false, &[redirect]);
        let of = |kernel: &mut Fake, machine: &str| {
            let machine = [machine.parse().expect("an address")].into();
            compare(kernel, &cluster, "n1", &machine).expect("measured")
        };
        let rules = of(&mut kernel, "192.0.2.11");
        assert!(rules.whole.is_empty() && rules.of.is_empty(), "{rules:?}");
        let rules = of(&mut kernel, "192.0.2.12");
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/web"], "not an address of this machine: {rules:?}");
    }

    #[test]
    fn a_chain_that_somebody_emptied_concerns_everybody() {
        let cluster = cluster();
        let mut kernel = written(&cluster, false);
        let change = Change::FlushChain(Family::Ip, nft::TABLE.into(), "services".into());
        kernel.apply(&Batch { changes: vec![change] }).expect("flushed");
        assert_eq!(compared(&mut kernel, &cluster).whole, ["chain services has other rules"]);
    }
}
