//! Whatever the plan: what table, device and virtual servers together do to a packet is what the oracle says must happen; what was
//! followed is what is computed anew; and what is taken away goes gently.

use kernel::ipvs::fake::Fake as FakeIpvs;
use kernel::links::fake::Fake as FakeLinks;
use kernel::nft::fake::{End, Fake as FakeNft, Fate, Packet};
use plan::{Frontend, Planner, Protocol, Update};
use proptest::prelude::*;

use super::*;
use crate::nft::{Shape, TABLE, TABLE_BESIDE_IPVS, kernel_family};
use crate::testing::{self, Wish, follow, node_ips, options, planner, story, updates, wish};

type Tried = Ipvs<FakeIpvs, FakeLinks, FakeNft>;

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

    fn backend(&self, scheduler: Scheduler) -> Tried {
        let manner = Manner { scheduler, ..Manner::default() };
        Ipvs::new(self.ipvs.clone(), self.links.clone(), self.nft.clone(), manner)
    }

    fn device(&self) -> BTreeSet<IpAddr> {
        self.links.addresses(DEVICE).unwrap_or_default()
    }

    /// What becomes of a packet; `way` is which of the destinations is chosen.
    fn send(&self, packet: &Packet, way: u32) -> Fate {
        self.nft.set_local(node_ips().chain(self.device()));
        // Clients of earlier packets are forgotten, so that affinity does not choose for us.
        self.nft.advance(100_000);
        let all = self.ipvs.all();
        let mut stays = false;
        let mut fate = self.nft.evaluate_balanced(packet, &mut |below| way % below, &mut |packet| {
            let server = Server { ip: packet.destination, protocol: packet.protocol, port: packet.port };
            let (settings, destinations) = all.get(&server)?;
            stays = settings.persistence.is_some();
            let willing: Vec<_> = destinations.iter().filter(|(_, weight)| **weight > 0).map(|(at, _)| at).collect();
            willing.get(way as usize % willing.len().max(1)).map(|at| (at.ip(), at.port()))
        });
        if stays {
            fate.remembered.insert("a client of IPVS".into());
        }
        fate
    }

    /// Everything, to be compared.
    fn state(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let tables = crate::nft::FAMILIES.map(|family| {
            let mut table = self.nft.table(kernel_family(family), TABLE_BESIDE_IPVS)?;
            // Chains that looked into a map stay when nobody needs them.
            table.chains.retain(|name, _| Shape::staying(name).is_none());
            Some(table)
        });
        (self.ipvs.all(), self.device(), tables)
    }

    fn changes(&self) -> usize {
        self.ipvs.changes() + self.links.changes() + self.nft.changes()
    }
}

/// Holds what the machine does against what must happen. Two things differ, as they must: whoever sends from outside with an
/// address that is on our device is not heard by any kernel, and other ports of such an address are refused.
fn check(machine: &Machine, plan: &Plan) {
    let device = machine.device();
    let is_possible = |packet: &plan::oracle::Packet| packet.from_node || !device.contains(&packet.source);
    testing::check_possible(plan, is_possible, |packet, way, _| {
        let mut fate = machine.send(packet, way);
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
        wishes in prop::collection::vec(wish(), 1..4),
        local in 0..4usize,
        masquerade_all in prop::bool::weighted(0.2),
    ) {
        let mut planner = planner(options(local, masquerade_all));
        for update in wishes.iter().flat_map(updates) {
            planner.update(update);
        }
        let machine = Machine::new();
        machine.backend(Scheduler::Rr).bring(planner.plan(), &Since::Ever).expect("accepted");
        check(&machine, planner.plan());
    }

    #[test]
    fn what_was_followed_is_what_is_computed_anew(
        story in story(12),
        scheduler in prop::sample::select(Scheduler::ALL.to_vec()),
    ) {
        let mut planner = planner(options(1, false));
        let machine = Machine::new();
        let mut backend = machine.backend(scheduler);
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        follow(&mut backend, &mut planner, story.into_iter().flatten());
        check(&machine, planner.plan());
        let anew = Machine::new();
        anew.backend(scheduler).bring(planner.plan(), &Since::Ever).expect("accepted");
        prop_assert_eq!(machine.state(), anew.state());
        let written = machine.changes();
        machine.backend(scheduler).bring(planner.plan(), &Since::Ever).expect("accepted");
        prop_assert_eq!(machine.changes(), written, "what is right is not written again");
    }
}

/// A Service with these endpoints.
fn with(endpoints: &[u8], protocol: usize) -> Wish {
    Wish {
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
        endpoints: endpoints.iter().map(|place| (*place, 0)).collect(),
    }
}

const SERVER: Server = Server { ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1)), protocol: 6, port: 80 };

fn client() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 7], 40_000))
}

fn place(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 244, 0, last], 8080))
}

/// The destinations of the first Service, with their weights.
fn weights(machine: &Machine) -> Vec<(SocketAddr, u32)> {
    machine.ipvs.all().remove(&SERVER).map(|(_, destinations)| destinations.into_iter().collect()).unwrap_or_default()
}

/// A machine that serves one Service, with two endpoints, each of which has a connection.
fn connected(protocol: usize) -> (Machine, Tried, Planner) {
    let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
    let mut backend = machine.backend(Scheduler::Rr);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    follow(&mut backend, &mut planner, updates(&with(&[1, 2], protocol)));
    let server = Server { protocol: [6, 17, 132][protocol], ..SERVER };
    for _ in 0..2 {
        machine.ipvs.connect(client(), &server).expect("somebody");
    }
    (machine, backend, planner)
}

#[test]
fn a_destination_with_connections_stays_until_they_have_ended() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    assert_eq!(weights(&machine), [(place(1), 1), (place(2), 0)]);
    backend.looked -= LOOK;
    backend.tend(planner.plan()).expect("looked after");
    assert_eq!(weights(&machine).len(), 2, "its connection is still open");
    machine.ipvs.close(&SERVER, place(2));
    machine.ipvs.forget();
    backend.looked -= LOOK;
    backend.tend(planner.plan()).expect("looked after");
    assert_eq!(weights(&machine), [(place(1), 1)]);
    assert!(backend.fading.is_empty());
}

#[test]
fn a_destination_that_comes_back_gets_connections_again() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    follow(&mut backend, &mut planner, updates(&with(&[1, 2], 0)));
    assert_eq!(weights(&machine), [(place(1), 1), (place(2), 1)]);
    check(&machine, planner.plan());
}

#[test]
fn a_service_that_is_gone_refuses_and_keeps_its_connections() {
    let (machine, mut backend, mut planner) = connected(0);
    follow(&mut backend, &mut planner, vec![Update::ServiceGone("default/s0".to_owned())]);
    assert_eq!(weights(&machine), [(place(1), 0), (place(2), 0)]);
    let first = Packet::first(client().ip(), SERVER.ip, 6, 80, Some("eth0"));
    assert_eq!(machine.send(&first, 0).end, End::Rejected);
    let restarted = machine.backend(Scheduler::Rr).bring(planner.plan(), &Since::Ever);
    restarted.expect("accepted");
    assert_eq!(weights(&machine).len(), 2, "who starts anew knows them");
    for last in [1, 2] {
        machine.ipvs.close(&SERVER, place(last));
    }
    machine.ipvs.forget();
    backend.looked -= LOOK;
    backend.tend(planner.plan()).expect("looked after");
    assert!(machine.ipvs.all().is_empty() && machine.device().is_empty());
}

#[test]
fn a_udp_destination_stays_only_while_it_answers() {
    let (machine, mut backend, mut planner) = connected(1);
    let weights = || {
        let (_, destinations) = machine.ipvs.all().remove(&Server { protocol: 17, ..SERVER }).expect("a server");
        destinations.into_iter().collect::<Vec<_>>()
    };
    // The second begins to end, and still answers; then it is gone.
    let fading = Wish { endpoints: vec![(1, 0), (2, 3)], ..with(&[], 1) };
    follow(&mut backend, &mut planner, updates(&fading));
    assert_eq!(weights(), [(place(1), 1), (place(2), 0)]);
    follow(&mut backend, &mut planner, updates(&with(&[1], 1)));
    assert_eq!(weights(), [(place(1), 1)]);
    follow(&mut backend, &mut planner, vec![Update::ServiceGone("default/s0".to_owned())]);
    assert!(machine.ipvs.all().is_empty() && machine.device().is_empty());
}

#[test]
fn under_dh_nobody_waits() {
    let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
    let mut backend = machine.backend(Scheduler::Dh);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    follow(&mut backend, &mut planner, updates(&with(&[1], 0)));
    machine.ipvs.connect(client(), &SERVER).expect("somebody");
    follow(&mut backend, &mut planner, updates(&with(&[2], 0)));
    assert_eq!(weights(&machine), [(place(2), 1)]);
    assert_eq!(machine.ipvs.connect(client(), &SERVER), Some(place(2)));
}

#[test]
fn what_others_did_is_set_right_and_what_is_theirs_left_alone() {
    let (machine, mut backend, planner) = connected(0);
    let theirs = Server { port: 4433, ..SERVER };
    let mut ipvs = machine.ipvs.clone();
    ipvs.apply(&[Change::NewServer(theirs, Scheduler::Lc.settings(None))]).expect("theirs");
    ipvs.apply(&[Change::DeleteServer(SERVER)]).expect("ours");
    backend.read = backend.read.checked_sub(backend.manner.resync).expect("a while ago");
    assert_eq!(backend.rest(), Some(Duration::ZERO));
    backend.tend(planner.plan()).expect("looked after");
    assert_eq!(weights(&machine), [(place(1), 1), (place(2), 1)]);
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
fn open_connections_are_waited_for_and_flows_of_udp_are_not() {
    let (machine, _backend, _planner) = connected(0);
    let (mut ipvs, mut nft) = (machine.ipvs.clone(), machine.nft.clone());
    assert!(carries(&mut ipvs, &mut nft).expect("asked"));
    for at in [place(1), place(2)] {
        machine.ipvs.close(&SERVER, at);
    }
    assert!(!carries(&mut ipvs, &mut nft).expect("asked"));
    let (machine, _backend, _planner) = connected(1);
    assert!(!carries(&mut machine.ipvs.clone(), &mut { machine.nft }).expect("asked"));
}

#[test]
fn an_address_that_another_device_has_is_not_put_on_ours() {
    let own: IpAddr = [198, 51, 100, 1].into();
    let (machine, mut planner) =
        (Machine { links: FakeLinks::new(node_ips().chain([own])), ..Machine::new() }, planner(options(1, false)));
    for update in updates(&Wish { external_ip: true, ..with(&[1], 0) }) {
        planner.update(update);
    }
    machine.backend(Scheduler::Rr).bring(planner.plan(), &Since::Ever).expect("accepted");
    assert!(!machine.device().contains(&own) && machine.device().contains(&SERVER.ip));
    assert!(machine.ipvs.all().contains_key(&Server { ip: own, ..SERVER }));
}

#[test]
fn a_failure_of_any_part_is_made_up_for() {
    let fail: [fn(&Machine); 3] = [
        |machine| machine.ipvs.fail_next(kernel::Errno::NOMEM),
        |machine| machine.links.fail_next(kernel::Errno::NOMEM),
        |machine| machine.nft.fail_next(kernel::Errno::NOMEM),
    ];
    for fail in fail {
        let (machine, mut planner) = (Machine::new(), planner(options(1, false)));
        let mut backend = machine.backend(Scheduler::Rr);
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        let mut touched = Touched::default();
        for update in updates(&with(&[1, 9], 0)) {
            touched.absorb(planner.update(update));
        }
        fail(&machine);
        backend.bring(planner.plan(), &Since::Last(touched)).expect_err("refused");
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        check(&machine, planner.plan());
        assert_eq!(machine.device(), BTreeSet::from([SERVER.ip]));
    }
}

#[test]
fn a_machine_that_cannot_says_what_is_missing() {
    let mut links = FakeLinks::default();
    let error = probe(&mut FakeIpvs::with(&[Scheduler::Rr]), &mut links, Scheduler::Sh).expect_err("no such scheduler");
    assert!(error.what.contains("modprobe ip_vs_sh"), "{error}");
    probe(&mut FakeIpvs::default(), &mut links, Scheduler::Sh).expect("everything is there");
}

#[test]
fn people_can_read_of_every_virtual_server() {
    let mut planner = planner(options(1, false));
    let wish = Wish {
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
        endpoints: vec![(2, 0), (9, 0)],
    };
    planner.update_all(updates(&wish));
    let machine = Machine::new();
    let mut backend = machine.backend(Scheduler::Rr);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
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
