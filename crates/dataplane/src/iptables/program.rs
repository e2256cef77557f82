//! Turns plan changes into minimal rule changes.
//!
//! [`FamilyState::build`] computes everything and compares it with the saved rules; [`FamilyState::update`] computes
//! the changes. Both use the same fragments, and tests compare them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use kernel::iptables::{Name, Saved, Script, Step, Table};
use plan::{Frontend, Plan, PortKey, Role, ServicePort, Touched};

use super::base;
use super::context::Context;
use super::diff::{Diff, Edit};
use super::fragment::{self, Fragment, Shared};
use crate::frontends::owned;

/// With more endpoints than this, rules have no comments.
pub(super) const MAX_ENDPOINTS_WITH_COMMENTS: usize = 1000;

/// Rules of one family as written.
#[derive(Debug)]
pub(super) struct FamilyState {
    context: Context,
    ports: HashMap<PortKey, Programmed>,
    /// Number of their endpoints.
    endpoints: usize,
    /// Rules in shared chains that do not belong to a Service port.
    shared: BTreeSet<Shared>,
    /// Cluster IPs outside all ranges.
    outside_ranges: BTreeSet<IpAddr>,
}

/// A Service port as written.
#[derive(Clone, Debug)]
struct Programmed {
    port: Arc<ServicePort>,
    owned: Vec<(Frontend, Role)>,
}

impl Programmed {
    fn of(plan: &Plan, port: &Arc<ServicePort>) -> Self {
        Self { port: Arc::clone(port), owned: owned(plan, port) }
    }

    fn fragment(&self, context: &Context) -> Fragment {
        fragment::of(context, &self.port, &self.owned)
    }
}

impl FamilyState {
    /// State for a plan, and the script that corrects the saved rules.
    pub(super) fn build(plan: &Plan, family: Family, drop_invalid: bool, saved: &Saved) -> (Self, Script) {
        let here = || plan.ports.iter().filter(|(key, _)| key.family == family);
        let endpoints = here().map(|(_, port)| port.serving.len()).sum();
        let context = Context::of(plan, family, endpoints <= MAX_ENDPOINTS_WITH_COMMENTS, drop_invalid);
        let outside_ranges: BTreeSet<IpAddr> =
            plan.cluster_ips.keys().copied().filter(|ip| base::is_outside_ranges(&context, *ip)).collect();
        let shared: BTreeSet<Shared> = base::shared(plan, &context).into_iter().collect();
        let mut state = Self { context, ports: HashMap::new(), endpoints, shared: shared.clone(), outside_ranges };
        let mut diff = Diff::of(saved);
        let mut all = shared;
        all.extend(state.outside_ranges.iter().flat_map(|ip| base::reject_unknown(&state.context, (*ip).into())));
        for (table, name, rules) in base::chains(&state.context) {
            diff.chain(table, name.into(), rules);
        }
        for (key, port) in here() {
            let programmed = Programmed::of(plan, port);
            let fragment = programmed.fragment(&state.context);
            all.extend(fragment.shared);
            for (name, rules) in fragment.chains {
                diff.chain(Table::Nat, name, rules);
            }
            state.ports.insert(key.clone(), programmed);
        }
        diff.shared(all);
        (state, diff.finish())
    }

    /// The rules of a Service port as text.
    pub(super) fn text(&self, key: &PortKey) -> String {
        let Some(programmed) = self.ports.get(key) else { return String::new() };
        let Fragment { shared, chains } = programmed.fragment(&self.context);
        let mut out = format!("# {key} ({})\n", key.family.as_str());
        for Shared { table, chain, rule, .. } in &shared {
            out.push_str(&format!("-t {} -A {chain} {rule}\n", table.as_str()));
        }
        for (name, rules) in &chains {
            out.extend(rules.iter().map(|rule| format!("-t {} -A {name} {rule}\n", Table::Nat.as_str())));
        }
        out
    }

    /// Computes the changes of Service ports. None when other data changed and a full resync is needed.
    pub(super) fn update(&mut self, plan: &Plan, touched: &Touched) -> Option<Script> {
        let family = self.context.family;
        let mut delta = Delta::default();
        for key in touched.ports.iter().filter(|key| key.family == family) {
            if let Some(before) = self.ports.remove(key) {
                self.endpoints -= before.port.serving.len();
                delta.before(before.fragment(&self.context));
            }
            if let Some(port) = plan.ports.get(key) {
                let now = Programmed::of(plan, port);
                self.endpoints += now.port.serving.len();
                delta.now(now.fragment(&self.context));
                self.ports.insert(key.clone(), now);
            }
        }
        if Context::of(plan, family, self.endpoints <= MAX_ENDPOINTS_WITH_COMMENTS, self.context.drop_invalid)
            != self.context
        {
            return None;
        }
        for ip in touched.cluster_ips.iter().filter(|ip| base::is_outside_ranges(&self.context, **ip)) {
            let rules = || base::reject_unknown(&self.context, (*ip).into());
            if self.outside_ranges.remove(ip) {
                delta.gone.extend(rules());
            }
            if plan.cluster_ips.contains_key(ip) {
                delta.new.extend(rules());
                self.outside_ranges.insert(*ip);
            }
        }
        let shared = base::shared(plan, &self.context).into_iter().collect();
        delta.gone.append(&mut std::mem::replace(&mut self.shared, shared));
        delta.new.extend(self.shared.iter().cloned());
        Some(delta.script())
    }
}

/// Rules of the changed Service ports, before and after.
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

    /// Tables change one after the other. Reject rules only see packets that were not translated, so they are added
    /// before endpoints are removed and deleted after endpoints are added.
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
