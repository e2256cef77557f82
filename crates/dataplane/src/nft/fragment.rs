//! What one Service port adds to the tables: elements, the shared chains they lead to, and chains of its own.
//!
//! In: a Service port and the frontends it has. Out: everything that must be in the table of its family because of it. Pure, so
//! what was written for an older version of the port is known by computing it again, and need not be kept.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kernel::nft::{Chain, Key, Name, Set, Value, Verdict};
use plan::{Backend, Frontend, Options, Role, ServicePort};

use super::affinity::Sticky;
use super::elements::{allowed_key, frontend_key, hairpin_key, node_port_key, node_port_slot_key, slot_key, target};
use super::ruleset::{
    ALLOWED, FRONTENDS, GUARDED, HAIRPINS, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_PORTS, NOTHING, REFUSE,
};
use super::shapes::{At, ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, Shape};

/// What a Service port adds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fragment {
    /// Elements of the sets and maps that are always there.
    pub(crate) elements: BTreeMap<(&'static str, Key), Value>,
    /// Shared chains.
    pub(super) shapes: BTreeSet<Shape>,
    /// Chains of its own, whose names tell their content apart.
    pub(super) chains: BTreeMap<Name, Chain>,
    /// Sets and maps of its own; those that packets fill stay as they are.
    pub(super) sets: BTreeMap<Name, Set>,
}

/// What a Service port adds, given the frontends that are its own.
pub(super) fn of(options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut fragment = Fragment::begin(port);
    for (frontend, role) in owned {
        let Some(way) = fragment.way(port, *frontend, *role).open() else { continue };
        let chain = fragment.lead(options, port, *frontend, way);
        let (map, key) = place(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key, Verdict::Goto(chain).into_value());
    }
    fragment
}

/// How a frontend leads to endpoints.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// Nobody could answer anywhere.
    Nobody,
    /// Traffic must stay here, and nobody is here.
    NobodyHere,
    /// One of these.
    To(&'a [Backend]),
    /// One of these on this node.
    Here(&'a [Backend]),
    /// One of these, and it sees the node.
    Outside(&'a [Backend]),
    /// For Pods and the node itself one of the first, else one of the second, which are here.
    OutsideLocal(&'a [Backend], &'a [Backend]),
}

impl<'a> Way<'a> {
    pub(crate) fn of(port: &'a ServicePort, role: Role) -> Self {
        if !port.has_any {
            return Self::Nobody;
        }
        match (role, port.internal_local, port.external_local) {
            (Role::Cluster, true, _) if port.local.is_empty() => Self::NobodyHere,
            (Role::Cluster, true, _) => Self::Here(&port.local),
            (Role::Cluster, false, _) => Self::To(&port.cluster),
            (_, _, true) => Self::OutsideLocal(&port.cluster, &port.local),
            (_, _, false) => Self::Outside(&port.cluster),
        }
    }

    /// Itself, if it leads anywhere.
    const fn open(self) -> Option<Self> {
        match self {
            Self::Nobody | Self::NobodyHere => None,
            way => Some(way),
        }
    }

    /// The endpoints that a virtual server has for everybody; nothing when there is none.
    pub(crate) fn balanced(self) -> Option<&'a [Backend]> {
        let list = match self {
            Self::To(list) | Self::Here(list) | Self::Outside(list) | Self::OutsideLocal(_, list) => list,
            Self::Nobody | Self::NobodyHere => &[],
        };
        (!list.is_empty()).then_some(list)
    }

    /// What happens to packets that were not translated; nothing when none are left.
    fn otherwise(&self) -> Option<Verdict> {
        match self {
            Self::Nobody => Some(Verdict::Goto(REFUSE.into())),
            Self::NobodyHere | Self::OutsideLocal(_, []) => Some(Verdict::Drop),
            Self::To(_) | Self::Here(_) | Self::Outside(_) | Self::OutsideLocal(..) => None,
        }
    }

    pub(super) fn shape(self, at: At) -> Shape {
        let count = |list: &[Backend]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        match self {
            Self::To(list) => Shape::Cluster(at, count(list)),
            Self::Here(list) => Shape::Local(at, count(list)),
            Self::Outside(list) => Shape::Outside(at, count(list)),
            Self::OutsideLocal(list, here) => Shape::OutsideLocal(at, count(list), count(here)),
            Self::Nobody | Self::NobodyHere => Shape::Cluster(at, 0),
        }
    }
}

pub(super) fn at(frontend: Frontend) -> At {
    match frontend {
        Frontend::Address(..) => At::Address,
        Frontend::NodePort(..) => At::NodePort,
    }
}

/// The map of a frontend and its key there.
pub(super) fn place(frontend: Frontend, addresses: &'static str, node_ports: &'static str) -> (&'static str, Key) {
    match frontend {
        Frontend::Address(ip, protocol, port) => (addresses, frontend_key(ip, protocol, port)),
        Frontend::NodePort(_, protocol, port) => (node_ports, node_port_key(protocol, port)),
    }
}

impl Fragment {
    /// With what a Service port adds whatever its frontends are.
    pub(super) fn begin(port: &ServicePort) -> Self {
        let mut fragment = Self::default();
        for backend in &port.hairpin {
            fragment.put(HAIRPINS, hairpin_key(*backend, port.key.protocol), NOTHING);
        }
        fragment
    }

    /// How a frontend leads to endpoints; who may not go there is kept out.
    pub(super) fn way<'a>(&mut self, port: &'a ServicePort, frontend: Frontend, role: Role) -> Way<'a> {
        if role == Role::LoadBalancer {
            self.guard(port, frontend);
        }
        let way = Way::of(port, role);
        self.close(frontend, &way);
        way
    }

    /// The chain that leads from a frontend to endpoints.
    pub(super) fn lead(&mut self, options: &Options, port: &ServicePort, frontend: Frontend, way: Way<'_>) -> Name {
        match port.affinity {
            Some(seconds) => Sticky::new(options, port, seconds).chain(way, self),
            None => {
                self.slots(frontend, way);
                self.shape(way.shape(at(frontend)))
            }
        }
    }

    pub(super) fn put(&mut self, set: &'static str, key: Key, value: Value) {
        self.elements.insert((set, key), value);
    }

    /// Says what happens to packets that were not translated.
    fn close(&mut self, frontend: Frontend, way: &Way<'_>) {
        if let Some(verdict) = way.otherwise() {
            let (map, key) = place(frontend, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS);
            self.put(map, key, verdict.into_value());
        }
    }

    /// Lets only some use a load balancer's address.
    fn guard(&mut self, port: &ServicePort, frontend: Frontend) {
        let (Some(ranges), Frontend::Address(ip, protocol, number)) = (&port.source_ranges, frontend) else { return };
        self.put(GUARDED, frontend_key(ip, protocol, number), NOTHING);
        for range in with_own_addresses(port, ranges) {
            self.put(ALLOWED, allowed_key(ip, protocol, number, &range), NOTHING);
        }
    }

    /// Fills the slots behind a frontend.
    fn slots(&mut self, frontend: Frontend, way: Way<'_>) {
        let (anywhere, here): (&[Backend], &[Backend]) = match way {
            Way::To(list) | Way::Outside(list) => (list, &[]),
            Way::Here(list) => (&[], list),
            Way::OutsideLocal(list, here) => (list, here),
            Way::Nobody | Way::NobodyHere => (&[], &[]),
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
        self.shapes.extend(shape.leads_to());
        self.shapes.insert(shape);
        shape.name()
    }
}

/// Who may use a load balancer: its own addresses too, where the node that has them may.
fn with_own_addresses(port: &ServicePort, ranges: &[IpNet]) -> Vec<IpNet> {
    let mut all = ranges.to_vec();
    if port.own_vips_allowed {
        all.extend(port.lb_ips.iter().map(|ip| IpNet::from(*ip)));
    }
    IpNet::aggregate(&all)
}

/// A verdict as the value of a map.
pub(super) trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for Verdict {
    fn into_value(self) -> Value {
        Value::Verdict(self)
    }
}
