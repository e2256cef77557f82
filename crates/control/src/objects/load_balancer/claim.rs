//! Claims on load balancer addresses: one store entry per address.
//!
//! A claim is written in the same transaction as the status that shows the address, with a compare of its revision. So an address cannot be assigned
//! twice, and after a crash both exist or neither.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{Entry, Key, Table};

use crate::write::Write;

/// The table of the entries.
pub(crate) const TABLE: &str = "loadbalancers/claims";

/// The entry of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// Its revision.
    pub modified: u64,
    /// The Services that use it; several share it.
    pub owners: Vec<Owner>,
}

/// A Service that has an address.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Owner {
    /// Its key.
    pub service: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its ports: `TCP/80`.
    pub ports: BTreeSet<Box<str>>,
    /// The sharing key; empty when it does not share.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub sharing: Box<str>,
    /// Must be equal for Services that share an address: the selector, for externalTrafficPolicy Local.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub backend: Box<str>,
    /// Whether the address is a node's own, which Services share by port.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_node: bool,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Stored {
    owners: Vec<Owner>,
}

impl Claim {
    /// Reads an entry; `None` when its key is not an address.
    #[must_use]
    pub fn read(entry: &Entry) -> Option<Self> {
        let address = entry.key.name.parse().ok()?;
        let Stored { owners } = crate::objects::read(&entry.value);
        Some(Self { address, modified: entry.modified, owners })
    }

    /// Why a Service cannot use this address together with its owners, as a predicate of the address.
    pub(crate) fn refusal(&self, me: &Owner) -> Option<String> {
        self.owners.iter().filter(|other| other.service != me.service).find_map(|other| {
            let name = &other.service;
            if let Some(port) = other.ports.intersection(&me.ports).next() {
                return Some(format!("is used by Service {name} on port {port}"));
            }
            if other.of_node && me.of_node {
                return None;
            }
            if me.sharing.is_empty() || other.sharing != me.sharing {
                let mut why = format!("is used by Service {name}");
                let hint = "the annotation waypost.dev/sharing-key with the same value on both lets them share it";
                let _ = write!(why, " ({hint})");
                return Some(why);
            }
            let apart = other.backend != me.backend;
            apart.then(|| {
                format!("is shared by Service {name}, which selects other Pods: with externalTrafficPolicy Local both must select the same")
            })
        })
    }
}

/// The key of an address.
pub(crate) fn key(address: IpAddr) -> Key {
    Key { table: Table::named(TABLE), name: address.to_string().into() }
}

/// The write that sets the owners of an address; `None` when nothing changes.
pub(crate) fn write(address: IpAddr, before: Option<&Claim>, owners: Vec<Owner>) -> Option<Write> {
    let (had, modified) = before.map_or((&[][..], 0), |claim| (&claim.owners[..], claim.modified));
    if had == owners {
        return None;
    }
    if owners.is_empty() {
        return Some(Write::Delete { key: key(address), modified, propagation: None });
    }
    let value = serde_json::to_vec(&Stored { owners }).map(Bytes::from).unwrap_or_default();
    Some(Write::Raw { key: key(address), value, modified })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(service: &str, port: &str, sharing: &str, backend: &str) -> Owner {
        let (service, ports) = (service.into(), [port.into()].into());
        Owner { uid: "u".into(), sharing: sharing.into(), backend: backend.into(), service, ports, of_node: false }
    }

    fn claim(owners: Vec<Owner>) -> Claim {
        Claim { address: "192.0.2.1".parse().expect("an address"), modified: 7, owners }
    }

    #[test]
    fn addresses_are_shared_with_the_same_key_and_selector() {
        let held = claim(vec![owner("a/one", "TCP/80", "k", "")]);
        let refusal = |me: &Owner| held.refusal(me).unwrap_or_default();
        assert_eq!(refusal(&owner("a/two", "UDP/80", "k", "")), "");
        assert_eq!(refusal(&owner("a/one", "TCP/80", "", "x")), "", "its own");
        assert_eq!(refusal(&owner("a/two", "TCP/80", "k", "")), "is used by Service a/one on port TCP/80");
        assert!(
            refusal(&owner("a/two", "TCP/81", "other", "")).starts_with("is used by Service a/one (the annotation")
        );
        assert!(refusal(&owner("a/two", "TCP/81", "", "")).contains("waypost.dev/sharing-key"));
        assert!(refusal(&owner("a/two", "TCP/81", "k", "app=x")).contains("selects other Pods"));
    }

    #[test]
    fn a_nodes_own_address_is_shared_port_by_port() {
        let of_node = |service: &str, port: &str| Owner { of_node: true, ..owner(service, port, "", "") };
        let held = claim(vec![of_node("a/one", "TCP/80")]);
        assert_eq!(held.refusal(&of_node("a/two", "TCP/81")), None);
        assert!(held.refusal(&of_node("a/two", "TCP/80")).is_some());
        assert!(
            held.refusal(&owner("a/two", "TCP/81", "", "")).is_some(),
            "an address of a pool is not shared by port"
        );
    }

    #[test]
    fn entries_are_written_only_when_something_changes() {
        let mine = owner("a/one", "TCP/80", "", "");
        let held = claim(vec![mine.clone()]);
        assert_eq!(write(held.address, Some(&held), vec![mine.clone()]), None);
        assert!(matches!(write(held.address, None, vec![mine]), Some(Write::Raw { modified: 0, .. })));
        assert!(matches!(write(held.address, Some(&held), Vec::new()), Some(Write::Delete { modified: 7, .. })));
        assert_eq!(write(held.address, None, Vec::new()), None);
    }
}
