//! Devices in memory. Clones share them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{DeviceState, Links, LinksError};

/// A machine with devices.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    devices: BTreeMap<String, BTreeSet<IpAddr>>,
    elsewhere: BTreeSet<IpAddr>,
    changes: usize,
    failure: Option<Errno>,
}

impl Fake {
    /// A machine whose other devices have these addresses.
    pub fn new(elsewhere: impl IntoIterator<Item = IpAddr>) -> Self {
        let fake = Self::default();
        fake.0.lock().elsewhere = elsewhere.into_iter().collect();
        fake
    }

    /// Addresses of a device; none if it does not exist.
    #[must_use]
    pub fn addresses(&self, device: &str) -> Option<BTreeSet<IpAddr>> {
        self.0.lock().devices.get(device).cloned()
    }

    /// Number of changes: devices and addresses count one each.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.0.lock().changes
    }

    /// Makes the next change fail.
    pub fn fail_next(&self, errno: Errno) {
        self.0.lock().failure = Some(errno);
    }
}

impl Inner {
    fn change(
        &mut self,
        device: &str,
        doing: &'static str,
        mut each: impl FnMut(&mut BTreeSet<IpAddr>) -> usize,
    ) -> Result<(), LinksError> {
        let failed = |errno| LinksError { device: device.to_owned(), errno, address: None, doing };
        if let Some(errno) = self.failure.take() {
            return Err(failed(errno));
        }
        let here = self.devices.get_mut(device).ok_or_else(|| failed(Errno::NODEV))?;
        self.changes += each(here);
        Ok(())
    }
}

impl Links for Fake {
    fn state(&mut self, device: &str) -> Result<DeviceState, LinksError> {
        let inner = self.0.lock();
        let others = inner.devices.iter().filter(|(name, _)| *name != device).flat_map(|(_, ips)| ips);
        let elsewhere = inner.elsewhere.iter().chain(others).copied().collect();
        let here = inner.devices.get(device);
        Ok(DeviceState { index: here.map(|_| 2), here: here.cloned().unwrap_or_default(), elsewhere })
    }

    fn make(&mut self, device: &str) -> Result<(), LinksError> {
        let mut inner = self.0.lock();
        if !inner.devices.contains_key(device) {
            inner.devices.insert(device.to_owned(), BTreeSet::new());
            inner.changes += 1;
        }
        Ok(())
    }

    fn delete(&mut self, device: &str) -> Result<bool, LinksError> {
        let mut inner = self.0.lock();
        let was_there = inner.devices.remove(device).is_some();
        inner.changes += usize::from(was_there);
        Ok(was_there)
    }

    fn add(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError> {
        let add = |here: &mut BTreeSet<IpAddr>| addresses.iter().filter(|ip| here.insert(**ip)).count();
        if addresses.is_empty() { Ok(()) } else { self.0.lock().change(device, "adding", add) }
    }

    fn remove(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError> {
        let remove = |here: &mut BTreeSet<IpAddr>| addresses.iter().filter(|ip| here.remove(ip)).count();
        if addresses.is_empty() { Ok(()) } else { self.0.lock().change(device, "removing", remove) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_deleted_with_their_device() {
        let (mut fake, ip) = (Fake::new([[192, 0, 2, 1].into()]), IpAddr::from([10, 96, 0, 1]));
        assert_eq!(fake.add("d", &[ip]).expect_err("there is no device").errno, Errno::NODEV);
        fake.make("d").expect("made");
        fake.make("d").expect("it is there already");
        fake.add("d", &[ip, ip]).expect("added");
        let found = fake.state("d").expect("found");
        assert_eq!((found.here, found.elsewhere.len(), fake.changes()), (BTreeSet::from([ip]), 1, 2));
        assert!(fake.delete("d").expect("deleted") && !fake.delete("d").expect("it is gone"));
        assert_eq!(fake.state("d").expect("looked").index, None);
    }
}
