//! From one plan to the next, with as few changes as possible.
//!
//! [`Program::start`] computes everything from scratch; [`Program::follow`] says what to change in the kernel when the plan has
//! changed. Both use the same fragments, and the tests hold them against each other: what was followed equals what is computed
//! anew.

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
use super::style::Style;
use super::whole::Whole;
use crate::frontends::owned;

/// Our families, in the order in which they are written.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Elements that several Service ports may have in common.
const SHARED: [&str; 1] = [HAIRPINS];

fn detector(plan: &Plan, family: Family) -> &plan::LocalDetector {
    ruleset::detector(&plan.options, family)
}

/// Follows a plan.
#[derive(Debug, Default)]
pub(crate) struct Program {
    style: Style,
    ports: HashMap<PortKey, Programmed>,
    cluster_ips: BTreeSet<IpAddr>,
    families: BTreeMap<Family, Side>,
}

/// A Service port as it was programmed.
#[derive(Clone, Debug)]
struct Programmed {
    port: Arc<ServicePort>,
    owned: Vec<(Frontend, Role)>,
}

/// What the table of one family has besides what follows from single Service ports.
#[derive(Debug, Default)]
struct Side {
    shared: HashMap<(&'static str, Key), u32>,
    /// By how many Service ports each is used; those that stay may be used by none.
    shapes: BTreeMap<Shape, u32>,
    surroundings: BTreeSet<(&'static str, Key)>,
}

impl Program {
    /// Follows a plan from nothing; the kernel is then to have these tables.
    pub(crate) fn start(style: Style, plan: &Plan) -> (Self, BTreeMap<Family, Whole>) {
        let mut tables: BTreeMap<Family, Whole> =
            FAMILIES.into_iter().map(|family| (family, Whole::bare(style, plan, family))).collect();
        let sides = FAMILIES.map(|family| {
            let surroundings = ruleset::surroundings(plan, family).into_iter().collect();
            let shapes = style.prepared().map(|shape| (shape, 0)).collect();
            (family, Side { surroundings, shapes, ..Side::default() })
        });
        let cluster_ips = plan.cluster_ips.keys().copied().collect();
        let ports = HashMap::with_capacity(plan.ports.len());
        let mut program = Self { style, ports, cluster_ips, families: sides.into() };
        for (key, port) in &plan.ports {
            let owned = owned(plan, port);
            let fragment = style.fragment(&plan.options, port, &owned);
            let side = program.families.entry(key.family).or_default();
            side.begin(plan, key.family, fragment, tables.entry(key.family).or_default());
            program.ports.insert(key.clone(), Programmed { port: Arc::clone(port), owned });
        }
        (program, tables)
    }

    /// Takes note of chains that an earlier run has left, and that may stay.
    pub(crate) fn keep(&mut self, family: Family, left: Vec<Shape>) {
        let shapes = &mut self.families.entry(family).or_default().shapes;
        for shape in left {
            shapes.entry(shape).or_default();
        }
    }

    /// Follows a plan in which some Service ports changed, or what surrounds them.
    pub(crate) fn follow(&mut self, plan: &Plan, touched: &Touched) -> Changes {
        let mut deltas: BTreeMap<Family, Delta> =
            FAMILIES.into_iter().map(|family| (family, Delta::default())).collect();
        for family in FAMILIES {
            self.surround(plan, family, deltas.entry(family).or_default());
        }
        for ip in &touched.cluster_ips {
            self.use_address(plan, *ip, deltas.entry(Family::of(*ip)).or_default());
        }
        for key in &touched.ports {
            let delta = deltas.entry(key.family).or_default();
            if let Some(Programmed { port, owned }) = self.ports.remove(key) {
                let fragment = self.style.fragment(&plan.options, &port, &owned);
                self.families.entry(key.family).or_default().take(plan, key.family, fragment, delta);
            }
        }
        for key in &touched.ports {
            let Some(port) = plan.ports.get(key) else { continue };
            let owned = owned(plan, port);
            let fragment = self.style.fragment(&plan.options, port, &owned);
            let delta = deltas.entry(key.family).or_default();
            self.families.entry(key.family).or_default().give(plan, key.family, fragment, delta);
            self.ports.insert(key.clone(), Programmed { port: Arc::clone(port), owned });
        }
        let mut changes = Changes::default();
        for (family, delta) in deltas {
            delta.write(self.style, family, &mut changes);
        }
        changes
    }

    /// An address became a cluster IP, or is none any more.
    fn use_address(&mut self, plan: &Plan, ip: IpAddr, delta: &mut Delta) {
        let place = (CLUSTER_IPS, address_key(ip));
        let (before, now) = (self.cluster_ips.contains(&ip), plan.cluster_ips.contains_key(&ip));
        let value = |is: bool| is.then_some(Value::Nothing);
        delta.elements.insert(place, (value(before), value(now)));
        if now {
            self.cluster_ips.insert(ip);
        } else {
            self.cluster_ips.remove(&ip);
        }
    }

    fn surround(&mut self, plan: &Plan, family: Family, delta: &mut Delta) {
        let side = self.families.entry(family).or_default();
        let wanted: BTreeSet<(&'static str, Key)> = ruleset::surroundings(plan, family).into_iter().collect();
        for gone in side.surroundings.difference(&wanted) {
            delta.elements.entry(gone.clone()).or_default().0 = Some(Value::Nothing);
        }
        for new in wanted.difference(&side.surroundings) {
            delta.elements.entry(new.clone()).or_default().1 = Some(Value::Nothing);
        }
        side.surroundings = wanted;
    }
}

impl Side {
    /// Puts what a Service port has into a table that is made anew.
    fn begin(&mut self, plan: &Plan, family: Family, fragment: Fragment, table: &mut Whole) {
        for ((set, key), value) in fragment.elements {
            if !SHARED.contains(&set) || self.is_first(&(set, key.clone())) {
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

    /// Counts one more that has an element in common with others; whether it is the first.
    fn is_first(&mut self, place: &(&'static str, Key)) -> bool {
        let count = self.shared.entry(place.clone()).or_default();
        *count += 1;
        *count == 1
    }

    /// Takes out what a Service port had.
    fn take(&mut self, plan: &Plan, family: Family, fragment: Fragment, delta: &mut Delta) {
        for ((set, key), value) in fragment.elements {
            if SHARED.contains(&set) {
                let place = (set, key);
                let count = self.shared.entry(place.clone()).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.shared.remove(&place);
                    delta.elements.entry(place).or_default().0 = Some(value);
                }
            } else {
                delta.elements.entry((set, key)).or_default().0 = Some(value);
            }
        }
        for shape in fragment.shapes {
            let count = self.shapes.entry(shape).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 && !shape.stays() {
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

    /// Puts in what a Service port has now.
    fn give(&mut self, plan: &Plan, family: Family, fragment: Fragment, delta: &mut Delta) {
        for ((set, key), value) in fragment.elements {
            let place = (set, key);
            if !SHARED.contains(&set) || self.is_first(&place) {
                delta.elements.entry(place).or_default().1 = Some(value);
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
