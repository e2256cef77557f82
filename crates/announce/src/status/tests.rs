//! Status of an address in clusters of two nodes.

use serde_json::json;

use super::*;

const IP: &str = "192.0.2.200";

struct World {
    lists: Lists,
    renewed: BTreeSet<Box<str>>,
    events: Vec<Value>,
}

fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn lease(key: &Key, holder: &str, session: &str) -> Value {
    let lease = Lease { holder: holder.into(), session: session.into(), renewal: 3 };
    lease.write(key, None, "2026-01-02T03:04:05.678Z".parse().expect("a time"))
}

/// Node n1 answers for the address of `shop/web`.
fn world() -> World {
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": CLASS_L2},
        "status": {"loadBalancer": {"ingress": [{"ip": IP}]}},
    });
    let address = Key::Address(IP.parse().expect("an address"));
    let lists = Lists {
        services: vec![service],
        nodes: vec![node("n1", "True"), node("n2", "True")],
        leases: vec![lease(&address, "n1", "a-1"), lease(&Key::Node("n1".into()), "n1", "a-1")],
        ..Lists::default()
    };
    World { lists, renewed: BTreeSet::from(["waypost-announcer-n1".into()]), events: Vec::new() }
}

impl World {
    fn status(&self) -> AnnouncementStatus {
        Evidence::new(&self.lists, &self.renewed, &self.events).status("shop/web", IP.parse().expect("an address"))
    }

    #[track_caller]
    fn announced(&self) -> String {
        match self.status() {
            AnnouncementStatus::Announced { how, .. } => how,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn not_announced(&self) -> (String, String) {
        match self.status() {
            AnnouncementStatus::NotAnnounced { why, fix } => (why, fix),
            other => panic!("{other:?}"),
        }
    }

    fn event(&mut self, kind: &str, name: &str, reason: &str, message: &str) {
        let revision = self.events.len() + 1;
        self.events.push(json!({
            "metadata": {"resourceVersion": revision.to_string()},
            "involvedObject": {"kind": kind, "namespace": if kind == "Service" { "shop" } else { "" }, "name": name},
            "reason": reason, "message": message, "lastTimestamp": "2026-01-02T03:04:05Z",
        }));
    }
}

#[test]
fn the_announcing_node_is_named_with_its_start() {
    let mut world = world();
    assert_eq!(world.announced(), "node n1 announces it by ARP since 2026-01-02T03:04:05Z");
    world.lists.services[0].put("metadata.deletionTimestamp", "2026-01-02T03:04:05Z");
    assert!(matches!(world.status(), AnnouncementStatus::NotOurs(_)));
}

#[test]
fn a_holder_that_stopped_or_hangs_does_not_announce() {
    let mut down = world();
    down.renewed.clear();
    assert!(down.not_announced().0.contains("does not renew its own"), "{:?}", down.status());
    let mut reborn = world();
    reborn.lists.leases[1] = lease(&Key::Node("n1".into()), "n1", "b-1");
    assert!(reborn.not_announced().0.starts_with("node n1 announced it and has stopped"));
    let mut free = world();
    free.lists.leases.remove(0);
    assert!(free.not_announced().0.starts_with("no node announces it yet"));
    free.renewed.clear();
    let (why, fix) = free.not_announced();
    assert!(why.contains("(candidates: n1, n2)") && fix.contains("--roles proxy,announce"), "{why} {fix}");
}

#[test]
fn excluded_nodes_are_named_with_the_reason() {
    let mut unready = world();
    unready.lists.nodes = vec![node("n1", "False"), node("n2", "True")];
    unready.lists.nodes[1]
        .put("metadata.labels", json!({"node.kubernetes.io/exclude-from-external-load-balancers": "true"}));
    let (why, fix) = unready.not_announced();
    assert!(why.contains("n1 is not Ready, n2 has the label"), "{why}");
    assert_eq!(fix, "kubectl describe node n1");
}

#[test]
fn a_local_policy_without_ready_endpoint_has_no_candidate() {
    let mut world = world();
    world.lists.services[0].put("spec.externalTrafficPolicy", "Local");
    let (why, fix) = world.not_announced();
    assert!(why.starts_with("externalTrafficPolicy is Local, and no node has a ready endpoint"), "{why}");
    assert_eq!(fix, "waypost explain svc/web -n shop");
    let mut slice = json!({
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "n2"}],
    });
    world.lists.slices = vec![slice.clone()];
    world.lists.nodes[1] = node("n2", "Unknown");
    assert!(world.not_announced().0.ends_with("may announce it: n2 is not Ready"), "{:?}", world.status());
    slice.items_mut("endpoints")[0].put("nodeName", "n1");
    world.lists.slices = vec![slice];
    world.announced();
}

#[test]
fn an_address_conflict_is_reported_until_it_is_announced() {
    let mut world = world();
    let taken = format!("{IP} is not announced: another machine (02:00:00:00:00:01) has this address already; take it");
    world.event("Service", "web", "Announcing", &format!("node n1 announces {IP} by ARP"));
    world.event("Service", "other", "AddressInUse", &taken);
    world.announced();
    world.event("Service", "web", "AddressInUse", &taken);
    let (why, fix) = world.not_announced();
    assert!(why.ends_with("another machine (02:00:00:00:00:01) has this address already"), "{why}");
    assert_eq!(fix, "kubectl describe service web -n shop");
    world.event("Service", "web", "Announcing", &format!("node n1 announces {IP} by ARP"));
    world.announced();
}

#[test]
fn addresses_of_other_implementations_are_not_ours() {
    let ours = |change: &dyn Fn(&mut World)| {
        let mut world = world();
        change(&mut world);
        match world.status() {
            AnnouncementStatus::NotOurs(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        ours(&|world| world.lists.services[0].put("spec.loadBalancerClass", "example.com/lb"))
            .contains("example.com/lb")
    );
    assert!(ours(&|world| world.lists.services[0].put("spec.loadBalancerClass", "")).contains("in no IPPool"));
    let own =
        ours(&|world| world.lists.nodes[1].put("status.addresses", json!([{"type": "InternalIP", "address": IP}])));
    assert!(own.contains("node n2's own address"), "{own}");
}

#[test]
fn bgp_sessions_are_reported_by_router() {
    let mut world = world();
    world.lists.services[0].put("spec.loadBalancerClass", CLASS_BGP);
    world.lists.nodes.remove(1);
    assert!(world.not_announced().0.contains("in no IPPool"), "{:?}", world.status());
    world.lists.pools = vec![json!({"metadata": {"name": "office"}, "spec": {"addresses": ["192.0.2.0/24"]}})];
    assert!(world.not_announced().0.contains("no BGPPeer"), "{:?}", world.status());
    let spec = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "peerPort": 179, "holdTimeSeconds": 90,
        "restartTimeSeconds": 120, "maxPrefixes": 10, "localPref": 0,
    });
    world.lists.peers = vec![json!({"metadata": {"name": "r1"}, "spec": spec})];
    assert!(matches!(world.status(), AnnouncementStatus::Unknown { .. }), "{:?}", world.status());
    let about = "node n1, 192.0.2.1:179 (AS 64513), 03:04:05 UTC: ";
    world.event("BGPPeer", "r1", "SessionDown", &format!("{about}there is no session: the connection was refused"));
    let (why, fix) = world.not_announced();
    assert!(
        why.contains("no session with router r1 (192.0.2.1, AS 64513): there is no session: the connection"),
        "{why}"
    );
    assert_eq!(fix, "kubectl describe bgppeer r1");
    world.event("BGPPeer", "r1", "SessionUp", &format!("{about}the session is up; 1 routes are announced"));
    assert_eq!(world.announced(), "node n1 announces it to router r1 (192.0.2.1, AS 64513) since 2026-01-02T03:04:05Z");
}
