//! Why each endpoint gets traffic or does not.

use crate::endpoints::{Endpoint, of_port};
use crate::planner::Planner;
use crate::selection::{HintScope, ready_locations};
use crate::service_port::{Backend, PortKey};

/// An endpoint of a Service port and its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Address and port.
    pub backend: Backend,
    /// The endpoint record.
    pub endpoint: Endpoint,
    /// Status for traffic that may use any endpoint; none if the port has no such traffic.
    pub cluster: Option<EndpointStatus>,
    /// Status for traffic that stays on this node; none if the port has no such traffic.
    pub local: Option<EndpointStatus>,
}

/// Whether an endpoint gets traffic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EndpointStatus {
    /// It gets traffic.
    Chosen,
    /// It is terminating and gets traffic because no ready endpoint is left.
    LastResort,
    /// It is not ready.
    NotReady,
    /// It is terminating, and others are ready.
    Terminating,
    /// It is on another node.
    OtherNode,
    /// Topology hints select endpoints for this node.
    HintedForOtherNode,
    /// Topology hints select endpoints for this zone.
    HintedForOtherZone,
    /// It is the cluster IP of a Service.
    ClusterIp,
    /// The traffic policy is `leader`, and its Pod does not hold the Lease.
    NotLeader,
}

impl Planner {
    /// The status of each endpoint of a Service port, sorted; empty for an unknown port.
    #[must_use]
    pub fn reasons(&self, key: &PortKey) -> Vec<Reason> {
        let (Some(port), Some(state)) = (self.plan.ports.get(key), self.services.get(&key.service)) else {
            return Vec::new();
        };
        let leaders = self.endpoints(state, key);
        // Of the others, too, it is said why they get no traffic.
        let all = if port.balancing.is_exclusive() { of_port(&state.slices, key) } else { leaders.clone() };
        let is_leader = |backend: &Backend| leaders.iter().any(|seen| seen.backend == *backend);
        let is_vip = |backend: &Backend| self.is_cluster_ip(backend.ip);
        let usable: Vec<_> = leaders.iter().copied().filter(|seen| !is_vip(&seen.backend)).collect();
        let hint_scope = self.location().hint_scope(&ready_locations(&usable));
        let reason = |backend: Backend, endpoint: &Endpoint| {
            let stands = |chosen: &[Backend], here_only: bool| {
                if chosen.contains(&backend) {
                    if endpoint.ready { EndpointStatus::Chosen } else { EndpointStatus::LastResort }
                } else if is_vip(&backend) {
                    EndpointStatus::ClusterIp
                } else if !is_leader(&backend) {
                    EndpointStatus::NotLeader
                } else if here_only && !endpoint.local {
                    EndpointStatus::OtherNode
                } else if endpoint.ready {
                    hint_status(hint_scope)
                } else if endpoint.is_serving_terminating() {
                    EndpointStatus::Terminating
                } else {
                    EndpointStatus::NotReady
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

/// Why a ready endpoint is not chosen. (Hints do not apply to local endpoints.)
const fn hint_status(hint_scope: HintScope) -> EndpointStatus {
    match hint_scope {
        HintScope::SameNode => EndpointStatus::HintedForOtherNode,
        HintScope::SameZone | HintScope::Anywhere => EndpointStatus::HintedForOtherZone,
    }
}
