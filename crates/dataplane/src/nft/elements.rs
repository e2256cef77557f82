//! Builds set keys and values from plan types.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::nft::Part::{self, Address, Port, Random};
use kernel::nft::{Key, Value};
use plan::{Backend, Protocol};

fn number(protocol: Protocol) -> Part {
    Part::Protocol(protocol.number())
}

/// Key of an address.
pub(crate) fn address_key(ip: IpAddr) -> Key {
    Key::new(&[Address(ip)])
}

/// Key of an address range.
pub(super) fn range_key(range: &IpNet) -> Key {
    Key::range(&[Address(range.network())], &[Address(range.broadcast())])
}

/// Key of an address, protocol and port.
pub(super) fn frontend_key(ip: IpAddr, protocol: Protocol, port: u16) -> Key {
    Key::new(&[Address(ip), number(protocol), Port(port)])
}

/// Key of an endpoint slot of a frontend.
pub(super) fn slot_key(ip: IpAddr, protocol: Protocol, port: u16, slot: u32) -> Key {
    Key::new(&[Address(ip), number(protocol), Port(port), Random(slot)])
}

/// Key of a protocol and port.
pub(super) fn node_port_key(protocol: Protocol, port: u16) -> Key {
    Key::new(&[number(protocol), Port(port)])
}

/// Key of an endpoint slot of a node port.
pub(super) fn node_port_slot_key(protocol: Protocol, port: u16, slot: u32) -> Key {
    Key::new(&[number(protocol), Port(port), Random(slot)])
}

/// Key of a frontend and an allowed source range.
pub(super) fn allowed_key(ip: IpAddr, protocol: Protocol, port: u16, sources: &IpNet) -> Key {
    let of = |source| [Address(ip), number(protocol), Port(port), Address(source)];
    Key::range(&of(sources.network()), &of(sources.broadcast()))
}

/// Key of hairpin traffic: an endpoint that connects to itself.
pub(super) fn hairpin_key(backend: Backend, protocol: Protocol) -> Key {
    Key::new(&[Address(backend.ip), Address(backend.ip), number(protocol), Port(backend.port)])
}

/// Key of a slot alone.
pub(super) fn pick_key(slot: u32) -> Key {
    Key::new(&[Random(slot)])
}

/// Endpoint address and port as a map value.
pub(super) fn target(backend: Backend) -> Value {
    Value::data(&[Address(backend.ip), Port(backend.port)])
}
