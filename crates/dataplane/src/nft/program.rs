//! Turns plan changes into minimal table changes.
//!
//! [`Program::build`] computes everything; [`Program::update`] computes the changes. Both use the same fragments, and
//! tests check that a sequence of updates equals a fresh build.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use kernel::nft::{Key, Value};
use plan::{Frontend, Plan, PortKey, Role, ServicePort, Touched};

use super::delta::{Changes, Delta};
use super::elements::address_key;
use super::fragment::Fragment;
use super::ruleset::{self, CLUSTER_IPS, HAIRPINS};
use super::shapes::Shape;
use super::table::Table;
use super::table_kind::TableKind;
use crate::frontends::owned;

/// Families, in write order.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Sets whose elements several Service ports may share.
const SHARED: [&str; 1] = [HAIRPINS];

fn detector(plan: &Plan, family: Family) -> &plan::LocalDetector {
    ruleset::detector(&plan.options, family)
}

/// State of the tables as written.
#[derive(Debug, Default)]
pub(crate) struct Program {
    kind: TableKind,
    ports: HashMap<PortKey, Programmed>,
    cluster_ips: BTreeSet<IpAddr>,
    families: BTreeMap<Family, FamilyState>,
}

/// A Service port as written.
#[derive(Clone, Debug)]
struct Programmed {
    port: Arc<ServicePort>,
    owned: Vec<(Frontend, Role)>,
}

/// Per-family state that does not belong to a single Service port.
#[derive(Debug, Default)]
struct FamilyState {
    shared: HashMap<(&'static str, Key), u32>,
    /// Number of Service ports per shape; kept shapes may have none.
    shapes: BTreeMap<Shape, u32>,
    node_elements: BTreeSet<(&'static str, Key)>,
}

impl Program {
    /// Builds the state for a plan, and the desired tables.
    pub(crate) fn build(kind: TableKind, plan: &Plan) -> (Self, BTreeMap<Family, Table>) {
        let mut tables: BTreeMap<Family, Table> =
            FAMILIES.into_iter().map(|family| (family, Table::bare(kind, plan, family))).collect();
        let families = FAMILIES.map(|family| {
            let node_elements = ruleset::node_elements(plan, family).into_iter().collect();
            let shapes = kind.prepared().map(|shape| (shape, 0)).collect();
            (family, FamilyState { node_elements, shapes, ..FamilyState::default() })
        });
        let cluster_ips = plan.cluster_ips.keys().copied().collect();
        let ports = HashMap::with_capacity(plan.ports.len());
        let mut program = Self { kind, ports, cluster_ips, families: families.into() };
        for (key, port) in &plan.ports {
            let owned = owned(plan, port);
            let fragment = kind.fragment(&plan.options, port, &owned);
            let state = program.families.entry(key.family).or_default();
            state.init(plan, key.family, fragment, tables.entry(key.family).or_default());
            program.ports.insert(key.clone(), Programmed { port: Arc::clone(port), owned });
        }
        (program, tables)
    }

    /// Records unused chains of an earlier run that may stay.
    pub(crate) fn keep_chains(&mut self, family: Family, left: Vec<Shape>) {
        let shapes = &mut self.families.entry(family).or_default().shapes;
        for shape in left {
            shapes.entry(shape).or_default();
        }
    }

    /// Computes the changes for a plan in which ports, cluster IPs or node data changed.
    pub(crate) fn update(&mut self, plan: &Plan, touched: &Touched) -> Changes {
        let mut deltas: BTreeMap<Family, Delta> =
            FAMILIES.into_iter().map(|family| (family, Delta::default())).collect();
        for family in FAMILIES {
            self.sync_node_elements(plan, family, deltas.entry(family).or_default());
        }
        for ip in &touched.cluster_ips {
            self.sync_cluster_ip(plan, *ip, deltas.entry(Family::of(*ip)).or_default());
        }
        for key in &touched.ports {
            let delta = deltas.entry(key.family).or_default();
            if let Some(Programmed { port, owned }) = self.ports.remove(key) {
                let fragment = self.kind.fragment(&plan.options, &port, &owned);
                self.families.entry(key.family).or_default().remove(plan, key.family, fragment, delta);
            }
        }
        for key in &touched.ports {
            let Some(port) = plan.ports.get(key) else { continue };
            let owned = owned(plan, port);
            let fragment = self.kind.fragment(&plan.options, port, &owned);
            let delta = deltas.entry(key.family).or_default();
            self.families.entry(key.family).or_default().add(plan, key.family, fragment, delta);
            self.ports.insert(key.clone(), Programmed { port: Arc::clone(port), owned });
        }
        let mut changes = Changes::default();
        for (family, delta) in deltas {
            delta.write(self.kind, family, &mut changes);
        }
        changes
    }

    /// Adds or deletes the element of a cluster IP.
    fn sync_cluster_ip(&mut self, plan: &Plan, ip: IpAddr, delta: &mut Delta) {
        let element = (CLUSTER_IPS, address_key(ip));
        let (before, now) = (self.cluster_ips.contains(&ip), plan.cluster_ips.contains_key(&ip));
        let value = |is: bool| is.then_some(Value::Nothing);
        delta.elements.insert(element, (value(before), value(now)));
        if now {
            self.cluster_ips.insert(ip);
        } else {
            self.cluster_ips.remove(&ip);
        }
    }

    fn sync_node_elements(&mut self, plan: &Plan, family: Family, delta: &mut Delta) {
        let state = self.families.entry(family).or_default();
        let wanted: BTreeSet<(&'static str, Key)> = ruleset::node_elements(plan, family).into_iter().collect();
        for gone in state.node_elements.difference(&wanted) {
            delta.elements.entry(gone.clone()).or_default().0 = Some(Value::Nothing);
        }
        for new in wanted.difference(&state.node_elements) {
            delta.elements.entry(new.clone()).or_default().1 = Some(Value::Nothing);
        }
        state.node_elements = wanted;
    }
}

impl FamilyState {
    /// Adds the fragment of a Service port to a new table.
    fn init(&mut self, plan: &Plan, family: Family, fragment: Fragment, table: &mut Table) {
        for ((set, key), value) in fragment.elements {
            if !SHARED.contains(&set) || self.add_reference(&(set, key.clone())) {
                table.put(set, key, value);
            }
        }
        for shape in fragment.shapes {
            *self.shapes.entry(shape).or_default() += 1;
            table.chains.entry(shape.name()).or_insert_with(|| shape.chain(detector(plan, family)));
        }
        table.chains.extend(fragment.chains);
        table.sets.extend(fragment.sets);
    }

    /// Counts a reference to a shared element; returns whether it is the first.
    fn add_reference(&mut self, element: &(&'static str, Key)) -> bool {
        let count = self.shared.entry(element.clone()).or_default();
        *count += 1;
        *count == 1
    }

    /// Removes the fragment of a Service port.
    fn remove(&mut self, plan: &Plan, family: Family, fragment: Fragment, delta: &mut Delta) {
        for ((set, key), value) in fragment.elements {
            if SHARED.contains(&set) {
                let element = (set, key);
                let count = self.shared.entry(element.clone()).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.shared.remove(&element);
                    delta.elements.entry(element).or_default().0 = Some(value);
                }
            } else {
                delta.elements.entry((set, key)).or_default().0 = Some(value);
            }
        }
        for shape in fragment.shapes {
            let count = self.shapes.entry(shape).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 && !shape.is_kept() {
                self.shapes.remove(&shape);
                let chain = shape.chain(detector(plan, family));
                delta.chains.entry(shape.name()).or_default().0 = Some(chain);
            }
        }
        for (name, chain) in fragment.chains {
            delta.chains.entry(name).or_default().0 = Some(chain);
        }
        for (name, set) in fragment.sets {
            delta.sets.entry(name).or_default().0 = Some(set);
        }
    }

    /// Adds the fragment of a Service port.
    fn add(&mut self, plan: &Plan, family: Family, fragment: Fragment, delta: &mut Delta) {
        for ((set, key), value) in fragment.elements {
            let element = (set, key);
            if !SHARED.contains(&set) || self.add_reference(&element) {
                delta.elements.entry(element).or_default().1 = Some(value);
            }
        }
        for shape in fragment.shapes {
            let count = self.shapes.entry(shape).or_insert_with(|| {
                let chain = shape.chain(detector(plan, family));
                delta.chains.entry(shape.name()).or_default().1 = Some(chain);
                0
            });
            *count += 1;
        }
        for (name, chain) in fragment.chains {
            delta.chains.entry(name).or_default().1 = Some(chain);
        }
        for (name, set) in fragment.sets {
            delta.sets.entry(name).or_default().1 = Some(set);
        }
    }
}
