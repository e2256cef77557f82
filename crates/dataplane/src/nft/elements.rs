//! Keys and values of elements, from what the plan calls things to what sets are made of.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::nft::Part::{self, Address, Port, Random};
use kernel::nft::{Key, Value};
use plan::{Backend, Protocol};

fn number(protocol: Protocol) -> Part {
    Part::Protocol(protocol.number())
}

/// An address.
pub(crate) fn address_key(ip: IpAddr) -> Key {
    Key::new(&[Address(ip)])
}

/// A range of addresses.
pub(super) fn range_key(range: &IpNet) -> Key {
    Key::range(&[Address(range.network())], &[Address(range.broadcast())])
}

/// An address, a protocol and a port.
pub(super) fn frontend_key(ip: IpAddr, protocol: Protocol, port: u16) -> Key {
    Key::new(&[Address(ip), number(protocol), Port(port)])
}

/// A slot behind a frontend.
pub(super) fn slot_key(ip: IpAddr, protocol: Protocol, port: u16, slot: u32) -> Key {
    Key::new(&[Address(ip), number(protocol), Port(port), Random(slot)])
}

/// A protocol and a port.
pub(super) fn node_port_key(protocol: Protocol, port: u16) -> Key {
    Key::new(&[number(protocol), Port(port)])
}

/// A slot behind a node port.
pub(super) fn node_port_slot_key(protocol: Protocol, port: u16, slot: u32) -> Key {
    Key::new(&[number(protocol), Port(port), Random(slot)])
}

/// A frontend, and the addresses that may use it.
pub(super) fn allowed_key(ip: IpAddr, protocol: Protocol, port: u16, sources: &IpNet) -> Key {
    let of = |source| [Address(ip), number(protocol), Port(port), Address(source)];
    Key::range(&of(sources.network()), &of(sources.broadcast()))
}

/// An endpoint that meets itself.
pub(super) fn hairpin_key(backend: Backend, protocol: Protocol) -> Key {
    Key::new(&[Address(backend.ip), Address(backend.ip), number(protocol), Port(backend.port)])
}

/// A slot alone.
pub(super) fn pick_key(slot: u32) -> Key {
    Key::new(&[Random(slot)])
}

/// Where to.
pub(super) fn target(backend: Backend) -> Value {
    Value::data(&[Address(backend.ip), Port(backend.port)])
}
