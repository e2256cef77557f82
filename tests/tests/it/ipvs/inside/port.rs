//! The kernel's IPVS and devices against ours in memory: the same orders, the same refusals, the same state afterwards.

use std::net::{IpAddr, SocketAddr};

use kernel::ipvs::{Change, Flags, Ipvs, Scheduler, Server, Settings, Timeouts, Unfit, fake, linux, probe};
use kernel::links::{self, Links};
use testbed::net::{Cluster, Node};

fn node() -> (Cluster, Node) {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    (cluster, node)
}

fn server(number: u8) -> Server {
    let ip = if number.is_multiple_of(2) { "10.96.0.1" } else { "fd00:10:96::1" };
    let protocol = [6, 17, 132][usize::from(number / 2 % 3)];
    Server { ip: ip.parse().expect("an address"), protocol, port: 80 }
}

fn destination(server: &Server, number: u8) -> SocketAddr {
    let ip =
        if server.ip.is_ipv4() { format!("10.244.0.{}", number + 1) } else { format!("fd00:10:244::{}", number + 1) };
    SocketAddr::new(ip.parse().expect("an address"), 8080)
}

/// Some order or other, often one that must be refused.
fn change(random: &mut fastrand::Rng) -> Change {
    let server = server(random.u8(..6));
    let at = destination(&server, random.u8(..3));
    let scheduler = *random.choice(Scheduler::ALL.iter()).expect("one");
    let flags = Flags { fallback: random.bool(), ports: random.bool() };
    let persistence = random.bool().then(|| random.u32(1..5000));
    let known = Settings { flags, ..scheduler.settings(persistence) };
    let settings = if random.u8(..10) == 0 { Settings { scheduler: "nix".to_owned(), ..known } } else { known };
    match random.u8(..8) {
        0 | 1 => Change::NewServer(server, settings),
        2 => Change::SetServer(server, settings),
        3 => Change::DeleteServer(server),
        4 | 5 => Change::NewDestination(server, at, random.u32(..3)),
        6 => Change::SetDestination(server, at, random.u32(..3)),
        _ => Change::DeleteDestination(server, at),
    }
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn orders_are_carried_out_and_refused_as_in_memory() {
    let (_cluster, node) = node();
    node.in_namespace(|| {
        // The module of this one was left out of the machine.
        let there = Scheduler::ALL.into_iter().filter(|scheduler| *scheduler != Scheduler::Lblcr);
        let mut memory = fake::Fake::with(&there.collect::<Vec<_>>());
        let mut real = linux::Linux::open().expect("IPVS");
        // Only what was drawn is random: every run draws the same.
        let mut random = fastrand::Rng::with_seed(7);
        for number in 0..600 {
            let change = change(&mut random);
            let one = real.apply(std::slice::from_ref(&change)).map_err(|error| error.errno);
            let other = memory.apply(std::slice::from_ref(&change)).map_err(|error| error.errno);
            assert_eq!(one, other, "order {number}: {change:?}");
        }
        let servers = real.servers().expect("listed");
        assert_eq!(servers, memory.servers().expect("listed"));
        assert!(!servers.is_empty());
        for server in servers.keys() {
            assert_eq!(real.destinations(server).expect("listed"), memory.destinations(server).expect("listed"));
        }
    });
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn many_orders_at_once_are_one_after_the_other() {
    let (_cluster, node) = node();
    node.in_namespace(|| {
        let mut real = linux::Linux::open().expect("IPVS");
        let at = |port: u16| Server { port, ..server(0) };
        let mut changes: Vec<Change> =
            (1..=1000).map(|port| Change::NewServer(at(port), Scheduler::Rr.settings(None))).collect();
        changes.insert(500, Change::DeleteServer(at(2000)));
        let error = real.apply(&changes).expect_err("one is refused");
        assert!(error.is_gone() && error.change == Some(Change::DeleteServer(at(2000))), "{error}");
        assert_eq!(real.servers().expect("listed").len(), 1000);
    });
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_trial_finds_what_there_is() {
    let (_cluster, node) = node();
    node.in_namespace(|| {
        let mut real = linux::Linux::open().expect("IPVS");
        for scheduler in Scheduler::ALL {
            let wanted = if scheduler == Scheduler::Lblcr { Err(Unfit::Scheduler("lblcr".to_owned())) } else { Ok(()) };
            assert_eq!(probe(&mut real, &scheduler.settings(None)), wanted, "{scheduler:?}");
        }
        assert!(real.servers().expect("listed").is_empty(), "nothing is left");
        let timeouts = Timeouts { tcp: 1000, tcp_fin: 0, udp: 77 };
        let before = real.timeouts().expect("read");
        real.set_timeouts(timeouts).expect("set");
        assert_eq!(real.timeouts().expect("read"), Timeouts { tcp_fin: before.tcp_fin, ..timeouts });
    });
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_device_has_the_addresses_it_was_given() {
    let (_cluster, node) = node();
    node.in_namespace(|| {
        let mut real = links::linux::Linux::open().expect("sockets");
        let ips: Vec<IpAddr> = ["10.96.0.1", "fd00:10:96::1"].map(|ip| ip.parse().expect("an address")).into();
        let before = real.state("w0").expect("looked");
        assert!(before.index.is_none() && before.here.is_empty());
        assert!(real.add("w0", &ips).is_err(), "there is no device");
        for _ in 0..2 {
            real.make("w0").expect("made");
            real.add("w0", &ips).expect("added");
        }
        let found = real.state("w0").expect("looked");
        assert_eq!((found.here.into_iter().collect::<Vec<_>>(), found.elsewhere), (ips.clone(), before.elsewhere));
        for _ in 0..2 {
            real.remove("w0", &ips[..1]).expect("removed");
        }
        assert_eq!(real.state("w0").expect("looked").here.len(), 1);
        assert!(real.delete("w0").expect("deleted") && !real.delete("w0").expect("gone already"));
    });
}
