//! What controllers look at: the tables they care about, all as of one revision.

use std::collections::BTreeMap;

use api::object;
use serde_json::Value;
use store::allocation::{self, Ranges};
use store::{Compacted, Store, Table};

/// An object and the revision it was written at.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    /// The object, as stored.
    pub object: Value,
    /// When it was written.
    pub modified: u64,
}

/// Everything that allocation is about, as of one revision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// Services by `namespace/name`.
    pub services: BTreeMap<String, Seen>,
    /// `IPAddress` objects by name.
    pub addresses: BTreeMap<String, Seen>,
    /// `ServiceCIDR` objects by name.
    pub cidrs: BTreeMap<String, Seen>,
    /// Node ports: the `namespace/name` of the Service that holds each.
    pub ports: BTreeMap<u16, (String, u64)>,
    /// Whether node ports may be allocated at all.
    pub port_map: bool,
}

impl Snapshot {
    /// Reads a snapshot.
    ///
    /// # Errors
    /// When the revision is forgotten while it is read.
    pub fn take(store: &dyn Store) -> Result<Self, Compacted> {
        let at = store.revision();
        let objects = |table: &str| -> Result<BTreeMap<String, Seen>, Compacted> {
            let range = store.range(Table::named(table), "", Some(at))?;
            Ok(range
                .entries
                .iter()
                .map(|entry| {
                    let seen = Seen { object: object::decode_bare(&entry.value), modified: entry.modified };
                    (entry.key.name.to_string(), seen)
                })
                .collect())
        };
        let ports = store.range(Table::named("nodeports"), "", Some(at))?;
        let held = ports.entries.iter().filter_map(|entry| {
            let owner = allocation::port_owner(&entry.value).unwrap_or_default();
            Some((entry.key.name.parse().ok()?, (owner, entry.modified)))
        });
        let map_key = allocation::port_map_key();
        let maps = store.range(map_key.table, "", Some(at))?;
        Ok(Self {
            services: objects("services/specs")?,
            addresses: objects("ipaddresses")?,
            cidrs: objects("servicecidrs")?,
            ports: held.collect(),
            port_map: maps.entries.iter().any(|entry| entry.key == map_key),
        })
    }
}

/// What controllers need to know besides objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<'a> {
    /// What the command line gives to Services.
    pub ranges: &'a Ranges,
    /// The time, as objects write it.
    pub now: &'a str,
}
