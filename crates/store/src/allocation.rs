//! Allocation of Service addresses and node ports, as entries of the store.
//!
//! In: the claims of a request. Out: compares and writes for the transaction of the Service, so that an address or port is allocated
//! exactly when its Service is stored. An address is allocated by its `IPAddress` object, a port by an entry that names its
//! Service; the condition that the key does not exist prevents two Services from sharing one. There is no bitmap: a search
//! for a free one probes the keys in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use api::claims::{ClaimError, Claims};
use api::facts::Facts;
use api::field::quote;
use api::ip::Family;
use api::node_port_range::NodePortRange;
use api::object;
use api::value::ValueExt as _;
use api::view::labels::IP_ADDRESS_MANAGED_BY;
use api::{kinds, names};
use bytes::Bytes;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::node_port_ranges::NodePortRanges;
use crate::{Compare, Key, Op, Store, Table, Txn};

/// The configured ranges of Service addresses and node ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// Address ranges from the command line, primary first: at most one of each family.
    pub addresses: Vec<IpNet>,
    /// Node ports.
    pub ports: RangeInclusive<u16>,
}

impl Ranges {
    /// The configured families, primary first.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        self.addresses.iter().map(|range| Family::of(range.addr())).collect()
    }

    /// The first usable address of the primary range, which the `kubernetes` Service has.
    #[must_use]
    pub fn first_address(&self) -> Option<IpAddr> {
        self.addresses.first().map(|range| Band::of(range).address(0))
    }

    /// `30000-32767`.
    #[must_use]
    pub fn ports_text(&self) -> String {
        format!("{}-{}", self.ports.start(), self.ports.end())
    }
}

/// The key of the `IPAddress` object of an address.
#[must_use]
pub fn address_key(address: IpAddr) -> Key {
    Key { table: Table::named("ipaddresses"), name: address.to_string().into() }
}

/// The key of the entry of a node port.
#[must_use]
pub fn port_key(port: u16) -> Key {
    Key { table: Table::named("nodeports"), name: port.to_string().into() }
}

/// The key that must exist before node ports can be allocated.
#[must_use]
pub fn port_map_key() -> Key {
    Key { table: Table::named("ranges"), name: "servicenodeports".into() }
}

/// The value of the entry of a node port: the Service that holds it.
#[must_use]
pub fn port_owner_value(namespace: &str, name: &str) -> Bytes {
    Bytes::from(json!({"service": format!("{namespace}/{name}")}).to_string())
}

/// The `namespace/name` of the Service that holds a node port.
#[must_use]
pub fn port_owner(value: &[u8]) -> Option<String> {
    let entry: Value = serde_json::from_slice(value).ok()?;
    entry["service"].as_str().map(str::to_owned)
}

/// The `IPAddress` object that holds an address for a Service.
#[must_use]
pub fn address_object(address: IpAddr, namespace: &str, name: &str, uid: &str, now: &str) -> Value {
    json!({
        "metadata": {
            "name": address.to_string(), "uid": uid, "creationTimestamp": now,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": Family::of(address).as_str(),
                IP_ADDRESS_MANAGED_BY: "ipallocator.k8s.io",
            },
            "managedFields": [{
                "manager": "kube-apiserver", "operation": "Update", "apiVersion": "networking.k8s.io/v1", "time": now,
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {".": {}, "f:ipaddress.kubernetes.io/ip-family": {},
                                                "f:ipaddress.kubernetes.io/managed-by": {}}},
                    "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
                },
            }],
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    })
}

/// A write that stores an `IPAddress` object.
///
/// # Panics
/// Never: the kind is in our own table.
#[must_use]
pub fn put_address(address: IpAddr, object: &Value) -> Op {
    let kind = kinds::by_table("ipaddresses").expect("IPAddress is a kind of ours");
    Op::Put { key: address_key(address), value: object::encode(object), facts: Arc::new(kind.facts(object)), ttl: None }
}

/// The ranges of all ServiceCIDR objects that are ready and not being deleted.
#[must_use]
pub fn ready_ranges(store: &dyn Store) -> Vec<IpNet> {
    let Ok(found) = store.range(Table::named("servicecidrs"), "", None) else { return Vec::new() };
    let mut out = Vec::new();
    for entry in &found.entries {
        let object = object::decode_light(&entry.value);
        let ready = object.items("status.conditions").iter().find(|condition| condition.text("type") == "Ready");
        let usable = ready.is_none_or(|condition| condition.text("status") == "True");
        if usable && !object.has("metadata.deletionTimestamp") {
            out.extend(object.texts("spec.cidrs").iter().filter_map(|text| text.parse::<IpNet>().ok()));
        }
    }
    out
}

/// Claims for one Service, collected in a transaction.
pub struct TxnClaims<'a> {
    store: &'a dyn Store,
    ranges: &'a Ranges,
    families: Vec<Family>,
    owner: (String, String),
    now: &'a str,
    uid: &'a dyn Fn() -> String,
    /// Node ports of namespaces; read with the first claim that depends on them.
    reserved: Option<NodePortRanges>,
    txn: Txn,
}

impl<'a> TxnClaims<'a> {
    /// No claims, for the Service `namespace/name`.
    #[must_use]
    pub fn new(
        store: &'a dyn Store,
        ranges: &'a Ranges,
        owner: (&str, &str),
        now: &'a str,
        uid: &'a dyn Fn() -> String,
    ) -> Self {
        let owner = (owner.0.to_owned(), owner.1.to_owned());
        Self { store, ranges, families: ranges.families(), owner, now, uid, reserved: None, txn: Txn::default() }
    }

    /// The transaction of all claims.
    #[must_use]
    pub fn into_txn(self) -> Txn {
        let Self { mut txn, reserved, .. } = self;
        if let Some(reserved) = reserved {
            reserved.add_to(&mut txn);
        }
        txn
    }

    fn reserved(&mut self) -> &mut NodePortRanges {
        let store = self.store;
        self.reserved.get_or_insert_with(|| NodePortRanges::read(store))
    }

    fn is_free(&self, key: &Key) -> bool {
        self.store.get(key).is_none() && !self.txn.compares.iter().any(|compare| compare.key == *key)
    }

    fn claim(&mut self, key: Key, op: Op) {
        self.txn.compares.push(Compare { key, modified: 0 });
        self.txn.ops.push(op);
    }

    /// Deletes an entry, on condition that it does not change meanwhile. A claim of this transaction is removed from it.
    fn release(&mut self, key: Key) {
        if let Some(index) = self.txn.compares.iter().position(|compare| compare.key == key) {
            self.txn.compares.remove(index);
            self.txn.ops.remove(index);
        } else if let Some(entry) = self.store.get(&key) {
            self.txn.compares.push(Compare { key: key.clone(), modified: entry.modified });
            self.txn.ops.push(Op::Delete { key });
        }
    }
}

impl Claims for TxnClaims<'_> {
    fn families(&self) -> &[Family] {
        &self.families
    }

    fn claim_address(
        &mut self,
        family: Family,
        wanted: Option<IpAddr>,
        namespace: &str,
        name: &str,
    ) -> Result<IpAddr, ClaimError> {
        let refused = owner_problem(name);
        let ready = ready_ranges(self.store);
        let mut ranges = ready.iter().filter(|range| Family::of(range.addr()) == family);
        let address = match wanted {
            Some(address) => {
                if !ranges.any(|range| Band::of(range).position(address).is_some()) {
                    return Err(ClaimError::NoSuchRange);
                }
                if refused.is_none() && !self.is_free(&address_key(address)) {
                    return Err(ClaimError::AddressTaken);
                }
                address
            }
            None => ranges
                .find_map(|range| Band::of(range).pick(&|address| self.is_free(&address_key(address))))
                .ok_or(ClaimError::Full)?,
        };
        if let Some(why) = refused {
            return Err(ClaimError::OwnerRefused { address, why });
        }
        let object = address_object(address, namespace, name, &(self.uid)(), self.now);
        self.claim(address_key(address), put_address(address, &object));
        Ok(address)
    }

    fn release_address(&mut self, address: IpAddr) {
        self.release(address_key(address));
    }

    fn claim_port(&mut self, wanted: Option<u16>) -> Result<u16, ClaimError> {
        if self.store.get(&port_map_key()).is_none() {
            return Err(ClaimError::NoMap("servicenodeportallocations"));
        }
        let namespace = self.owner.0.clone();
        let all = &self.ranges.ports;
        if let Some(port) = wanted {
            if !all.contains(&port) {
                return Err(ClaimError::PortOutOfRange(self.ranges.ports_text()));
            }
            if let Some(refused) = self.reserved().refusal(&namespace, port) {
                return Err(refused);
            }
            if !self.is_free(&port_key(port)) {
                return Err(ClaimError::PortTaken);
            }
        }
        let ports = self.reserved().ports(&namespace, all);
        let reserved = NodePortRanges::clone(self.reserved());
        let is_free = |port| reserved.refusal(&namespace, port).is_none() && self.is_free(&port_key(port));
        let port = wanted.or_else(|| pick_port(&ports, &is_free)).ok_or(ClaimError::Full)?;
        let value = port_owner_value(&self.owner.0, &self.owner.1);
        let key = port_key(port);
        self.claim(key.clone(), Op::Put { key, value, facts: Arc::new(Facts::default()), ttl: None });
        Ok(port)
    }

    fn release_port(&mut self, port: u16) {
        self.release(port_key(port));
    }

    fn reserve_ports(&mut self, namespace: &str, range: Option<NodePortRange>) -> Result<(), ClaimError> {
        let all = self.ranges.ports.clone();
        self.reserved().set(namespace, range, &all)
    }
}

/// Why an allocation cannot refer to an owner of this name.
fn owner_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("Required value".to_owned());
    }
    let wrong = names::name_is_path_segment(name, false);
    wrong.first().map(|why| format!("Invalid value: {}: {why}", quote(name)))
}

/// Claims of a dry run: nothing is allocated, and automatic choices return the placeholders of kube-apiserver.
pub struct DryRunClaims<'a> {
    store: &'a dyn Store,
    families: Vec<Family>,
    namespace: String,
    ports: RangeInclusive<u16>,
    reserved: NodePortRanges,
    claimed: Vec<u16>,
    next_port: u16,
}

impl<'a> DryRunClaims<'a> {
    /// No claims, for a Service of this namespace.
    #[must_use]
    pub fn new(store: &'a dyn Store, ranges: &Ranges, namespace: &str) -> Self {
        let next_port = ranges.ports.end().saturating_add(2);
        let (ports, reserved) = (ranges.ports.clone(), NodePortRanges::read(store));
        let (families, namespace) = (ranges.families(), namespace.to_owned());
        Self { store, families, namespace, ports, reserved, claimed: Vec::new(), next_port }
    }
}

impl Claims for DryRunClaims<'_> {
    fn families(&self) -> &[Family] {
        &self.families
    }

    fn claim_address(
        &mut self,
        family: Family,
        wanted: Option<IpAddr>,
        _namespace: &str,
        _name: &str,
    ) -> Result<IpAddr, ClaimError> {
        let ready = ready_ranges(self.store);
        let range = ready.iter().find(|range| Family::of(range.addr()) == family).ok_or(ClaimError::Full)?;
        match wanted {
            Some(address) if Band::of(range).position(address).is_none() => {
                Err(ClaimError::AddressOutOfRange { address, range: range.to_string() })
            }
            Some(address) => Ok(address),
            None => Ok(range.network()),
        }
    }

    fn release_address(&mut self, _address: IpAddr) {}

    fn claim_port(&mut self, wanted: Option<u16>) -> Result<u16, ClaimError> {
        match wanted {
            Some(port) if self.store.get(&port_key(port)).is_some() || self.claimed.contains(&port) => {
                Err(ClaimError::PortTaken)
            }
            Some(port) => {
                if let Some(refused) = self.reserved.refusal(&self.namespace, port) {
                    return Err(refused);
                }
                self.claimed.push(port);
                Ok(port)
            }
            None => {
                let port = self.next_port;
                self.next_port = port.wrapping_add(1);
                Ok(port)
            }
        }
    }

    fn release_port(&mut self, _port: u16) {}

    fn reserve_ports(&mut self, namespace: &str, range: Option<NodePortRange>) -> Result<(), ClaimError> {
        self.reserved.set(namespace, range, &self.ports)
    }
}

/// The usable addresses of a range. The first ones (the static band) are allocated automatically only when the others are exhausted.
struct Band {
    first: u128,
    count: u128,
    reserved: u128,
    v4: bool,
}

impl Band {
    fn of(range: &IpNet) -> Self {
        let v4 = range.addr().is_ipv4();
        let host_bits = u32::from(range.max_prefix_len() - range.prefix_len());
        let size = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        // Neither the network's own address nor, in IPv4, the broadcast address.
        let count = size.saturating_sub(if v4 { 2 } else { 1 });
        let reserved = if size <= 16 { 0 } else { (size / 16).clamp(16, 256) };
        Self { first: number(range.network()).saturating_add(1), count, reserved, v4 }
    }

    fn address(&self, index: u128) -> IpAddr {
        let value = self.first + index;
        if self.v4 {
            IpAddr::V4(Ipv4Addr::from(u32::try_from(value).unwrap_or(u32::MAX)))
        } else {
            IpAddr::V6(Ipv6Addr::from(value))
        }
    }

    fn position(&self, address: IpAddr) -> Option<u128> {
        let index = number(address).checked_sub(self.first)?;
        (address.is_ipv4() == self.v4 && index < self.count).then_some(index)
    }

    fn pick(&self, free: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let reserved = self.reserved.min(self.count);
        scan(reserved, self.count, &|index| free(self.address(index)))
            .or_else(|| scan(0, reserved, &|index| free(self.address(index))))
            .map(|index| self.address(index))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// A free index in `from..to`, searched from a random start with wraparound.
fn scan(from: u128, to: u128, free: &dyn Fn(u128) -> bool) -> Option<u128> {
    let size = to.checked_sub(from).filter(|size| *size > 0)?;
    let start = fastrand::u128(0..size);
    (0..size).map(|step| from + (start + step) % size).find(|index| free(*index))
}

fn pick_port(ports: &RangeInclusive<u16>, free: &dyn Fn(u16) -> bool) -> Option<u16> {
    let first = u128::from(*ports.start());
    let size = u128::from(*ports.end()).checked_sub(first)? + 1;
    let reserved = if size <= 16 { 0 } else { (size / 32).clamp(16, 128) };
    let port = |index: u128| u16::try_from(first + index).unwrap_or(u16::MAX);
    scan(reserved, size, &|index| free(port(index))).or_else(|| scan(0, reserved, &|index| free(port(index)))).map(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(text: &str) -> Band {
        Band::of(&text.parse().expect("a range"))
    }

    #[test]
    fn static_bands_have_the_sizes_of_kube_apiserver() {
        for (range, reserved) in [("10.0.0.0/28", 0), ("10.0.0.0/24", 16), ("10.96.0.0/20", 256), ("10.96.0.0/12", 256)]
        {
            assert_eq!(band(range).reserved, reserved, "{range}");
        }
        assert_eq!(band("10.0.0.0/24").count, 254);
        assert_eq!(band("fd00:10:96::/112").count, 65535);
        assert_eq!(band("10.0.0.0/32").count, 0);
    }

    #[test]
    fn the_dynamic_band_is_used_first_and_then_the_rest() {
        let band = band("10.0.0.0/24");
        let first = band.pick(&|_| true).expect("an address");
        assert!(band.position(first).expect("inside") >= 16);
        let only: IpAddr = "10.0.0.3".parse().expect("an address");
        assert_eq!(band.pick(&|address| address == only), Some(only));
        assert_eq!(band.pick(&|_| false), None);
    }

    #[test]
    fn network_and_broadcast_are_not_usable() {
        let band = band("10.0.0.0/24");
        for text in ["10.0.0.0", "10.0.0.255", "10.0.1.1", "::1"] {
            assert_eq!(band.position(text.parse().expect("an address")), None, "{text}");
        }
    }

    #[test]
    fn ports_come_from_the_upper_band_first() {
        let port = pick_port(&(30000..=32767), &|_| true).expect("a port");
        assert!(port >= 30086);
        assert_eq!(pick_port(&(30000..=32767), &|port| port == 30001), Some(30001));
        assert_eq!(pick_port(&(30000..=30000), &|_| true), Some(30000));
    }
}
