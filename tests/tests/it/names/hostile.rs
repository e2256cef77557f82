//! A million packets of nonsense, none of them lost on the way, after each handful of which a good question is answered.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use fastrand::Rng;
use testbed::net::Served;

use super::{Block, ZONES, wire};

/// How many packets.
const PACKETS: usize = 1_000_000;
/// How many are sent before one is waited for: their replies fit into the buffer of a socket.
const BURST: usize = 100;
/// How many clients send them.
const CLIENTS: usize = 2;
/// The server.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5301);
/// A name that is there.
const NAME: &str = "kubernetes.default.svc.cluster.local";
/// Valid queries, to be mutated.
const NAMES: [&str; 6] = [
    NAME,
    "_https._tcp.kubernetes.default.svc.cluster.local",
    "1-2-3-4.default.pod.cluster.local",
    "nobody.default.svc.cluster.local",
    "1.0.96.10.in-addr.arpa",
    "www.example.org",
];

/// Bytes without any sense: mostly short, some as long as datagrams are.
fn noise(random: &mut Rng) -> Vec<u8> {
    let longest = if random.u8(..) == 0 { 5000 } else { 300 };
    let mut out = vec![0; random.usize(..longest)];
    random.fill(&mut out);
    // The rest would be taken for replies and never be parsed.
    if let Some(flags) = out.get_mut(2) {
        *flags &= if random.bool() { 0x7f } else { 0x07 };
    }
    out
}

/// A valid query of any type with one mutation: bytes changed, cut off, inserted or duplicated.
fn spoiled(random: &mut Rng) -> Vec<u8> {
    let mut out = wire::question(random.u16(..), random.choice(NAMES).expect("a name"));
    let end = out.len();
    out[end - 3] = random.u8(..);
    if random.bool() {
        // An OPT record, as clients send it.
        out[11] = 1;
        out.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..out.len().max(1));
        match random.u8(..6) {
            0 => out.truncate(at),
            1 => out.insert(at.min(out.len()), random.u8(..)),
            2 => out.extend_from_within(at.min(out.len())..),
            // Lengths and pointers are where parsers stumble.
            3 => set(&mut out, at, 0xc0 | random.u8(..4)),
            4 => set(&mut out, at, 63),
            _ => set(&mut out, at, random.u8(..)),
        }
    }
    out
}

fn set(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

/// Sends a valid query after all that, by the same socket and so to the same thread of the server: when this is answered, the
/// rest has been read. Counts the responses.
fn ask(socket: &UdpSocket, id: u16, replies: &mut usize) -> Vec<Ipv4Addr> {
    let question = wire::question(id, NAME);
    socket.send(&question).expect("sent");
    let mut buffer = [0; 65536];
    loop {
        let length = socket.recv(&mut buffer).expect("the server still answers");
        *replies += 1;
        if let Some(found) = wire::addresses(&question, &buffer[..length]) {
            return found;
        }
    }
}

/// Sends a share of them; how many replies there were.
fn attack(seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let socket = wire::socket(SERVER, Duration::from_secs(5));
    let mut replies = 0;
    for burst in 0..PACKETS / CLIENTS / BURST {
        for _ in 0..BURST {
            let packet = if random.bool() { noise(&mut random) } else { spoiled(&mut random) };
            socket.send(&packet).expect("sent");
        }
        assert_eq!(
            ask(&socket, random.u16(..), &mut replies),
            [Ipv4Addr::new(10, 96, 0, 1)],
            "seed {seed}, burst {burst}"
        );
    }
    replies
}

/// A counter of the kernel about datagrams.
fn counter(text: &str, name: &str) -> usize {
    let lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let [names, values] = &lines.map(|line| line.split(' ').collect::<Vec<_>>()).collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let column = names.iter().position(|one| *one == name).expect("a counter");
    values[column].parse().expect("a number")
}

#[test]
fn s34_a_million_random_packets_leave_a_server_that_answers() {
    let served = Served::new();
    let node = served.node("n1");
    let (kubernetes, rest) = (&["pods insecure", "ttl 30"], &["prometheus"]);
    let block = Block { port: SERVER.port(), zones: ZONES, kubernetes, rest };
    let names = block.start(&served, &node);
    let replies: usize = std::thread::scope(|scope| {
        let attack = |seed| {
            let node = &node;
            scope.spawn(move || node.in_namespace(|| attack(seed)))
        };
        let clients: Vec<_> = (0..CLIENTS as u64).map(attack).collect();
        clients.into_iter().map(|client| client.join().expect("answers")).sum()
    });
    let page = node.page("127.0.0.1", 9153, "/metrics").expect("figures").body;
    assert!(page.contains("coredns_panics_total 0"), "{page}");
    let log = names.process.log();
    assert!(names.process.is_running() && !log.contains("ERROR"), "{log}");
    let kernel = node.in_namespace(|| std::fs::read_to_string("/proc/thread-self/net/snmp").expect("its counters"));
    assert_eq!(counter(&kernel, "RcvbufErrors"), 0, "packets were lost before anybody read them:\n{kernel}");
    // Whatever was received in this namespace and is no reply, the server received.
    assert!(counter(&kernel, "InDatagrams") >= PACKETS + replies, "{replies} replies:\n{kernel}");
}
