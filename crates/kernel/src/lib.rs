//! Talking to the Linux kernel.
//!
//! Each port is a small synchronous trait with two implementations: `linux`, which speaks netlink, and `fake`, a kernel in
//! memory that refuses what the real one refuses. Values go in and values come out ([`nft::Batch`], [`conntrack::Flow`]), so
//! that everything above can be computed, compared and tested without a machine to change.
//!
//! No other crate opens a netlink socket or runs a program of the host; here only [`iptables`], [`host_names`] and [`process`] do. The system
//! calls are those that `rustix` makes safe; the few that nobody does are in [`socket`], [`datagrams`], [`memory`],
//! [`process::launch`], [`seccomp`] and `packets::raw`.

pub mod addresses;
pub mod cgroups;
pub mod conntrack;
pub mod datagrams;
pub mod host_names;
pub mod iptables;
pub mod ipvs;
pub mod links;
pub mod lock;
pub mod memory;
pub mod mounts;
pub mod namespace;
mod netlink;
pub mod nft;
pub mod packets;
pub mod pod_network;
pub mod ports;
pub mod privileges;
pub mod process;
pub mod seccomp;
pub mod socket;
pub mod sysctl;

use std::net::IpAddr;

pub use rustix::io::Errno;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

impl Family {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Ip, Self::Ip6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ip } else { Self::Ip6 }
    }

    /// How many bytes its addresses have.
    #[must_use]
    pub fn address_len(self) -> usize {
        match self {
            Self::Ip => 4,
            Self::Ip6 => 16,
        }
    }

    /// Its number in the socket and netfilter interfaces.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// The family with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.number() == number)
    }
}

/// The bytes of an address, as they are on the wire.
pub(crate) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address that these bytes are.
pub(crate) fn address_from(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// What the fuzzer calls: readers of bytes from the kernel.
pub mod fuzz {
    /// Reads bytes as every kind of answer that this crate understands. Must not panic, whatever they are.
    pub fn replies(bytes: &[u8]) {
        crate::nft::linux::read_anything(bytes);
        crate::conntrack::linux::read_anything(bytes);
        crate::addresses::linux::read_anything(bytes);
        crate::ipvs::linux::read_anything(bytes);
        crate::links::linux::read_anything(bytes);
        crate::pod_network::linux::read_anything(bytes);
        crate::packets::linux::read_anything(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_answer_makes_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            super::fuzz::replies(&bytes);
        }

        /// Bytes in the frame of a message, with attributes whose lengths are mostly true: these get further.
        #[test]
        fn no_message_makes_a_reader_panic(
            kind in 0u16..30,
            family in prop::sample::select(vec![2u8, 10, 0]),
            attributes in prop::collection::vec((0u16..26, prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..12),
        ) {
            let mut writer = super::netlink::Writer::default();
            writer.message(kind, 0, 0, |w| {
                w.raw(&[family, 0, 0, 0]);
                for (attribute, value, nested) in &attributes {
                    match nested {
                        true => w.nest(*attribute, |w| w.nest(1, |w| w.nest(1, |w| w.bytes(1, value)))),
                        false => w.bytes(*attribute, value),
                    }
                }
            });
            super::fuzz::replies(&writer.finish().expect("short enough"));
        }
    }
}
