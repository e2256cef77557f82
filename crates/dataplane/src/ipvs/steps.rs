//! Changes from the current to the desired state of a virtual server, in two steps: additions before packets are
//! admitted, removals after.
//!
//! A removed destination drains: its weight becomes 0 and it is deleted when idle. UDP has no end of connection, and a
//! client that keeps sending would stay with a removed endpoint; so a UDP destination is deleted as soon as its
//! endpoint no longer serves.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kernel::ipvs::{Change, Scheduler, Server, Settings};

use super::servers::DesiredServer;

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// A virtual server in the kernel: settings, and the weight of each destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KernelServer {
    pub(super) settings: Settings,
    pub(super) destinations: BTreeMap<SocketAddr, u32>,
}

/// Adds what is missing.
pub(super) fn additions(server: &Server, wanted: Option<&DesiredServer>, kernel: Option<&KernelServer>) -> Vec<Change> {
    let Some(wanted) = wanted else { return Vec::new() };
    let mut changes = Vec::new();
    match kernel {
        None => changes.push(Change::NewServer(*server, wanted.settings.clone())),
        Some(kernel) if kernel.settings != wanted.settings => {
            changes.push(Change::SetServer(*server, wanted.settings.clone()));
        }
        Some(_) => {}
    }
    for (at, weight) in &wanted.destinations {
        match kernel.and_then(|kernel| kernel.destinations.get(at)) {
            None => changes.push(Change::NewDestination(*server, *at, *weight)),
            Some(has) if has == weight => {}
            // It may have been draining.
            Some(_) => changes.push(Change::SetDestination(*server, *at, *weight)),
        }
    }
    changes
}

/// Drains or deletes what is surplus. Destinations of an exclusive server are deleted at once.
pub(super) fn removals(
    server: &Server,
    wanted: Option<&DesiredServer>,
    kernel: Option<&KernelServer>,
    is_exclusive: bool,
) -> Vec<Change> {
    let Some(kernel) = kernel else { return Vec::new() };
    // Some schedulers refuse clients because of destinations with weight 0.
    let can_drain = !is_exclusive && Scheduler::named(&kernel.settings.scheduler).is_none_or(Scheduler::can_drain);
    let Some(wanted) = wanted else {
        let at_once = server.protocol == UDP || !can_drain || kernel.destinations.is_empty();
        return if at_once { vec![Change::DeleteServer(*server)] } else { drain(server, kernel.destinations.iter()) };
    };
    let surplus = kernel.destinations.iter().filter(|(at, _)| !wanted.destinations.contains_key(*at));
    let is_kept = |at: &SocketAddr| can_drain && (server.protocol != UDP || wanted.serving.contains(at));
    let (stay, go): (Vec<_>, Vec<_>) = surplus.partition(|(at, _)| is_kept(at));
    let mut changes = drain(server, stay.into_iter());
    changes.extend(go.into_iter().map(|(at, _)| Change::DeleteDestination(*server, *at)));
    changes
}

/// Sets the weight of destinations to 0.
fn drain<'a>(server: &Server, destinations: impl Iterator<Item = (&'a SocketAddr, &'a u32)>) -> Vec<Change> {
    let full = destinations.filter(|(_, weight)| **weight != 0);
    full.map(|(at, _)| Change::SetDestination(*server, *at, 0)).collect()
}

/// Records a change that was applied.
pub(super) fn apply(all: &mut BTreeMap<Server, KernelServer>, change: &Change) {
    match change {
        Change::NewServer(server, settings) => {
            all.insert(*server, KernelServer { settings: settings.clone(), destinations: BTreeMap::new() });
        }
        Change::SetServer(server, settings) => {
            if let Some(kernel) = all.get_mut(server) {
                kernel.settings = settings.clone();
            }
        }
        Change::DeleteServer(server) => {
            all.remove(server);
        }
        Change::NewDestination(server, at, weight) | Change::SetDestination(server, at, weight) => {
            if let Some(kernel) = all.get_mut(server) {
                kernel.destinations.insert(*at, *weight);
            }
        }
        Change::DeleteDestination(server, at) => {
            if let Some(kernel) = all.get_mut(server) {
                kernel.destinations.remove(at);
            }
        }
    }
}
