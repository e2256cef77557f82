//! Allocation of Pod IPs, saved on disk.
//!
//! In: the Pod CIDRs of the node, Pod UIDs. Out: one address per CIDR. Addresses are allocated round robin, so that a released one is reused as
//! late as possible: clients with stale state must not reach another Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::files;

/// The most addresses of a CIDR that are used; limits the search in IPv6 CIDRs.
const MAX_ADDRESSES: u64 = 1 << 16;

/// Why no address could be allocated.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The Node has no Pod CIDR.
    #[error("the Node has no spec.podCIDRs yet; see --allocate-node-cidrs of the server")]
    NoRange,
    /// All addresses are allocated.
    #[error("all addresses of {0} are allocated; give Nodes larger CIDRs with --node-cidr-mask-size-ipv4")]
    Full(IpNet),
    /// The allocations could not be saved.
    #[error("saving allocated addresses: {0}")]
    Disk(#[from] io::Error),
}

/// Allocated Pod IPs of a node.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// By Pod UID.
    owners: BTreeMap<String, Vec<IpAddr>>,
    /// The last allocated offset in each CIDR.
    last: BTreeMap<String, u64>,
}

impl Pool {
    /// Loads the saved allocations.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), kept: files::get(path).unwrap_or_default() }
    }

    /// The addresses of a Pod, allocated if it has none: one per CIDR.
    ///
    /// # Errors
    /// When none is free, or the allocation cannot be saved.
    pub fn allocate(&mut self, uid: &str, ranges: &[IpNet]) -> Result<Vec<IpAddr>, PoolError> {
        if ranges.is_empty() {
            return Err(PoolError::NoRange);
        }
        let fits = |have: &Vec<IpAddr>| {
            have.len() == ranges.len() && have.iter().zip(ranges).all(|(ip, range)| range.contains(ip))
        };
        if let Some(have) = self.kept.owners.get(uid).filter(|have| fits(have)) {
            return Ok(have.clone());
        }
        self.kept.owners.remove(uid);
        let taken: BTreeSet<IpAddr> = self.kept.owners.values().flatten().copied().collect();
        let mut new = Vec::new();
        for range in ranges {
            let (first, count) = usable(range);
            let last = self.kept.last.get(&range.to_string()).copied().unwrap_or(first - 1);
            let found = (1..=count)
                .map(|step| first + (last + step - first) % count)
                .find(|number| nth(range, *number).is_some_and(|ip| !taken.contains(&ip)));
            let number = found.ok_or(PoolError::Full(*range))?;
            self.kept.last.insert(range.to_string(), number);
            new.extend(nth(range, number));
        }
        self.kept.owners.insert(uid.to_owned(), new.clone());
        files::put(&self.path, &self.kept)?;
        Ok(new)
    }

    /// Releases the addresses of a Pod.
    ///
    /// # Errors
    /// When the release cannot be saved.
    pub fn release(&mut self, uid: &str) -> Result<(), PoolError> {
        if self.kept.owners.remove(uid).is_some() {
            files::put(&self.path, &self.kept)?;
        }
        Ok(())
    }

    /// Releases the addresses of all other Pods.
    ///
    /// # Errors
    /// When the release cannot be saved.
    pub fn release_others(&mut self, uids: &BTreeSet<String>) -> Result<(), PoolError> {
        let before = self.kept.owners.len();
        self.kept.owners.retain(|uid, _| uids.contains(uid));
        if self.kept.owners.len() != before {
            files::put(&self.path, &self.kept)?;
        }
        Ok(())
    }
}

/// The address of the bridge in a CIDR: the first.
#[must_use]
pub fn gateway(range: &IpNet) -> Option<IpAddr> {
    nth(range, 1)
}

/// The first usable offset and the number of usable ones: without network address, bridge and broadcast address.
fn usable(range: &IpNet) -> (u64, u64) {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    let all = 1u64.checked_shl(bits).unwrap_or(MAX_ADDRESSES).min(MAX_ADDRESSES);
    (2, all.saturating_sub(3).max(1))
}

/// The address at an offset in a CIDR.
fn nth(range: &IpNet, number: u64) -> Option<IpAddr> {
    let ip = match range.network() {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).checked_add(u32::try_from(number).ok()?)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).checked_add(number.into())?).into(),
    };
    range.contains(&ip).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().expect("a range")).collect()
    }

    #[test]
    fn addresses_are_allocated_in_order_and_saved() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("addresses");
        let ranges = ranges(&["10.244.3.0/29", "fd00:10:244:3::/64"]);
        let mut pool = Pool::open(&path);
        let first = pool.allocate("a", &ranges).expect("room");
        assert_eq!(first, ["10.244.3.2".parse::<IpAddr>().expect("ip"), "fd00:10:244:3::2".parse().expect("ip")]);
        let others: Vec<_> = ["b", "c", "d", "e"].map(|uid| pool.allocate(uid, &ranges).expect("room")[0]).into();
        assert_eq!(others.last().map(ToString::to_string).as_deref(), Some("10.244.3.6"));
        assert!(matches!(pool.allocate("f", &ranges), Err(PoolError::Full(_))), "seven is the broadcast address");
        let mut again = Pool::open(&path);
        assert_eq!(again.allocate("a", &ranges).expect("its own"), first);
        again.release("c").expect("written");
        assert_eq!(again.allocate("f", &ranges).expect("room")[0].to_string(), "10.244.3.4");
    }

    #[test]
    fn released_addresses_are_reused_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pool = Pool::open(&folder.path().join("addresses"));
        let ranges = ranges(&["10.0.0.0/28"]);
        let mut seen = Vec::new();
        for number in 0..13 {
            let uid = format!("pod-{number}");
            seen.push(pool.allocate(&uid, &ranges).expect("room")[0]);
            pool.release(&uid).expect("written");
        }
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), 13);
    }

    #[test]
    fn without_a_pod_cidr_nothing_is_allocated() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pool = Pool::open(&folder.path().join("addresses"));
        assert!(matches!(pool.allocate("a", &[]), Err(PoolError::NoRange)));
    }
}
