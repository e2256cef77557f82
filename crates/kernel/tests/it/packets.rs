//! Frames on real interfaces: the list of interfaces, received frames, and the waker.

use std::net::Ipv6Addr;
use std::time::Duration;

use kernel::packets::linux::Linux;
use kernel::packets::{Interface, Mac, Packets as _, Received};

use crate::namespace::Namespace;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A veth pair, a bridge with a port, and an excluded bridge.
fn machine() -> (Namespace, Linux) {
    let namespace = Namespace::new();
    for line in [
        "link add left type veth peer name right",
        "link add part type veth peer name beyond",
        "link add bridge type bridge",
        "link add pods type bridge",
        "link set part master bridge",
        "address add 192.0.2.1/24 dev left",
        "address add 2001:db8::1/64 dev right nodad",
        "link set left up",
        "link set right up",
        "link set part up",
        "link set bridge up",
        "link set pods up",
    ] {
        namespace.tool("ip", &line.split(' ').collect::<Vec<_>>());
    }
    let packets = namespace.inside(|| Linux::open(vec!["pods".to_owned()]).expect("sockets"));
    (namespace, packets)
}

fn named<'a>(all: &'a [Interface], name: &str) -> &'a Interface {
    all.iter().find(|interface| &*interface.name == name).unwrap_or_else(|| panic!("{name} is not among {all:?}"))
}

/// The next frame on an interface with this prefix.
fn heard(packets: &mut Linux, interface: u32, begins: &[u8]) -> bool {
    loop {
        match packets.receive(Some(TIMEOUT)).expect("heard") {
            Received::Frame(on, frame) if on == interface && frame.starts_with(begins) => return true,
            Received::Frame(..) | Received::Woken => {}
            Received::Timeout => return false,
        }
    }
}

#[test]
fn interfaces_are_those_with_neighbours() {
    let (_namespace, mut packets) = machine();
    let all = packets.interfaces().expect("listed");
    let mut names: Vec<&str> = all.iter().map(|interface| &*interface.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["bridge", "left", "right"],
        "not the loop, not a part, not one that is down, not one that is left out"
    );
    let (left, right) = (named(&all, "left"), named(&all, "right"));
    assert!(left.v4 && right.v6 && !right.v4);
    assert_ne!(left.mac, right.mac);
}

#[test]
fn frames_are_sent_and_received_and_the_waker_ends_waiting() {
    let (_namespace, mut packets) = machine();
    let all = packets.interfaces().expect("listed");
    let (left, right) = (named(&all, "left").clone(), named(&all, "right").clone());
    let question = [&Mac::BROADCAST.0[..], &left.mac.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[0; 20]].concat();
    packets.send(left.index, &question).expect("sent");
    assert!(heard(&mut packets, right.index, &question), "by ARP");
    let group: Ipv6Addr = "ff02::1:ff00:7".parse().expect("a group");
    packets.join(right.index, group).expect("joined");
    packets.join(right.index, group).expect("joined already");
    // A solicitation passes the filter; an echo request does not.
    let head = |kind: u8| {
        let start = [&Mac::of_group(group).0[..], &left.mac.0, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]].concat();
        [&start[..], &[0xfe; 16], &group.octets(), &[kind], &[0; 23]].concat()
    };
    packets.send(left.index, &head(128)).expect("sent");
    packets.send(left.index, &head(135)).expect("sent");
    assert!(heard(&mut packets, right.index, &head(135)), "by neighbour discovery");
    packets.leave(right.index, group).expect("left");
    let waker = packets.waker();
    waker.wake();
    while packets.receive(Some(TIMEOUT)).expect("heard") != Received::Woken {}
    assert!(packets.send(9999, &question).is_err(), "there is no such wire");
}
