//! From how a virtual server is to how it should be, in two steps: what must be there before packets are let through, and what may
//! go after none come any more.
//!
//! A destination that is wanted no more keeps its connections: it gets no new ones (its weight becomes nought) and is deleted
//! when it is idle. UDP does not say when a connection ends, and a client that never falls silent would stay with an endpoint that
//! is gone; so there a destination is deleted as soon as the endpoint no longer answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kernel::ipvs::{Change, Scheduler, Server, Settings};

use super::servers::Wanted;

/// The number of UDP among the protocols above IP.
const UDP: u8 = 17;
/// The weight of every destination that gets connections.
const WEIGHT: u32 = 1;

/// A virtual server as the kernel has it: its settings, and the weight of each destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) settings: Settings,
    pub(super) destinations: BTreeMap<SocketAddr, u32>,
}

/// What makes a virtual server take everything that it should.
pub(super) fn open(server: &Server, wanted: Option<&Wanted>, held: Option<&Held>) -> Vec<Change> {
    let Some(wanted) = wanted else { return Vec::new() };
    let mut changes = Vec::new();
    match held {
        None => changes.push(Change::NewServer(*server, wanted.settings.clone())),
        Some(held) if held.settings != wanted.settings => {
            changes.push(Change::SetServer(*server, wanted.settings.clone()));
        }
        Some(_) => {}
    }
    for at in &wanted.destinations {
        match held.and_then(|held| held.destinations.get(at)) {
            None => changes.push(Change::NewDestination(*server, *at, WEIGHT)),
            Some(&WEIGHT) => {}
            // Perhaps one that was on its way out and has come back.
            Some(_) => changes.push(Change::SetDestination(*server, *at, WEIGHT)),
        }
    }
    changes
}

/// What takes from a virtual server what it should not have any more.
pub(super) fn close(server: &Server, wanted: Option<&Wanted>, held: Option<&Held>) -> Vec<Change> {
    let Some(held) = held else { return Vec::new() };
    // A scheduler that does not look past destinations without weight would refuse clients because of them.
    let can_drain = Scheduler::named(&held.settings.scheduler).is_none_or(Scheduler::can_drain);
    let Some(wanted) = wanted else {
        let at_once = server.protocol == UDP || !can_drain || held.destinations.is_empty();
        return if at_once { vec![Change::DeleteServer(*server)] } else { drain(server, held.destinations.iter()) };
    };
    let surplus = held.destinations.iter().filter(|(at, _)| !wanted.destinations.contains(at));
    let stays = |at: &SocketAddr| can_drain && (server.protocol != UDP || wanted.serving.contains(at));
    let (stay, go): (Vec<_>, Vec<_>) = surplus.partition(|(at, _)| stays(at));
    let mut changes = drain(server, stay.into_iter());
    changes.extend(go.into_iter().map(|(at, _)| Change::DeleteDestination(*server, *at)));
    changes
}

/// What lets destinations get nothing new.
fn drain<'a>(server: &Server, destinations: impl Iterator<Item = (&'a SocketAddr, &'a u32)>) -> Vec<Change> {
    let full = destinations.filter(|(_, weight)| **weight != 0);
    full.map(|(at, _)| Change::SetDestination(*server, *at, 0)).collect()
}

/// Follows an order that was carried out.
pub(super) fn follow(all: &mut BTreeMap<Server, Held>, change: &Change) {
    match change {
        Change::NewServer(server, settings) => {
            all.insert(*server, Held { settings: settings.clone(), destinations: BTreeMap::new() });
        }
        Change::SetServer(server, settings) => {
            if let Some(held) = all.get_mut(server) {
                held.settings = settings.clone();
            }
        }
        Change::DeleteServer(server) => {
            all.remove(server);
        }
        Change::NewDestination(server, at, weight) | Change::SetDestination(server, at, weight) => {
            if let Some(held) = all.get_mut(server) {
                held.destinations.insert(*at, *weight);
            }
        }
        Change::DeleteDestination(server, at) => {
            if let Some(held) = all.get_mut(server) {
                held.destinations.remove(at);
            }
        }
    }
}
