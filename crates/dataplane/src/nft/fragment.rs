//! The part of a table that belongs to one Service port: elements, the shared chains they refer to, and private chains.
//!
//! In: a Service port and the frontends it owns. Out: everything in the table that exists because of it. Pure: the
//! fragment of an older version of the port is recomputed instead of stored.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kernel::nft::{Chain, Key, Name, Set, Value, Verdict};
use plan::{Backend, Frontend, Options, Role, ServicePort};

use super::elements::{allowed_key, frontend_key, hairpin_key, node_port_key, node_port_slot_key, slot_key, target};
use super::private::PrivateChains;
use super::ruleset::{
    ALLOWED, FRONTENDS, GUARDED, HAIRPINS, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_PORTS, NOTHING, REFUSE,
};
use super::shapes::{At, ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, Shape};

/// The fragment of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fragment {
    /// Elements of the sets and maps that always exist.
    pub(crate) elements: BTreeMap<(&'static str, Key), Value>,
    /// Shapes of shared chains.
    pub(super) shapes: BTreeSet<Shape>,
    /// Private chains, named by content.
    pub(super) chains: BTreeMap<Name, Chain>,
    /// Private sets and maps; those filled by packets are never rewritten.
    pub(super) sets: BTreeMap<Name, Set>,
}

/// The fragment of a Service port that owns these frontends.
pub(super) fn of(options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut fragment = Fragment::with_hairpins(port);
    for (frontend, role) in owned {
        let Some(routing) = fragment.routing(port, *frontend, *role).reachable() else { continue };
        let chain = fragment.entry_chain(options, port, *frontend, routing);
        let (map, key) = map_key(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key, Verdict::Goto(chain).into_value());
    }
    fragment
}

/// Where the traffic of a frontend goes.
#[derive(Clone, Copy)]
pub(crate) enum Routing<'a> {
    /// No endpoint anywhere: reject.
    NoEndpoints,
    /// Traffic policy `Local` and no local endpoint: drop.
    NoLocalEndpoints,
    /// Any of these endpoints.
    Cluster(&'a [Backend]),
    /// Any of these endpoints, all on this node.
    Local(&'a [Backend]),
    /// External traffic, masqueraded, to any of these endpoints.
    Outside(&'a [Backend]),
    /// External traffic to the second list, which is local; traffic of Pods and the node itself to the first.
    OutsideLocal(&'a [Backend], &'a [Backend]),
}

impl<'a> Routing<'a> {
    pub(crate) fn of(port: &'a ServicePort, role: Role) -> Self {
        if !port.has_any {
            return Self::NoEndpoints;
        }
        match (role, port.internal_local, port.external_local) {
            (Role::Cluster, true, _) if port.local.is_empty() => Self::NoLocalEndpoints,
            (Role::Cluster, true, _) => Self::Local(&port.local),
            (Role::Cluster, false, _) => Self::Cluster(&port.cluster),
            (_, _, true) => Self::OutsideLocal(&port.cluster, &port.local),
            (_, _, false) => Self::Outside(&port.cluster),
        }
    }

    /// Itself, unless there is no endpoint.
    const fn reachable(self) -> Option<Self> {
        match self {
            Self::NoEndpoints | Self::NoLocalEndpoints => None,
            routing => Some(routing),
        }
    }

    /// Destinations of the IPVS virtual server, if it has any.
    pub(crate) fn ipvs_destinations(self) -> Option<&'a [Backend]> {
        let list = match self {
            Self::Cluster(list) | Self::Local(list) | Self::Outside(list) | Self::OutsideLocal(_, list) => list,
            Self::NoEndpoints | Self::NoLocalEndpoints => &[],
        };
        (!list.is_empty()).then_some(list)
    }

    /// Verdict for packets that were not translated; none when all are.
    fn untranslated_verdict(&self) -> Option<Verdict> {
        match self {
            Self::NoEndpoints => Some(Verdict::Goto(REFUSE.into())),
            Self::NoLocalEndpoints | Self::OutsideLocal(_, []) => Some(Verdict::Drop),
            Self::Cluster(_) | Self::Local(_) | Self::Outside(_) | Self::OutsideLocal(..) => None,
        }
    }

    pub(super) fn shape(self, at: At) -> Shape {
        let count = |list: &[Backend]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        match self {
            Self::Cluster(list) => Shape::Cluster(at, count(list)),
            Self::Local(list) => Shape::Local(at, count(list)),
            Self::Outside(list) => Shape::Outside(at, count(list)),
            Self::OutsideLocal(list, here) => Shape::OutsideLocal(at, count(list), count(here)),
            Self::NoEndpoints | Self::NoLocalEndpoints => Shape::Cluster(at, 0),
        }
    }
}

pub(super) fn at(frontend: Frontend) -> At {
    match frontend {
        Frontend::Address(..) => At::Address,
        Frontend::NodePort(..) => At::NodePort,
    }
}

/// Map and key of a frontend.
pub(super) fn map_key(frontend: Frontend, addresses: &'static str, node_ports: &'static str) -> (&'static str, Key) {
    match frontend {
        Frontend::Address(ip, protocol, port) => (addresses, frontend_key(ip, protocol, port)),
        Frontend::NodePort(_, protocol, port) => (node_ports, node_port_key(protocol, port)),
    }
}

impl Fragment {
    /// A fragment with the hairpin elements of a port.
    pub(super) fn with_hairpins(port: &ServicePort) -> Self {
        let mut fragment = Self::default();
        for backend in &port.hairpin {
            fragment.put(HAIRPINS, hairpin_key(*backend, port.key.protocol), NOTHING);
        }
        fragment
    }

    /// Routing of a frontend; also adds its source restrictions and its verdict for untranslated packets.
    pub(super) fn routing<'a>(&mut self, port: &'a ServicePort, frontend: Frontend, role: Role) -> Routing<'a> {
        if role == Role::LoadBalancer {
            self.restrict_sources(port, frontend);
        }
        let routing = Routing::of(port, role);
        self.handle_untranslated(frontend, &routing);
        routing
    }

    /// The chain from a frontend to its endpoints.
    pub(super) fn entry_chain(
        &mut self,
        options: &Options,
        port: &ServicePort,
        frontend: Frontend,
        routing: Routing<'_>,
    ) -> Name {
        match PrivateChains::of(options, port) {
            Some(private) => private.chain(routing, self),
            None => {
                self.slots(frontend, routing);
                self.shape(routing.shape(at(frontend)))
            }
        }
    }

    pub(super) fn put(&mut self, set: &'static str, key: Key, value: Value) {
        self.elements.insert((set, key), value);
    }

    /// Adds the verdict for packets that were not translated.
    fn handle_untranslated(&mut self, frontend: Frontend, routing: &Routing<'_>) {
        if let Some(verdict) = routing.untranslated_verdict() {
            let (map, key) = map_key(frontend, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS);
            self.put(map, key, verdict.into_value());
        }
    }

    /// Restricts a load balancer address to `loadBalancerSourceRanges`.
    fn restrict_sources(&mut self, port: &ServicePort, frontend: Frontend) {
        let (Some(ranges), Frontend::Address(ip, protocol, number)) = (&port.source_ranges, frontend) else { return };
        self.put(GUARDED, frontend_key(ip, protocol, number), NOTHING);
        for range in allowed_sources(port, ranges) {
            self.put(ALLOWED, allowed_key(ip, protocol, number, &range), NOTHING);
        }
    }

    /// Fills the endpoint slots of a frontend.
    fn slots(&mut self, frontend: Frontend, routing: Routing<'_>) {
        let (anywhere, here): (&[Backend], &[Backend]) = match routing {
            Routing::Cluster(list) | Routing::Outside(list) => (list, &[]),
            Routing::Local(list) => (&[], list),
            Routing::OutsideLocal(list, here) => (list, here),
            Routing::NoEndpoints | Routing::NoLocalEndpoints => (&[], &[]),
        };
        let maps = match at(frontend) {
            At::Address => (ENDPOINTS, LOCAL_ENDPOINTS),
            At::NodePort => (NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS),
        };
        for (map, list) in [(maps.0, anywhere), (maps.1, here)] {
            for (slot, backend) in (0u32..).zip(list) {
                let key = match frontend {
                    Frontend::Address(ip, protocol, port) => slot_key(ip, protocol, port, slot),
                    Frontend::NodePort(_, protocol, port) => node_port_slot_key(protocol, port, slot),
                };
                self.put(map, key, target(*backend));
            }
        }
    }

    fn shape(&mut self, shape: Shape) -> Name {
        self.shapes.extend(shape.referenced());
        self.shapes.insert(shape);
        shape.name()
    }
}

/// Allowed sources of a load balancer, including its own addresses where the node may use them.
fn allowed_sources(port: &ServicePort, ranges: &[IpNet]) -> Vec<IpNet> {
    let mut all = ranges.to_vec();
    if port.own_vips_allowed {
        all.extend(port.lb_ips.iter().map(|ip| IpNet::from(*ip)));
    }
    IpNet::aggregate(&all)
}

/// Converts a verdict to a map value.
pub(super) trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for Verdict {
    fn into_value(self) -> Value {
        Value::Verdict(self)
    }
}
