//! Who has which frontend. Several Service ports may claim one (external IPs are anybody's to write); one has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use api::ip::Family;
use api::view::Protocol;

use crate::plan::Touched;
use crate::service_port::{PortKey, ServicePort};

/// Where packets to a Service arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Frontend {
    /// At an address and a port.
    Address(IpAddr, Protocol, u16),
    /// At a port of the node, in a family.
    NodePort(Family, Protocol, u16),
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip, protocol, port) => write!(f, "{}/{protocol}", SocketAddr::new(*ip, *port)),
            Self::NodePort(family, protocol, port) => write!(f, "node port {port}/{protocol} ({})", family.as_str()),
        }
    }
}

/// What kind of frontend a Service port has there. Where several Service ports claim one frontend, the first kind wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Its cluster IP.
    Cluster,
    /// An address of its load balancer.
    LoadBalancer,
    /// An external IP.
    External,
    /// A node port.
    NodePort,
}

/// Who claims a frontend and as what, in order; the first has it.
pub type Claims = Vec<(Role, PortKey)>;

/// Who claims each frontend.
pub type Frontends = BTreeMap<Frontend, Claims>;

/// Replaces the claims of a port; every port that gets or loses a frontend by that is touched. `contested` follows
/// which frontends have several claims.
pub(crate) fn replace(
    frontends: &mut Frontends,
    contested: &mut BTreeSet<Frontend>,
    (old, new): (Option<&ServicePort>, Option<&ServicePort>),
    touched: &mut Touched,
) {
    let of = |port: Option<&ServicePort>| port.map_or_else(Vec::new, ServicePort::frontends);
    let (before, after) = (of(old), of(new));
    let mut change = |frontend: Frontend, edit: &dyn Fn(&mut Claims)| {
        let claims = frontends.entry(frontend).or_default();
        let (first, count) = (claims.first().cloned(), claims.len());
        edit(claims);
        if claims.first() != first.as_ref() {
            touched.ports.extend(first.into_iter().chain(claims.first().cloned()).map(|(_, key)| key));
        }
        touched.problems |= count > 1 || claims.len() > 1;
        if claims.len() > 1 {
            contested.insert(frontend)
        } else {
            contested.remove(&frontend)
        };
        if claims.is_empty() {
            frontends.remove(&frontend);
        }
    };
    for (frontend, role) in before.iter().filter(|claim| !after.contains(claim)) {
        change(*frontend, &|claims| {
            claims.retain(|(as_role, key)| as_role != role || old.is_none_or(|old| *key != old.key));
        });
    }
    let Some(new) = new else { return };
    for (frontend, role) in after.iter().filter(|claim| !before.contains(claim)) {
        change(*frontend, &|claims| {
            let claim = (*role, new.key.clone());
            if let Err(place) = claims.binary_search(&claim) {
                // Nearly every frontend has one claim and never another.
                claims.reserve_exact(1);
                claims.insert(place, claim);
            }
        });
    }
}

/// What the claimants of contested frontends should know: the key of the Service that loses, and who has what it
/// claims.
pub(crate) fn losses<'a>(
    frontends: &'a Frontends,
    contested: &'a BTreeSet<Frontend>,
) -> impl Iterator<Item = (&'a PortKey, &'a PortKey, Frontend)> {
    contested.iter().filter_map(|frontend| Some((frontend, frontends.get(frontend)?))).flat_map(|(frontend, claims)| {
        let winner = claims.first().map(|(_, key)| key);
        let losers = claims.iter().map(|(_, key)| key).filter(move |key| Some(*key) != winner);
        losers.filter_map(move |loser| Some((loser, winner?, *frontend)))
    })
}
