//! Interfaces to the Linux kernel.
//!
//! Each port is a small synchronous trait with two implementations: `linux`, usually over netlink, and `fake`, a kernel
//! in memory that fails like the real one. Inputs and outputs are values ([`nft::Batch`], [`conntrack::Flow`]), so that
//! callers can be tested without changing a machine.
//!
//! No other crate opens a netlink socket or runs a program of the host; here only [`iptables`], [`host_names`] and
//! [`process`] run programs. System calls go through `rustix`; those it does not offer are in [`socket`],
//! [`datagrams`], [`memory`], [`process::launch`], [`seccomp`] and `packets::raw`.

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
pub mod user_namespace;

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
    /// Both families.
    pub const ALL: [Self; 2] = [Self::Ip, Self::Ip6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ip } else { Self::Ip6 }
    }

    /// Length of its addresses in bytes.
    #[must_use]
    pub fn address_len(self) -> usize {
        match self {
            Self::Ip => 4,
            Self::Ip6 => 16,
        }
    }

    /// `AF_*` number.
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

/// The bytes of an address in network order.
pub(crate) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address of these bytes.
pub(crate) fn address_from(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Entry points of the fuzzer: parsers of kernel messages.
#[cfg(any(test, fuzzing))]
pub mod fuzz {
    /// Parses bytes as every kind of message of this crate. Must not panic.
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
        fn parsers_do_not_panic_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            super::fuzz::replies(&bytes);
        }

        /// Random attributes in a valid message frame, to get deeper into the parsers.
        #[test]
        fn parsers_do_not_panic_on_random_messages(
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
