//! Why each endpoint gets traffic or does not, as data for people who ask.

use crate::categories::Nearness;
use crate::endpoints::{Endpoint, of_port};
use crate::planner::Planner;
use crate::service_port::{Backend, PortKey};

/// An endpoint of a Service port, and how it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Where connections to it go.
    pub backend: Backend,
    /// What is known of it.
    pub endpoint: Endpoint,
    /// How it stands for traffic that may go anywhere; nothing if the port has no such traffic.
    pub cluster: Option<Standing>,
    /// How it stands for traffic that stays on this node; nothing if the port has no such traffic.
    pub local: Option<Standing>,
}

/// How an endpoint stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// It gets traffic.
    Chosen,
    /// It is about to go, and gets traffic because nothing better is left.
    LastResort,
    /// It is not ready.
    NotReady,
    /// It is about to go, and there are better ones.
    Terminating,
    /// It is on another node.
    OtherNode,
    /// Others are nearer: on this node.
    FartherThanNode,
    /// Others are nearer: in this zone.
    FartherThanZone,
    /// It is the cluster IP of a Service.
    ClusterIp,
}

impl Planner {
    /// How each endpoint of a Service port stands, in order; nothing for a port that is not planned.
    #[must_use]
    pub fn reasons(&self, key: &PortKey) -> Vec<Reason> {
        let (Some(port), Some(known)) = (self.plan.ports.get(key), self.services.get(&key.service)) else {
            return Vec::new();
        };
        let all = of_port(&known.slices, key);
        let is_vip = |backend: &Backend| self.is_cluster_ip(backend.ip);
        let usable: Vec<_> = all.iter().copied().filter(|seen| !is_vip(&seen.backend)).collect();
        let nearness = self.chooser().nearness(&usable);
        let reason = |backend: Backend, endpoint: &Endpoint| {
            let stands = |chosen: &[Backend], here_only: bool| {
                if chosen.contains(&backend) {
                    if endpoint.ready { Standing::Chosen } else { Standing::LastResort }
                } else if is_vip(&backend) {
                    Standing::ClusterIp
                } else if here_only && !endpoint.local {
                    Standing::OtherNode
                } else if endpoint.ready {
                    farther(nearness)
                } else if endpoint.is_fading() {
                    Standing::Terminating
                } else {
                    Standing::NotReady
                }
            };
            Reason {
                backend,
                endpoint: endpoint.clone(),
                cluster: port.uses_cluster().then(|| stands(&port.cluster, false)),
                local: port.uses_local().then(|| stands(&port.local, true)),
            }
        };
        all.iter().map(|seen| reason(seen.backend, seen.endpoint)).collect()
    }
}

/// Why a ready endpoint is not chosen among all. (Nearness is of no account on this node: there every ready one is.)
const fn farther(nearness: Nearness) -> Standing {
    match nearness {
        Nearness::SameNode => Standing::FartherThanNode,
        Nearness::SameZone | Nearness::Anywhere => Standing::FartherThanZone,
    }
}
