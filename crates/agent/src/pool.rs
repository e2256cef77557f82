//! Which address belongs to which Pod of this machine: given in turn, kept on disk, never given twice.
//!
//! In: the ranges of the Node, uids. Out: one address of each range. The next Pod gets the next address, not the one that became free
//! last: whoever still talks to that must not find somebody else there by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::files;

/// No more Pods of a machine than this are looked for in a range of IPv6, which has room for all.
const MOST: u64 = 1 << 16;

/// Why a Pod has no address.
#[derive(Debug, Error)]
pub enum PoolError {
    /// There is no range.
    #[error("the Node has no spec.podCIDRs yet; see --allocate-node-cidrs of the server")]
    NoRange,
    /// All are taken.
    #[error("all addresses of {0} are taken; give Nodes larger ranges with --node-cidr-mask-size-ipv4")]
    Full(IpNet),
    /// It could not be written down.
    #[error("writing which address is whose: {0}")]
    Disk(#[from] io::Error),
}

/// The addresses of a machine's Pods.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// By uid.
    owners: BTreeMap<String, Vec<IpAddr>>,
    /// The last number given in each range.
    last: BTreeMap<String, u64>,
}

impl Pool {
    /// Reads what is known.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), kept: files::get(path).unwrap_or_default() }
    }

    /// The addresses of a Pod: those it has, or new ones, one of each range.
    ///
    /// # Errors
    /// When there are none, or it cannot be written down.
    pub fn take(&mut self, uid: &str, ranges: &[IpNet]) -> Result<Vec<IpAddr>, PoolError> {
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
            let (first, count) = room(range);
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

    /// Takes the addresses of a Pod back.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn give_back(&mut self, uid: &str) -> Result<(), PoolError> {
        if self.kept.owners.remove(uid).is_some() {
            files::put(&self.path, &self.kept)?;
        }
        Ok(())
    }

    /// Takes everything back that belongs to none of these.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn keep_only(&mut self, uids: &BTreeSet<String>) -> Result<(), PoolError> {
        let before = self.kept.owners.len();
        self.kept.owners.retain(|uid, _| uids.contains(uid));
        if self.kept.owners.len() != before {
            files::put(&self.path, &self.kept)?;
        }
        Ok(())
    }
}

/// The address of the machine itself in a range: the first.
#[must_use]
pub fn gateway(range: &IpNet) -> Option<IpAddr> {
    nth(range, 1)
}

/// The first number of a Pod, and how many there are: not the network, the machine, and the last.
fn room(range: &IpNet) -> (u64, u64) {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    let all = 1u64.checked_shl(bits).unwrap_or(MOST).min(MOST);
    (2, all.saturating_sub(3).max(1))
}

/// An address by its number in a range.
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
    fn addresses_are_given_in_turn_and_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("addresses");
        let ranges = ranges(&["10.244.3.0/29", "fd00:10:244:3::/64"]);
        let mut pool = Pool::open(&path);
        let first = pool.take("a", &ranges).expect("room");
        assert_eq!(first, ["10.244.3.2".parse::<IpAddr>().expect("ip"), "fd00:10:244:3::2".parse().expect("ip")]);
        let others: Vec<_> = ["b", "c", "d", "e"].map(|uid| pool.take(uid, &ranges).expect("room")[0]).into();
        assert_eq!(others.last().map(ToString::to_string).as_deref(), Some("10.244.3.6"));
        assert!(matches!(pool.take("f", &ranges), Err(PoolError::Full(_))), "seven is the broadcast address");
        let mut again = Pool::open(&path);
        assert_eq!(again.take("a", &ranges).expect("its own"), first);
        again.give_back("c").expect("written");
        assert_eq!(again.take("f", &ranges).expect("room")[0].to_string(), "10.244.3.4");
    }

    #[test]
    fn what_became_free_is_the_last_to_be_given_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pool = Pool::open(&folder.path().join("addresses"));
        let ranges = ranges(&["10.0.0.0/28"]);
        let mut seen = Vec::new();
        for number in 0..13 {
            let uid = format!("pod-{number}");
            seen.push(pool.take(&uid, &ranges).expect("room")[0]);
            pool.give_back(&uid).expect("written");
        }
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), 13);
    }

    #[test]
    fn without_a_range_there_is_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pool = Pool::open(&folder.path().join("addresses"));
        assert!(matches!(pool.take("a", &[]), Err(PoolError::NoRange)));
    }
}
