//! Scheduling as in the kernel, except for its hash functions.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::ipvs::{Load, Scheduler, Server, Settings};

/// Weight of an active connection relative to an inactive one.
const OPEN: u32 = 256;

/// Chooses among destinations.
pub(super) fn choose(
    settings: &Settings,
    destinations: &BTreeMap<SocketAddr, Load>,
    turn: &mut Option<SocketAddr>,
    client: SocketAddr,
    server: &Server,
) -> Option<SocketAddr> {
    let busy = |load: &Load| load.active.saturating_mul(OPEN).saturating_add(load.inactive);
    match Scheduler::named(&settings.scheduler)? {
        // All weights are equal here.
        Scheduler::Rr | Scheduler::Wrr => {
            let chosen = next(destinations, *turn)?;
            *turn = Some(chosen);
            Some(chosen)
        }
        // There is one destination address here: it stays at its server, unless that is overloaded and another is idle.
        Scheduler::Lblc | Scheduler::Lblcr => {
            let bored = destinations.values().any(|load| load.active * 2 < load.weight);
            let stays = |load: &Load| load.weight > 0 && !(load.active > load.weight && bored);
            let before = turn.filter(|at| destinations.get(at).is_some_and(stays));
            let chosen = before.or_else(|| least(destinations, busy))?;
            *turn = Some(chosen);
            Some(chosen)
        }
        Scheduler::Lc | Scheduler::Wlc => least(destinations, busy),
        Scheduler::Sed => least(destinations, |load| load.active + 1),
        Scheduler::Nq => {
            let idle = destinations.iter().find(|(_, load)| load.weight > 0 && load.active == 0);
            idle.map(|(at, _)| *at).or_else(|| least(destinations, |load| load.active + 1))
        }
        Scheduler::Sh => by_hash(hash(client.ip(), 0), destinations, settings.flags.fallback),
        Scheduler::Dh => by_hash(hash(server.ip, 0), destinations, false),
        Scheduler::Mh => {
            let port = if settings.flags.ports { client.port() } else { 0 };
            let willing = destinations.iter().filter(|(_, load)| load.weight > 0).map(|(at, load)| (*at, *load));
            by_hash(hash(client.ip(), port), &willing.collect(), false)
        }
    }
}

/// The next one after the last that takes connections.
fn next(destinations: &BTreeMap<SocketAddr, Load>, last: Option<SocketAddr>) -> Option<SocketAddr> {
    let after = |at: &SocketAddr| last.is_none_or(|last| *at > last);
    let willing = || destinations.iter().filter(|(_, load)| load.weight > 0).map(|(at, _)| *at);
    willing().find(after).or_else(|| willing().next())
}

/// The least busy one for its weight.
fn least(destinations: &BTreeMap<SocketAddr, Load>, busy: impl Fn(&Load) -> u32) -> Option<SocketAddr> {
    let willing = destinations.iter().filter(|(_, load)| load.weight > 0);
    willing.min_by_key(|(_, load)| busy(load) / load.weight).map(|(at, _)| *at)
}

/// The one with this hash; the next that takes connections, if fallback is allowed.
fn by_hash(number: u32, destinations: &BTreeMap<SocketAddr, Load>, fallback: bool) -> Option<SocketAddr> {
    let all: Vec<(&SocketAddr, &Load)> = destinations.iter().collect();
    let first = usize::try_from(number).unwrap_or_default().checked_rem(all.len())?;
    let tries = if fallback { all.len() } else { 1 };
    let mut order = (0..tries).map(|step| all[(first + step) % all.len()]);
    order.find(|(_, load)| load.weight > 0).map(|(at, _)| *at)
}

fn hash(ip: IpAddr, port: u16) -> u32 {
    let bytes = crate::address_bytes(ip);
    bytes
        .iter()
        .chain(&port.to_be_bytes())
        .fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
