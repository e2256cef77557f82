//! Source address checks: frames from a Pod's bridge port pass only with the addresses of that Pod.
//!
//! In: ports with their MAC and IP addresses. Out: an nftables table of the family `bridge`, whose rules are the same
//! for every Pod; a Pod is a few set elements. Checked are the sender of the frame, of ARP, IPv4 and IPv6, and the
//! target of neighbour advertisements, with which a Pod could attract the packets of others. Router advertisements,
//! redirects and frames other than ARP and IP are dropped. The bridge learns nothing from dropped frames.
//!
//! ```text
//! prerouting: port of a Pod? ─▶ pod: sender of the frame ─▶ ARP │ IPv4 │ IPv6: in the set with this port? accept, or drop
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use rustix::io::Errno;
use rustix::net::netlink;

use crate::address_bytes;
use crate::netlink::read::Meaning;
use crate::netlink::{Messages, Socket, Writer, flags};
use crate::nft::Verdict;
use crate::nft::linux::numbers::{LIST_ELEMENT, SUBSYSTEM, chain, data, element, message, rule, set, table};
use crate::nft::linux::rules::{self, FIRST, INTERFACE_NAME, compare, expression, lookup, meta};

use super::Port;

/// Table name.
pub const TABLE: &str = "waypost-pods";
/// Netfilter family number of bridges.
const BRIDGE: u8 = 7;
/// Priority before all other rules.
const PRIORITY: i32 = -300;

/// Set names, `nft` type numbers of their keys, and key lengths.
const PORTS: (&str, u32, u32) = ("ports", 41, 16);
const FRAMES: (&str, u32, u32) = ("frames", 41 << 6 | 9, 24);
const V4: (&str, u32, u32) = ("v4", 41 << 6 | 7, 20);
const V6: (&str, u32, u32) = ("v6", 41 << 6 | 8, 32);
/// Host byte order of interface names; concatenations have none.
const HOST_ORDER: u32 = 1;

/// Payload bases and `meta` keys.
const FRAME: u32 = 0;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
const INPUT_INTERFACE: u32 = 6;
const PROTOCOL: u32 = 16;
/// Register after an interface name.
const SECOND: u32 = FIRST + 4;
const EQUAL: u32 = 0;

/// ICMPv6 types.
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const LISTENER_REPORT: u8 = 143;

/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The table and its content.
pub(super) struct Guard {
    socket: Socket,
    ports: BTreeMap<String, Port>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not requested.
    Off,
    /// Requested.
    On,
    /// Not supported by the kernel.
    Impossible,
}

impl Guard {
    pub(super) fn open() -> Result<Self, Errno> {
        let socket = Socket::open(Some(netlink::NETFILTER), 0, RECEIVE_BUFFER)?;
        Ok(Self { socket, ports: BTreeMap::new(), state: State::Off })
    }

    /// Replaces the table in one transaction, without a gap. False when the kernel does not support it.
    pub(super) fn begin(&mut self, ports: &[Port]) -> Result<bool, Errno> {
        self.state = State::On;
        self.ports.extend(ports.iter().map(|port| (port.name.clone(), port.clone())));
        match self.write_all() {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::NOENT) => {
                self.state = State::Impossible;
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Allows a port to send with these addresses only.
    pub(super) fn add(&mut self, port: &Port) -> Result<(), Errno> {
        if self.state != State::On {
            return Ok(());
        }
        let old = self.ports.insert(port.name.clone(), port.clone()).filter(|old| old != port);
        let changes: Vec<(u16, &Port)> =
            old.iter().map(|old| (message::DELETE_ELEMENT, old)).chain([(message::NEW_ELEMENT, port)]).collect();
        match self.send(|batch| batch.elements(&changes)) {
            // Another program deleted the table.
            Err(Errno::NOENT) => self.write_all(),
            done => done,
        }
    }

    /// Removes a deleted port.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), Errno> {
        let Some(old) = self.ports.remove(name).filter(|_| self.state == State::On) else { return Ok(()) };
        match self.send(|batch| batch.elements(&[(message::DELETE_ELEMENT, &old)])) {
            Err(Errno::NOENT) => self.write_all(),
            done => done,
        }
    }

    fn write_all(&mut self) -> Result<(), Errno> {
        let ports = std::mem::take(&mut self.ports);
        let all: Vec<(u16, &Port)> = ports.values().map(|port| (message::NEW_ELEMENT, port)).collect();
        let written = self.send(|batch| {
            batch.whole();
            batch.elements(&all);
        });
        self.ports = ports;
        written
    }

    /// Sends changes as one transaction.
    fn send(&mut self, changes: impl FnOnce(&mut Batch)) -> Result<(), Errno> {
        let mut batch = Batch::default();
        changes(&mut batch);
        let first = self.socket.sequences(batch.count + 2);
        let (bytes, last) = batch.finish(first)?;
        self.socket.send(&bytes)?;
        let (mut done, mut failure) = (false, None);
        while let Some(datagram) = self.socket.receive()? {
            for message in Messages::new(datagram).filter(|message| (first..=last).contains(&message.sequence)) {
                match message.meaning() {
                    Meaning::Failure(errno) => _ = failure.get_or_insert(errno),
                    Meaning::End => done |= message.sequence == last,
                    Meaning::Content => {}
                }
            }
        }
        match failure {
            Some(errno) => Err(errno),
            None if done => Ok(()),
            None => Err(Errno::PROTO),
        }
    }
}

/// Removes the table; returns whether it existed.
///
/// # Errors
/// When it exists and cannot be removed.
pub fn remove_table() -> Result<bool, Errno> {
    let mut guard = Guard::open()?;
    match guard.send(|batch| batch.message(message::DELETE_TABLE, 0, |w| w.text(table::NAME, TABLE))) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Messages of one transaction.
#[derive(Default)]
struct Batch {
    bodies: Vec<(u16, u16, Writer)>,
    count: u32,
}

impl Batch {
    fn message(&mut self, kind: u16, extra: u16, body: impl FnOnce(&mut Writer)) {
        let mut writer = Writer::default();
        writer.raw(&[BRIDGE, 0, 0, 0]);
        body(&mut writer);
        self.bodies.push((kind, extra, writer));
        self.count += 1;
    }

    /// The messages, and the sequence number of the last change, which the kernel acknowledges.
    fn finish(self, first: u32) -> Result<(Vec<u8>, u32), Errno> {
        let [high, low] = SUBSYSTEM.to_be_bytes();
        let mut out = Writer::default();
        out.message(message::BATCH_BEGIN, flags::REQUEST, first, |w| w.raw(&[0, 0, high, low]));
        let last = first + self.count;
        for (sequence, (kind, extra, body)) in (first + 1..).zip(self.bodies) {
            let body = body.finish()?;
            let ack = if sequence == last { flags::ACK } else { 0 };
            out.message(SUBSYSTEM << 8 | kind, flags::REQUEST | extra | ack, sequence, |w| w.raw(&body));
        }
        out.message(message::BATCH_END, flags::REQUEST, last + 1, |w| w.raw(&[0, 0, high, low]));
        Ok((out.finish()?, last))
    }

    /// Replaces the table by one without ports.
    fn whole(&mut self) {
        let name = |w: &mut Writer| w.text(table::NAME, TABLE);
        self.message(message::NEW_TABLE, flags::CREATE, name);
        self.message(message::DELETE_TABLE, 0, name);
        self.message(message::NEW_TABLE, flags::CREATE, name);
        for (id, (name, kind, length)) in (1..).zip([PORTS, FRAMES, V4, V6]) {
            self.message(message::NEW_SET, flags::CREATE, |w| {
                w.text(set::TABLE, TABLE);
                w.text(set::NAME, name);
                w.be32(set::FLAGS, 0);
                w.be32(set::KEY_TYPE, kind);
                w.be32(set::KEY_LENGTH, length);
                w.be32(set::ID, id);
                let order = if name == PORTS.0 { HOST_ORDER } else { 0 };
                let [a, b, c, d] = order.to_ne_bytes();
                w.bytes(set::USER_DATA, &[0, 4, a, b, c, d]);
            });
        }
        self.chain("pod", false);
        self.chain("prerouting", true);
        self.rules();
    }

    fn chain(&mut self, name: &str, base: bool) {
        self.message(message::NEW_CHAIN, flags::CREATE, |w| {
            w.text(chain::TABLE, TABLE);
            w.text(chain::NAME, name);
            if base {
                w.nest(chain::HOOK, |w| {
                    w.be32(chain::HOOK_NUMBER, 0);
                    w.be32(chain::HOOK_PRIORITY, PRIORITY.cast_unsigned());
                });
                w.text(chain::TYPE, "filter");
            }
        });
    }

    fn rule(&mut self, chain: &str, verdict: &Verdict, matches: impl FnOnce(&mut Writer)) {
        self.message(message::NEW_RULE, flags::CREATE | flags::APPEND, |w| {
            w.text(rule::TABLE, TABLE);
            w.text(rule::CHAIN, chain);
            w.nest(rule::EXPRESSIONS, |w| {
                matches(w);
                if *verdict == Verdict::Drop {
                    // Counts forged frames for `nft list table bridge waypost-pods`.
                    expression(w, "counter", |_| ());
                }
                rules::go(w, verdict);
            });
        });
    }

    fn rules(&mut self) {
        let (accept, drop) = (&Verdict::Accept, &Verdict::Drop);
        self.rule("prerouting", &Verdict::Goto("pod".into()), |w| {
            meta(w, INPUT_INTERFACE);
            lookup(w, PORTS.0, None, false);
        });
        self.rule("pod", drop, |w| with_port(w, FRAMES, (FRAME, 6, 6), true));
        self.rule("pod", accept, |w| {
            ether_type(w, [8, 0]);
            with_port(w, V4, (NETWORK, 12, 4), false);
        });
        self.rule("pod", accept, |w| {
            ether_type(w, [8, 6]);
            // Ethernet and IPv4, with address lengths 6 and 4.
            payload(w, FIRST, (NETWORK, 0, 6));
            compare(w, EQUAL, &[0, 1, 8, 0, 6, 4]);
            with_port(w, FRAMES, (NETWORK, 8, 6), false);
            with_port(w, V4, (NETWORK, 14, 4), false);
        });
        for kind in [ROUTER_ADVERTISEMENT, REDIRECT] {
            self.rule("pod", drop, |w| icmp6(w, kind));
        }
        self.rule("pod", drop, |w| {
            icmp6(w, NEIGHBOUR_ADVERTISEMENT);
            with_port(w, V6, (TRANSPORT, 8, 16), true);
        });
        self.rule("pod", accept, |w| {
            ether_type(w, [0x86, 0xdd]);
            with_port(w, V6, (NETWORK, 8, 16), false);
        });
        // Duplicate address detection and multicast reports come from the unspecified address.
        for kind in [NEIGHBOUR_SOLICITATION, LISTENER_REPORT] {
            self.rule("pod", accept, |w| {
                ether_type(w, [0x86, 0xdd]);
                payload(w, FIRST, (NETWORK, 8, 16));
                compare(w, EQUAL, &[0; 16]);
                icmp6_kind(w, kind);
            });
        }
        self.rule("pod", drop, |_| ());
    }

    fn elements(&mut self, changes: &[(u16, &Port)]) {
        for (kind, port) in changes {
            let extra = if *kind == message::NEW_ELEMENT { flags::CREATE } else { 0 };
            for (set, keys) in keys(port).into_iter().filter(|(_, keys)| !keys.is_empty()) {
                self.message(*kind, extra, |w| {
                    w.text(element::TABLE, TABLE);
                    w.text(element::SET, set);
                    w.nest(element::ELEMENTS, |w| {
                        for key in keys {
                            w.nest(LIST_ELEMENT, |w| w.nest(element::KEY, |w| w.bytes(data::VALUE, &key)));
                        }
                    });
                });
            }
        }
    }
}

/// Elements of a port, by set.
fn keys(port: &Port) -> [(&'static str, Vec<Vec<u8>>); 4] {
    let mut name = port.name.as_bytes().to_vec();
    name.resize(INTERFACE_NAME, 0);
    let with = |more: &[u8]| {
        let mut key = name.clone();
        key.extend_from_slice(more);
        key.resize(key.len().next_multiple_of(4), 0);
        key
    };
    let of = |v4: bool| port.addresses.iter().filter(move |ip| ip.is_ipv4() == v4).map(|ip| with(&address_bytes(*ip)));
    let own = with(&link_local(port.hardware).octets());
    [
        (PORTS.0, vec![name.clone()]),
        (FRAMES.0, vec![with(&port.hardware)]),
        (V4.0, of(true).collect()),
        (V6.0, of(false).chain([own]).collect()),
    ]
}

/// The link-local address of a MAC address (EUI-64).
fn link_local(hardware: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = hardware;
    let IpAddr::V6(ip) = IpAddr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]) else {
        return Ipv6Addr::UNSPECIFIED;
    };
    ip
}

fn payload(w: &mut Writer, register: u32, (base, offset, length): (u32, u32, u32)) {
    expression(w, "payload", |w| {
        w.be32(1, register);
        w.be32(2, base);
        w.be32(3, offset);
        w.be32(4, length);
    });
}

/// Matches port and frame field in a set.
fn with_port(w: &mut Writer, (set, _, _): (&str, u32, u32), part: (u32, u32, u32), negate: bool) {
    meta(w, INPUT_INTERFACE);
    payload(w, SECOND, part);
    lookup(w, set, None, negate);
}

fn ether_type(w: &mut Writer, kind: [u8; 2]) {
    payload(w, FIRST, (FRAME, 12, 2));
    compare(w, EQUAL, &kind);
}

fn icmp6(w: &mut Writer, kind: u8) {
    ether_type(w, [0x86, 0xdd]);
    icmp6_kind(w, kind);
}

fn icmp6_kind(w: &mut Writer, kind: u8) {
    meta(w, PROTOCOL);
    compare(w, EQUAL, &[58]);
    payload(w, FIRST, (TRANSPORT, 0, 1));
    compare(w, EQUAL, &[kind]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_local_address_is_derived_from_the_mac() {
        let ip = link_local([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]);
        assert_eq!(ip, "fe80::5054:ff:fe12:3456".parse::<Ipv6Addr>().expect("an address"));
    }
}
