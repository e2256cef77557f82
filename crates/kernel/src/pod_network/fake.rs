//! The Pod network in memory. Clones share it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Bridge, PodNetwork, PodNetworkError, Port, Route, Wire};

/// A Pod network in memory.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    bridges: BTreeMap<String, Bridge>,
    wires: BTreeMap<String, Wire>,
    routes: BTreeSet<Route>,
    unreachable: BTreeSet<IpAddr>,
    longest: BTreeMap<IpAddr, u32>,
    guarded: Option<BTreeMap<String, Port>>,
    no_guard: bool,
}

fn refused(errno: Errno, doing: &'static str, what: &str) -> PodNetworkError {
    PodNetworkError { errno, doing, what: what.to_owned() }
}

impl Fake {
    /// All wires.
    #[must_use]
    pub fn wires(&self) -> Vec<Wire> {
        self.0.lock().wires.values().cloned().collect()
    }

    /// All routes.
    #[must_use]
    pub fn routes_now(&self) -> BTreeSet<Route> {
        self.0.lock().routes.clone()
    }

    /// Sets the MTU of the link with this address.
    pub fn carries(&self, address: IpAddr, mtu: u32) {
        self.0.lock().longest.insert(address, mtu);
    }

    /// Makes the kernel lack bridge tables.
    pub fn without_guard(&self) {
        self.0.lock().no_guard = true;
    }

    /// Checked ports; none when checks are disabled.
    #[must_use]
    pub fn guarded(&self) -> Option<Vec<Port>> {
        self.0.lock().guarded.as_ref().map(|ports| ports.values().cloned().collect())
    }

    /// Makes a Node unreachable.
    pub fn hide(&self, node: IpAddr) {
        self.0.lock().unreachable.insert(node);
    }
}

impl PodNetwork for Fake {
    fn bridge(&mut self, bridge: &Bridge) -> Result<(), PodNetworkError> {
        self.0.lock().bridges.insert(bridge.name.clone(), bridge.clone());
        Ok(())
    }

    fn guard(&mut self, ports: &[Port]) -> Result<bool, PodNetworkError> {
        let mut inner = self.0.lock();
        if inner.no_guard {
            return Ok(false);
        }
        let guarded = inner.guarded.get_or_insert_default();
        guarded.extend(ports.iter().map(|port| (port.name.clone(), port.clone())));
        Ok(true)
    }

    fn hardware(&mut self, namespace: &Path) -> Result<[u8; 6], PodNetworkError> {
        let inner = self.0.lock();
        let found = inner.wires.values().find(|wire| wire.namespace == namespace).map(|wire| wire.hardware);
        found.ok_or_else(|| refused(Errno::NODEV, "looking for", &namespace.display().to_string()))
    }

    fn plug(&mut self, wire: &Wire) -> Result<(), PodNetworkError> {
        let mut inner = self.0.lock();
        if !inner.bridges.contains_key(&wire.bridge) {
            return Err(refused(Errno::NODEV, "looking for", &wire.bridge));
        }
        if wire.name.is_empty() || wire.name.len() > 15 {
            return Err(refused(Errno::INVAL, "making", &wire.name));
        }
        if let Some(guarded) = &mut inner.guarded {
            let port = Port { name: wire.name.clone(), hardware: wire.hardware, addresses: wire.addresses.clone() };
            guarded.insert(wire.name.clone(), port);
        }
        inner.wires.insert(wire.name.clone(), wire.clone());
        Ok(())
    }

    fn delete(&mut self, link: &str) -> Result<bool, PodNetworkError> {
        let mut inner = self.0.lock();
        if let Some(guarded) = &mut inner.guarded {
            guarded.remove(link);
        }
        Ok(inner.wires.remove(link).is_some() | inner.bridges.remove(link).is_some())
    }

    fn mtu(&mut self, of: IpAddr) -> Result<Option<u32>, PodNetworkError> {
        Ok(self.0.lock().longest.get(&of).copied())
    }

    fn routes(&mut self, wanted: &BTreeSet<Route>) -> Result<Vec<(Route, Errno)>, PodNetworkError> {
        let mut inner = self.0.lock();
        let (lost, good): (BTreeSet<Route>, BTreeSet<Route>) =
            wanted.iter().partition(|route| inner.unreachable.contains(&route.via));
        inner.routes = good;
        Ok(lost.into_iter().map(|route| (route, Errno::NETUNREACH)).collect())
    }
}
