//! From one plan to the next, with as few changes as possible.
//!
//! [`Side::start`] computes everything and holds it against what the kernel has; [`Side::follow`] says what to change when the
//! plan has changed. Both use the same fragments, and the tests hold them against each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use kernel::iptables::{Name, Saved, Script, Step, Table};
use plan::{Frontend, Plan, PortKey, Role, ServicePort, Touched};

use super::around::Around;
use super::correction::{Correction, Edit};
use super::fragment::{self, Fragment, Shared};
use super::frame;
use crate::frontends::owned;

/// With more endpoints than this, rules do not say what they are for.
pub(super) const LARGE: usize = 1000;

/// What was programmed of one family.
#[derive(Debug)]
pub(super) struct Side {
    around: Around,
    ports: HashMap<PortKey, Programmed>,
    /// How many endpoints those have.
    endpoints: usize,
    /// Rules in shared chains that follow from no Service port.
    shared: BTreeSet<Shared>,
    /// Cluster IPs outside all ranges.
    odd: BTreeSet<IpAddr>,
}

/// A Service port as it was programmed.
#[derive(Clone, Debug)]
struct Programmed {
    port: Arc<ServicePort>,
    owned: Vec<(Frontend, Role)>,
}

impl Programmed {
    fn of(plan: &Plan, port: &Arc<ServicePort>) -> Self {
        Self { port: Arc::clone(port), owned: owned(plan, port) }
    }

    fn fragment(&self, around: &Around) -> Fragment {
        fragment::of(around, &self.port, &self.owned)
    }
}

impl Side {
    /// Follows a plan from nothing: the script makes what was saved what it should be.
    pub(super) fn start(plan: &Plan, family: Family, drop_invalid: bool, saved: &Saved) -> (Self, Script) {
        let here = || plan.ports.iter().filter(|(key, _)| key.family == family);
        let endpoints = here().map(|(_, port)| port.serving.len()).sum();
        let around = Around::of(plan, family, endpoints <= LARGE, drop_invalid);
        let odd: BTreeSet<IpAddr> = plan.cluster_ips.keys().copied().filter(|ip| frame::is_odd(&around, *ip)).collect();
        let shared: BTreeSet<Shared> = frame::shared(plan, &around).into_iter().collect();
        let mut side = Self { around, ports: HashMap::new(), endpoints, shared: shared.clone(), odd };
        let mut correction = Correction::of(saved);
        let mut all = shared;
        all.extend(side.odd.iter().flat_map(|ip| frame::unknown(&side.around, (*ip).into())));
        for (table, name, rules) in frame::chains(&side.around) {
            correction.chain(table, name.into(), rules);
        }
        for (key, port) in here() {
            let programmed = Programmed::of(plan, port);
            let fragment = programmed.fragment(&side.around);
            all.extend(fragment.shared);
            for (name, rules) in fragment.chains {
                correction.chain(Table::Nat, name, rules);
            }
            side.ports.insert(key.clone(), programmed);
        }
        correction.shared(all);
        (side, correction.finish())
    }

    /// What was written for a Service port, for people to read.
    pub(super) fn text(&self, key: &PortKey) -> String {
        let Some(programmed) = self.ports.get(key) else { return String::new() };
        let Fragment { shared, chains } = programmed.fragment(&self.around);
        let mut out = format!("# {key} ({})\n", key.family.as_str());
        for Shared { table, chain, rule, .. } in &shared {
            out.push_str(&format!("-t {} -A {chain} {rule}\n", table.as_str()));
        }
        for (name, rules) in &chains {
            out.extend(rules.iter().map(|rule| format!("-t {} -A {name} {rule}\n", Table::Nat.as_str())));
        }
        out
    }

    /// Follows a plan in which some Service ports changed. Nothing when more changed than that, and everything must be looked
    /// through.
    pub(super) fn follow(&mut self, plan: &Plan, touched: &Touched) -> Option<Script> {
        let family = self.around.family;
        let mut delta = Delta::default();
        for key in touched.ports.iter().filter(|key| key.family == family) {
            if let Some(before) = self.ports.remove(key) {
                self.endpoints -= before.port.serving.len();
                delta.before(before.fragment(&self.around));
            }
            if let Some(port) = plan.ports.get(key) {
                let now = Programmed::of(plan, port);
                self.endpoints += now.port.serving.len();
                delta.now(now.fragment(&self.around));
                self.ports.insert(key.clone(), now);
            }
        }
        if Around::of(plan, family, self.endpoints <= LARGE, self.around.drop_invalid) != self.around {
            return None;
        }
        for ip in touched.cluster_ips.iter().filter(|ip| frame::is_odd(&self.around, **ip)) {
            let rules = || frame::unknown(&self.around, (*ip).into());
            if self.odd.remove(ip) {
                delta.gone.extend(rules());
            }
            if plan.cluster_ips.contains_key(ip) {
                delta.new.extend(rules());
                self.odd.insert(*ip);
            }
        }
        let shared = frame::shared(plan, &self.around).into_iter().collect();
        delta.gone.append(&mut std::mem::replace(&mut self.shared, shared));
        delta.new.extend(self.shared.iter().cloned());
        Some(delta.script())
    }
}

/// What was there because of some Service ports, and what is to be.
#[derive(Default)]
struct Delta {
    gone: BTreeSet<Shared>,
    new: BTreeSet<Shared>,
    chains: BTreeMap<Name, [Option<Vec<kernel::iptables::Rule>>; 2]>,
}

impl Delta {
    fn before(&mut self, fragment: Fragment) {
        self.gone.extend(fragment.shared);
        for (name, rules) in fragment.chains {
            self.chains.entry(name).or_default()[0] = Some(rules);
        }
    }

    fn now(&mut self, fragment: Fragment) {
        self.new.extend(fragment.shared);
        for (name, rules) in fragment.chains {
            self.chains.entry(name).or_default()[1] = Some(rules);
        }
    }

    /// Tables change one after the other. What refuses packets sees only those that were not led to an endpoint, so it comes
    /// before the endpoints go, and goes after they came.
    fn script(self) -> Script {
        let mut nat = Edit::default();
        let mut filter = Edit::default();
        for (name, [before, now]) in self.chains {
            match (before, now) {
                (before, Some(now)) if before.as_ref() != Some(&now) => nat.rewrite(&name, now),
                (Some(_), None) => nat.discard(&name),
                _ => {}
            }
        }
        for Shared { table, chain, rule, .. } in self.gone.difference(&self.new).cloned() {
            let edit = if table == Table::Nat { &mut nat } else { &mut filter };
            edit.delete.push(Step::Delete(chain.into(), rule));
        }
        for Shared { table, chain, last, rule } in self.new.difference(&self.gone).cloned() {
            let edit = if table == Table::Nat { &mut nat } else { &mut filter };
            let add = if last { Step::Append } else { Step::Insert };
            edit.add.push(add(chain.into(), rule));
        }
        let mut script = Script::default();
        script.section(Table::Filter, filter.add);
        script.section(Table::Nat, nat.steps());
        script.section(Table::Filter, filter.delete);
        script
    }
}
