//! The iptables backend: chains and rules as kube-proxy writes them, so that existing tools work.
//!
//! In: plans. Out: scripts for `iptables-restore`, one per family and change. Rules in shared chains are added and
//! deleted one by one; the chains of a Service port are rewritten when it changes. After a start, only differences to
//! the saved rules are written. Rules of other programs stay.

mod base;
mod context;
mod diff;
mod fragment;
mod names;
mod program;
mod tamper;

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use api::ip::Family;
use kernel::iptables::{Iptables as Port, IptablesError, Saved, Script, Step, Table};
use plan::{Plan, ServicePort};

use self::diff::{Edit, entry_rules, used_by_others};
use self::names::{CANARY, is_ours};
use self::program::FamilyState;
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// Interval of the tamper check.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The iptables backend.
pub struct Iptables<P> {
    port: P,
    drop_invalid: bool,
    interval: Duration,
    families: BTreeMap<Family, FamilyState>,
    /// Stops the tamper watcher when dropped.
    watcher: Option<Sender<()>>,
}

impl<P: Port> Iptables<P> {
    /// Nothing is written yet. `drop_invalid`: drop packets in conntrack state INVALID. Without it (or
    /// `nf_conntrack_tcp_be_liberal`) a late packet of an endpoint may reach the client untranslated, which resets the
    /// connection.
    pub const fn new(port: P, drop_invalid: bool) -> Self {
        Self { port, drop_invalid, interval: CHECK_INTERVAL, families: BTreeMap::new(), watcher: None }
    }

    /// Sets the interval of the tamper check.
    #[must_use]
    pub const fn with_check_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Reads the kernel state and corrects the differences; after a restart with unchanged objects nothing is written.
    fn full_sync(&mut self, plan: &Plan) -> Result<SyncStats, IptablesError> {
        let mut changes = 0;
        self.families.clear();
        for family in self.port.families() {
            let saved = self.port.save(family)?;
            let (state, script) = FamilyState::build(plan, ours(family), self.drop_invalid, &saved);
            changes += self.write(family, &script)?;
            self.families.insert(ours(family), state);
        }
        if let Some(key) = plan.ports.keys().find(|key| !self.families.contains_key(&key.family)) {
            let family = key.family.as_str();
            tracing::warn!(family, first = %key, "Services of this family are not served: iptables does not support it");
        }
        Ok(SyncStats { changes, cleanup_failures: 0 })
    }

    fn write(&mut self, family: kernel::Family, script: &Script) -> Result<usize, IptablesError> {
        if !script.is_empty() {
            self.port.restore(family, script)?;
        }
        Ok(script.len())
    }

    /// Writes the changes; none when a full resync is needed.
    fn incremental_sync(&mut self, plan: &Plan, touched: &plan::Touched) -> Result<Option<SyncStats>, IptablesError> {
        let families = self.port.families();
        let mut scripts = Vec::new();
        for family in families {
            let script = self.families.get_mut(&ours(family)).and_then(|state| state.update(plan, touched));
            let Some(script) = script else { return Ok(None) };
            scripts.push((family, script));
        }
        let mut changes = 0;
        for (family, script) in scripts {
            changes += self.write(family, &script)?;
        }
        Ok(Some(SyncStats { changes, cleanup_failures: 0 }))
    }
}

impl<P: Port + Clone + 'static> Backend for Iptables<P> {
    fn mode(&self) -> &'static str {
        "iptables"
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        if let SyncScope::Changed(touched) = scope
            && let Some(stats) = self.incremental_sync(plan, touched)?
        {
            return Ok(stats);
        }
        Ok(self.full_sync(plan)?)
    }

    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError> {
        let (sender, stop) = channel();
        let (port, interval) = (self.port.clone(), self.interval);
        let watch = move || tamper::watch(port, interval, &stop, &on_tampering);
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(watch);
        thread.map_err(|error| BackendError { message: format!("cannot start the watcher thread: {error}") })?;
        self.watcher = Some(sender);
        Ok(())
    }

    fn rules(&self, _plan: &Plan, port: &ServicePort) -> String {
        self.families.get(&port.key.family).map(|state| state.text(&port.key)).unwrap_or_default()
    }
}

impl From<IptablesError> for BackendError {
    fn from(error: IptablesError) -> Self {
        Self { message: error.to_string() }
    }
}

/// The plan's type of a kernel family.
const fn ours(family: kernel::Family) -> Family {
    match family {
        kernel::Family::Ip => Family::V4,
        kernel::Family::Ip6 => Family::V6,
    }
}

/// Whether the saved rules contain our canary; other programs may use chains of the same names.
#[must_use]
pub fn is_written(saved: &Saved) -> bool {
    Table::ALL.into_iter().any(|table| has_canary(saved, table))
}

fn has_canary(saved: &Saved, table: Table) -> bool {
    saved.rules(table, CANARY).any(|rule| rule.is_some_and(|rule| rule == base::canary()))
}

/// Removes all our rules; returns whether there were any. Chains of the same names without our canary belong to other
/// programs and stay.
///
/// # Errors
/// When rules cannot be read or removed.
pub fn cleanup(port: &mut dyn Port) -> Result<bool, IptablesError> {
    let mut found = false;
    for family in port.families() {
        let saved = port.save(family)?;
        let mut script = Script::default();
        for table in [Table::Filter, Table::Nat, Table::Mangle] {
            if !has_canary(&saved, table) {
                continue;
            }
            let mut edit = Edit::default();
            for chain in table.built_in() {
                let ways = entry_rules(&saved, table, chain);
                edit.delete.extend(ways.into_iter().map(|line| Step::DeleteListed((*chain).into(), line.to_owned())));
            }
            let used = used_by_others(&saved, table);
            for name in saved.chains(table).filter(|name| is_ours(name)) {
                if used.contains(&**name) {
                    edit.empty.push(Step::Empty(name.clone()));
                } else {
                    edit.discard(name);
                }
            }
            script.section(table, edit.steps());
        }
        if !script.is_empty() {
            port.restore(family, &script)?;
            port.tidy(family)?;
            found = true;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
