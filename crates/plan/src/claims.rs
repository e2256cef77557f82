//! Ownership of frontends. Several Service ports may claim one (anyone can write external IPs); one owns it.

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
    /// Address and port.
    Address(IpAddr, Protocol, u16),
    /// Node port of a family.
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

/// Kind of frontend. Where several Service ports claim one, the first kind wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Cluster IP.
    Cluster,
    /// Load balancer address.
    LoadBalancer,
    /// External IP.
    External,
    /// Node port.
    NodePort,
}

/// Claims of a frontend, in order; the first one owns it.
pub type Claims = Vec<(Role, PortKey)>;

/// Claims of all frontends.
pub type Frontends = BTreeMap<Frontend, Claims>;

/// Replaces the claims of a port; every port that gains or loses a frontend is touched. `contested` tracks frontends
/// with several claims.
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
                // Nearly every frontend has exactly one claim.
                claims.reserve_exact(1);
                claims.insert(place, claim);
            }
        });
    }
}

/// Lost claims: the Service that loses, the frontend, and its owner.
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
