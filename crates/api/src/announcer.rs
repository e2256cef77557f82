//! Names of the Leases of announcers: those of nodes that announce addresses, and those of the addresses.
//!
//! In: a node or an address. Out: a name, and back. Announcers hold these Leases, a controller removes leftovers, and users read from
//! them which node responds for an address.

use std::net::IpAddr;

/// Where the Leases are.
pub const NAMESPACE: &str = "kube-system";
/// Their label.
pub const LABEL: &str = "waypost.dev/announcer";
/// The annotation that names the life of a node in which a Lease was got.
pub const LIFE: &str = "waypost.dev/life";
const NODE_PREFIX: &str = "waypost-announcer-";
const ADDRESS_PREFIX: &str = "waypost-address-";

/// Which Lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// That of a node.
    Node(Box<str>),
    /// That of an address.
    Address(IpAddr),
}

impl Key {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Node(node) => format!("{NODE_PREFIX}{node}"),
            Self::Address(ip) => {
                // A name ends with a letter or a digit, and so does an address, but for `::`.
                let text = ip.to_string().replace(':', "-");
                format!("{ADDRESS_PREFIX}{text}{}", if text.ends_with('-') { "0" } else { "" })
            }
        }
    }

    /// The Lease of this name, if it is one of ours.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if let Some(node) = name.strip_prefix(NODE_PREFIX) {
            return Some(Self::Node(node.into()));
        }
        let text = name.strip_prefix(ADDRESS_PREFIX)?;
        let ip = text.parse().or_else(|_| text.replace('-', ":").parse()).ok()?;
        Some(Self::Address(ip))
    }

    /// The value of its label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Address(_) => "address",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_name_that_can_be_read_back() {
        for text in ["192.0.2.7", "2001:db8::7", "2001:db8::", "fd00:1:2:3:4:5:6:7"] {
            let key = Key::Address(text.parse().expect("an address"));
            let name = key.name();
            assert!(crate::names::name_is_subdomain(&name, false).is_empty(), "{name}");
            let Some(Key::Address(back)) = Key::named(&name) else { panic!("{name}") };
            assert_eq!(back.to_string(), text);
        }
        assert_eq!(Key::named("waypost-announcer-n1"), Some(Key::Node("n1".into())));
        assert_eq!(Key::named("waypost-controllers"), None);
    }
}
