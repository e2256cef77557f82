//! For any plan: tables, device and virtual servers together treat packets as the oracle requires; incremental syncs
//! equal a full resync; removals drain.

use kernel::ipvs::fake::Fake as FakeIpvs;
use kernel::links::fake::Fake as FakeLinks;
use kernel::nft::fake::{End, Fake as FakeNft, Fate, Packet};
use plan::{Frontend, Options, Planner, Protocol, Update};
use proptest::prelude::*;

use super::*;
use crate::nft::{Shape, TABLE, TABLE_BESIDE_IPVS, kernel_family};
use crate::testing::{self, ServiceSpec, follow, history, node_ips, options, service_spec, updates};

type TestBackend = Ipvs<FakeIpvs, FakeLinks, FakeNft>;

/// A machine in memory.
#[derive(Clone)]
struct Machine {
    ipvs: FakeIpvs,
    links: FakeLinks,
    nft: FakeNft,
}

impl Machine {
    fn new() -> Self {
        Self { ipvs: FakeIpvs::default(), links: FakeLinks::new(node_ips()), nft: FakeNft::default() }
    }

    fn backend(&self, scheduler: Scheduler) -> TestBackend {
        let config = Config { scheduler, ..Config::default() };
        Ipvs::new(self.ipvs.clone(), self.links.clone(), self.nft.clone(), config)
    }

    fn device(&self) -> BTreeSet<IpAddr> {
        self.links.addresses(DEVICE).unwrap_or_default()
    }

    /// Evaluates a packet; `choice` selects the destination.
    fn send(&self, packet: &Packet, choice: u32) -> Fate {
        self.nft.set_local(node_ips().chain(self.device()));
        // Expire clients of earlier packets, so that affinity does not decide.
        self.nft.advance(100_000);
        let all = self.ipvs.all();
        let mut is_kept = false;
        let mut fate = self.nft.evaluate_balanced(packet, &mut |below| choice % below, &mut |packet| {
            let server = Server { ip: packet.destination, protocol: packet.protocol, port: packet.port };
            let (settings, destinations) = all.get(&server)?;
            is_kept = settings.persistence.is_some();
            let willing: Vec<_> = destinations.iter().filter(|(_, weight)| **weight > 0).map(|(at, _)| at).collect();
            willing.get(choice as usize % willing.len().max(1)).map(|at| (at.ip(), at.port()))
        });
        if is_kept {
            fate.remembered.insert("a client of IPVS".into());
        }
        fate
    }

    /// The complete state, for comparison.
    fn state(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let tables = crate::nft::FAMILIES.map(|family| {
            let mut table = self.nft.table(kernel_family(family), TABLE_BESIDE_IPVS)?;
            // Kept chains of unused shapes are ignored.
            table.chains.retain(|name, _| Shape::kept_from_name(name).is_none());
            Some(table)
        });
        (self.ipvs.all(), self.device(), tables)
    }

    fn changes(&self) -> usize {
        self.ipvs.changes() + self.links.changes() + self.nft.changes()
    }
}

fn planner(options: Options) -> Planner {
    testing::planner(Options { data_plane: DataPlane::of_mode("ipvs"), ..options })
}

/// Compares the machine with the oracle. Two differences are expected: the kernel drops external packets whose source
/// address is on our device, and other ports of such an address are rejected.
fn check(machine: &Machine, plan: &Plan) {
    let device = machine.device();
    let is_possible = |packet: &plan::oracle::Packet| packet.from_node || !device.contains(&packet.source);
    testing::check_possible(plan, is_possible, |packet, choice, _| {
        let mut fate = machine.send(packet, choice);
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.number() == packet.protocol);
        let claimed = protocol.is_some_and(|protocol| {
            plan.owner(&Frontend::Address(packet.destination, protocol, packet.port)).is_some()
        });
        let of_service = plan.cluster_ips.contains_key(&packet.destination);
        if device.contains(&packet.destination) && !claimed && !of_service {
            assert_eq!(fate.end, End::Rejected, "the node does not answer for a Service: {packet:?}");
            fate.end = End::Accepted;
        }
        fate
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s23_table_and_servers_do_what_the_oracle_says(
        desired in prop::collection::vec(service_spec(), 1..4),
        local in 0..4usize,
        masquerade_all in prop::bool::weighted(0.2),
    ) {
        let mut planner = planner(options(local, masquerade_all));
        for update in desired.iter().flat_map(updates) {
            planner.update(update);
        }
        let machine = Machine::new();
        machine.backend(Scheduler::Rr).sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        check(&machine, planner.plan());
    }

    #[test]
    fn incremental_syncs_equal_a_full_resync(
        history in history(12),
        scheduler in prop::sample::select(Scheduler::ALL.to_vec()),
    ) {
        let mut planner = planner(options(1, false));
        let machine = Machine::new();
        let mut backend = machine.backend(scheduler);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        follow(&mut backend, &mut planner, history.into_iter().flatten());
        check(&machine, planner.plan());
        let anew = Machine::new();
        anew.backend(scheduler).sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        prop_assert_eq!(machine.state(), anew.state());
        let written = machine.changes();
        machine.backend(scheduler).sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        prop_assert_eq!(machine.changes(), written, "a correct state is not rewritten");
    }
}

#[test]
fn s54_a_cluster_ip_at_layer_7_leads_to_the_listener_and_its_node_port_to_endpoints() {
    let machine = Machine::new();
    testing::check_layer7(&mut machine.backend(Scheduler::Rr), |packet| machine.send(packet, 0));
}

/// A Service with these endpoints.
fn with(endpoints: &[u8], protocol: usize) -> ServiceSpec {
    ServiceSpec {
        number: 0,
        kind: 1,
        dual: false,
        protocol,
        internal_local: false,
        external_local: false,
        affinity: false,
        external_ip: false,
        lb_ip: false,
        ranges: 0,
        gateway: false,
        policy: Policy::Random,
        endpoints: endpoints.iter().map(|place| (*place, 0)).collect(),
    }
}

const SERVER: Server = Server { ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1)), protocol: 6, port: 80 };

fn client() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 7], 40_000))
}

fn endpoint(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 244, 0, last], 8080))
}

/// Destinations of the first Service, with their weights.
fn weights(machine: &Machine) -> Vec<(SocketAddr, u32)> {
    machine.ipvs.all().remove(&SERVER).map(|(_, destinations)| destinations.into_iter().collect()).unwrap_or_default()
}

/// A machine with one Service and two endpoints that have a connection each.
fn connected(protocol: usize) -> (Machine, TestBackend, Planner) {
    let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
    let mut backend = machine.backend(Scheduler::Rr);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    follow(&mut backend, &mut planner, updates(&with(&[1, 2], protocol)));
    let server = Server { protocol: [6, 17, 132][protocol], ..SERVER };
    for _ in 0..2 {
        machine.ipvs.connect(client(), &server).expect("somebody");
    }
    (machine, backend, planner)
}

#[test]
fn a_destination_drains_until_its_connections_end() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    assert_eq!(weights(&machine), [(endpoint(1), 1), (endpoint(2), 0)]);
    backend.last_drain_poll -= DRAIN_POLL_INTERVAL;
    backend.maintain(planner.plan()).expect("maintained");
    assert_eq!(weights(&machine).len(), 2, "its connection is still open");
    machine.ipvs.close(&SERVER, endpoint(2));
    machine.ipvs.forget();
    backend.last_drain_poll -= DRAIN_POLL_INTERVAL;
    backend.maintain(planner.plan()).expect("maintained");
    assert_eq!(weights(&machine), [(endpoint(1), 1)]);
    assert!(backend.draining.is_empty());
}

#[test]
fn a_draining_destination_that_returns_gets_connections_again() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    follow(&mut backend, &mut planner, updates(&with(&[1, 2], 0)));
    assert_eq!(weights(&machine), [(endpoint(1), 1), (endpoint(2), 1)]);
    check(&machine, planner.plan());
}

#[test]
fn a_deleted_service_rejects_new_connections_and_drains() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, vec![Update::ServiceGone("default/s0".to_owned())]);
    assert_eq!(weights(&machine), [(endpoint(1), 0), (endpoint(2), 0)]);
    let first = Packet::first(client().ip(), SERVER.ip, 6, 80, Some("eth0"));
    assert_eq!(machine.send(&first, 0).end, End::Rejected);
    let restarted = machine.backend(Scheduler::Rr).sync(planner.plan(), &SyncScope::FullResync);
    restarted.expect("accepted");
    assert_eq!(weights(&machine).len(), 2, "who starts anew knows them");
    for last in [1, 2] {
        machine.ipvs.close(&SERVER, endpoint(last));
    }
    machine.ipvs.forget();
    backend.last_drain_poll -= DRAIN_POLL_INTERVAL;
    backend.maintain(planner.plan()).expect("maintained");
    assert!(machine.ipvs.all().is_empty() && machine.device().is_empty());
}

#[test]
fn a_udp_destination_is_deleted_when_it_stops_serving() {
    let (machine, mut backend, mut planner) = connected(1);
    let weights = || {
        let (_, destinations) = machine.ipvs.all().remove(&Server { protocol: 17, ..SERVER }).expect("a server");
        destinations.into_iter().collect::<Vec<_>>()
    };
    // The second endpoint is terminating but serving, then removed.
    let draining = ServiceSpec { endpoints: vec![(1, 0), (2, 3)], ..with(&[], 1) };
    follow(&mut backend, &mut planner, updates(&draining));
    assert_eq!(weights(), [(endpoint(1), 1), (endpoint(2), 0)]);
    follow(&mut backend, &mut planner, updates(&with(&[1], 1)));
    assert_eq!(weights(), [(endpoint(1), 1)]);
    follow(&mut backend, &mut planner, vec![Update::ServiceGone("default/s0".to_owned())]);
    assert!(machine.ipvs.all().is_empty() && machine.device().is_empty());
}

#[test]
fn the_dh_scheduler_does_not_drain() {
    let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
    let mut backend = machine.backend(Scheduler::Dh);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    machine.ipvs.connect(client(), &SERVER).expect("somebody");
    follow(&mut backend, &mut planner, updates(&with(&[2], 0)));
    assert_eq!(weights(&machine), [(endpoint(2), 1)]);
    assert_eq!(machine.ipvs.connect(client(), &SERVER), Some(endpoint(2)));
}

#[test]
fn resync_corrects_our_servers_and_leaves_those_of_others() {
    let (machine, mut backend, planner) = connected(0);
    let theirs = Server { port: 4433, ..SERVER };
    let mut ipvs = machine.ipvs.clone();
    ipvs.apply(&[Change::NewServer(theirs, Scheduler::Lc.settings(None))]).expect("theirs");
    ipvs.apply(&[Change::DeleteServer(SERVER)]).expect("ours");
    backend.last_resync = backend.last_resync.checked_sub(backend.config.resync).expect("a while ago");
    assert_eq!(backend.next_maintenance(), Some(Duration::ZERO));
    backend.maintain(planner.plan()).expect("maintained");
    assert_eq!(weights(&machine), [(endpoint(1), 1), (endpoint(2), 1)]);
    assert!(machine.ipvs.all().contains_key(&theirs));
    let (mut links, mut nft) = (machine.links.clone(), machine.nft.clone());
    assert!(cleanup(Some(&mut ipvs), &mut links, &mut nft).expect("removed"));
    assert_eq!(machine.ipvs.all().keys().collect::<Vec<_>>(), [&theirs]);
    assert_eq!(machine.links.addresses(DEVICE), None);
    assert!(machine.nft.table(kernel::nft::Family::Ip, TABLE_BESIDE_IPVS).is_none());
    assert!(!cleanup(Some(&mut ipvs), &mut links, &mut nft).expect("nothing is left"));
    assert!(machine.nft.table(kernel::nft::Family::Ip, TABLE).is_none());
}

#[test]
fn draining_waits_for_tcp_connections_only() {
    let (machine, _backend, _planner) = connected(0);
    let (mut ipvs, mut nft) = (machine.ipvs.clone(), machine.nft.clone());
    assert!(has_active_connections(&mut ipvs, &mut nft).expect("asked"));
    for at in [endpoint(1), endpoint(2)] {
        machine.ipvs.close(&SERVER, at);
    }
    assert!(!has_active_connections(&mut ipvs, &mut nft).expect("asked"));
    let (machine, _backend, _planner) = connected(1);
    assert!(!has_active_connections(&mut machine.ipvs.clone(), &mut { machine.nft }).expect("asked"));
}

#[test]
fn an_address_that_another_device_has_is_not_put_on_ours() {
    let own: IpAddr = [198, 51, 100, 1].into();
    let (machine, mut planner) =
        (Machine { links: FakeLinks::new(node_ips().chain([own])), ..Machine::new() }, planner(options(1, false)));
    for update in updates(&ServiceSpec { external_ip: true, ..with(&[1], 0) }) {
        planner.update(update);
    }
    machine.backend(Scheduler::Rr).sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    assert!(!machine.device().contains(&own) && machine.device().contains(&SERVER.ip));
    assert!(machine.ipvs.all().contains_key(&Server { ip: own, ..SERVER }));
}

#[test]
fn a_failure_of_any_part_is_retried() {
    let fail: [fn(&Machine); 3] = [
        |machine| machine.ipvs.fail_next(kernel::Errno::NOMEM),
        |machine| machine.links.fail_next(kernel::Errno::NOMEM),
        |machine| machine.nft.fail_next(kernel::Errno::NOMEM),
    ];
    for fail in fail {
        let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
        let mut backend = machine.backend(Scheduler::Rr);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        let mut touched = Touched::default();
        for update in updates(&with(&[1, 9], 0)) {
            touched.absorb(planner.update(update));
        }
        fail(&machine);
        backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect_err("refused");
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        check(&machine, planner.plan());
        assert_eq!(machine.device(), BTreeSet::from([SERVER.ip]));
    }
}

#[test]
fn probe_names_the_missing_kernel_module() {
    let mut links = FakeLinks::default();
    let error = probe(&mut FakeIpvs::with(&[Scheduler::Rr]), &mut links, Scheduler::Sh).expect_err("no such scheduler");
    assert!(error.message.contains("modprobe ip_vs_sh"), "{error}");
    probe(&mut FakeIpvs::default(), &mut links, Scheduler::Sh).expect("everything is there");
}

#[test]
fn the_rules_text_lists_every_virtual_server() {
    let mut planner = planner(options(1, false));
    let spec = ServiceSpec {
        number: 1,
        kind: 2,
        dual: false,
        protocol: 0,
        internal_local: false,
        external_local: false,
        affinity: true,
        external_ip: true,
        lb_ip: true,
        ranges: 0,
        gateway: false,
        policy: Policy::Random,
        endpoints: vec![(2, 0), (9, 0)],
    };
    planner.update_all(updates(&spec));
    let machine = Machine::new();
    let mut backend = machine.backend(Scheduler::Rr);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let text: String = planner.plan().ports.values().map(|port| backend.rules(planner.plan(), port)).collect();
    assert!(!machine.ipvs.all().is_empty());
    for (server, (_, destinations)) in machine.ipvs.all() {
        let at = SocketAddr::new(server.ip, server.port);
        assert!(text.contains(&format!("-A -t {at} -s rr -p ")), "{at} is not in\n{text}");
        for to in destinations.keys() {
            assert!(text.contains(&format!("-a -t {at} -r {to} -m\n")), "{to} is not in\n{text}");
        }
    }
}
