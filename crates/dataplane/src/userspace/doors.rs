//! The doors of the relay: for each Service port the listeners that it needs, and one balancer for them.
//!
//! In: Service ports, as they change. Out: the numbers of their doors, which stay the same as long as a door is needed. A new door
//! is open before any rule leads to it, and an old one is closed after none does: whoever changes rules calls
//! [`Doors::prepare`] before and [`Doors::settle`] after.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use plan::{Backend, Frontend, Plan, PortKey, ServicePort};

use super::relay::{Balancer, Listener, Places, Relay, Scope};
use crate::nft::relayed::{self, Needs};

/// How many ports of the kernel's choice are looked at for one that is nobody's node port.
const CHOICES: usize = 16;

/// How long a door stays open after the last rule leads to it: whoever came by it before may not have been let in yet.
const GRACE: Duration = Duration::from_secs(1);

/// Everything that is open.
pub(super) struct Doors {
    relay: Relay,
    open: HashMap<PortKey, Door>,
}

struct Door {
    balancer: Arc<Balancer>,
    places: Places,
    listeners: BTreeMap<Scope, Listener>,
    needs: Needs,
}

impl Door {
    /// Tells the balancer of endpoints where it had none, before rules lead there; what it had stays until they do, so that a
    /// change that fails has changed nothing.
    fn fill(&mut self, mut places: Places) {
        keep(&mut places.anywhere, &self.places.anywhere, |before, _| !before.is_empty());
        keep(&mut places.here, &self.places.here, |before, _| !before.is_empty());
        places.serving.extend(&self.places.serving);
        self.set(places);
    }

    /// Tells the balancer of endpoints, after rules lead there. Where there are none any more it keeps those it had: nobody new is
    /// led to it, and whoever still comes by it is better off with an endpoint that may be there than with none.
    fn change(&mut self, mut places: Places) {
        keep(&mut places.anywhere, &self.places.anywhere, |_, now| now.is_empty());
        keep(&mut places.here, &self.places.here, |_, now| now.is_empty());
        self.set(places);
    }

    fn set(&mut self, places: Places) {
        if places != self.places {
            self.balancer.set(places.clone());
            self.places = places;
        }
    }

    fn numbers(&self) -> relayed::Doors {
        let number = |scope, needed: bool| {
            let listener = self.listeners.get(&scope).filter(|_| needed);
            listener.map(|listener| listener.address.port())
        };
        let Needs { anywhere, here } = self.needs;
        relayed::Doors { anywhere: number(Scope::Anywhere, anywhere), here: number(Scope::Here, here) }
    }
}

impl Doors {
    pub(super) fn new(relay: Relay) -> Self {
        Self { relay, open: HashMap::new() }
    }

    /// Opens what a Service port needs and tells its balancer of its endpoints; answers the numbers of its doors.
    pub(super) fn prepare(&mut self, plan: &Plan, port: &ServicePort, needs: Needs) -> io::Result<relayed::Doors> {
        let door = self.open.entry(port.key.clone()).or_insert_with(|| Door {
            balancer: Arc::new(Balancer::new(Places::default())),
            places: Places::default(),
            listeners: BTreeMap::new(),
            needs,
        });
        door.fill(places(port));
        door.needs = needs;
        for (scope, _) in scopes(needs).into_iter().filter(|(_, needed)| *needed) {
            if !door.listeners.contains_key(&scope) {
                let listener = open(&self.relay, plan, &port.key, &door.balancer, scope)?;
                door.listeners.insert(scope, listener);
            }
        }
        Ok(door.numbers())
    }

    /// Closes what a Service port no longer needs, or all of one that is gone; answers what is left.
    pub(super) fn settle(&mut self, key: &PortKey, port: Option<&ServicePort>) -> relayed::Doors {
        let Some(door) = self.open.get_mut(key) else { return relayed::Doors::default() };
        match port {
            Some(port) => door.change(places(port)),
            None => door.needs = Needs::default(),
        }
        for (scope, _) in scopes(door.needs).into_iter().filter(|(_, needed)| !needed) {
            if let Some(listener) = door.listeners.remove(&scope) {
                listener.close_after(GRACE);
            }
        }
        let left = door.numbers();
        if door.listeners.is_empty() {
            self.open.remove(key);
        }
        left
    }

    /// The Service ports that have doors.
    pub(super) fn keys(&self) -> impl Iterator<Item = &PortKey> {
        self.open.keys()
    }

    /// Where a door leads.
    #[cfg(test)]
    pub(super) fn behind(&self, key: &PortKey, number: u16) -> Option<Vec<SocketAddr>> {
        let door = self.open.get(key)?;
        let is_it = |(_, listener): &(&Scope, &Listener)| listener.address.port() == number;
        door.listeners.iter().find(is_it).map(|(scope, _)| door.balancer.list(*scope))
    }
}

/// Puts the endpoints of before in the place of a list, if so decided.
fn keep(now: &mut Vec<SocketAddr>, before: &[SocketAddr], decide: fn(&[SocketAddr], &[SocketAddr]) -> bool) {
    if decide(before, now) {
        now.clear();
        now.extend_from_slice(before);
    }
}

const fn scopes(needs: Needs) -> [(Scope, bool); 2] {
    [(Scope::Anywhere, needs.anywhere), (Scope::Here, needs.here)]
}

/// Opens a door at a port that the kernel chooses, for all addresses of a family: traffic is redirected to whichever address it
/// came in at.
fn open(relay: &Relay, plan: &Plan, key: &PortKey, balancer: &Arc<Balancer>, scope: Scope) -> io::Result<Listener> {
    let any: IpAddr = match key.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut passed_over = Vec::new();
    loop {
        let listener = relay.listen(SocketAddr::new(any, 0), key.protocol, balancer, scope)?;
        let node_port = Frontend::NodePort(key.family, key.protocol, listener.address.port());
        if !plan.frontends.contains_key(&node_port) || passed_over.len() >= CHOICES {
            return Ok(listener);
        }
        // Held until another is found, or the kernel might choose it again.
        passed_over.push(listener);
    }
}

/// The endpoints of a Service port as a relay takes them.
pub(super) fn places(port: &ServicePort) -> Places {
    let all = |list: &[Backend]| list.iter().map(|one| SocketAddr::new(one.ip, one.port)).collect();
    Places {
        anywhere: all(&port.cluster),
        here: all(&port.local),
        serving: all(&port.serving),
        affinity: port.affinity.map(|seconds| Duration::from_secs(u64::from(seconds))),
    }
}
