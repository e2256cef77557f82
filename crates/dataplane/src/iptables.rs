//! The iptables backend: chains and rules as kube-proxy has them, so that people and tools find their way.
//!
//! In: plans. Out: scripts for `iptables-restore`, one per family and change. Rules in the chains that all Services share come
//! and go one by one; a Service port's own chains are rewritten when it changes; nothing else is written. After a start, what
//! is there is read and only differences are written. Rules of others stay as they are.

mod around;
mod correction;
mod fragment;
mod frame;
mod guard;
mod names;
mod program;

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use api::ip::Family;
use kernel::iptables::{Iptables as Port, IptablesError, Saved, Script, Step, Table};
use plan::{Plan, ServicePort};

use self::correction::{Edit, used_by_others, ways_in};
use self::names::{CANARY, is_ours};
use self::program::Side;
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// How often our rules are looked after.
const PAUSE: Duration = Duration::from_secs(5);

/// The backend.
pub struct Iptables<P> {
    port: P,
    drop_invalid: bool,
    pause: Duration,
    sides: BTreeMap<Family, Side>,
    /// Ends the guard when it is dropped.
    guard: Option<Sender<()>>,
}

impl<P: Port> Iptables<P> {
    /// Nothing is written yet. `drop_invalid`: whether packets that fit no connection are dropped; without that (or a
    /// kernel that is told to be liberal) a late packet of an endpoint may reach a client untranslated, who then gives up.
    pub const fn new(port: P, drop_invalid: bool) -> Self {
        Self { port, drop_invalid, pause: PAUSE, sides: BTreeMap::new(), guard: None }
    }

    /// Looks after its rules this often instead.
    #[must_use]
    pub const fn guarded_every(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Reads what the kernel has and makes it what it should be: after a start with unchanged objects nothing is written.
    fn bring_all(&mut self, plan: &Plan) -> Result<Brought, IptablesError> {
        let mut changes = 0;
        self.sides.clear();
        for family in self.port.families() {
            let saved = self.port.save(family)?;
            let (side, script) = Side::start(plan, ours(family), self.drop_invalid, &saved);
            changes += self.write(family, &script)?;
            self.sides.insert(ours(family), side);
        }
        if let Some(key) = plan.ports.keys().find(|key| !self.sides.contains_key(&key.family)) {
            let family = key.family.as_str();
            tracing::warn!(family, first = %key, "Services of this family are not served: the machine's iptables lacks it");
        }
        Ok(Brought { changes, untidy: 0 })
    }

    fn write(&mut self, family: kernel::Family, script: &Script) -> Result<usize, IptablesError> {
        if !script.is_empty() {
            self.port.restore(family, script)?;
        }
        Ok(script.len())
    }

    /// Writes what changed; nothing when everything must be looked through.
    fn follow(&mut self, plan: &Plan, touched: &plan::Touched) -> Result<Option<Brought>, IptablesError> {
        let families = self.port.families();
        let mut scripts = Vec::new();
        for family in families {
            let script = self.sides.get_mut(&ours(family)).and_then(|side| side.follow(plan, touched));
            let Some(script) = script else { return Ok(None) };
            scripts.push((family, script));
        }
        let mut changes = 0;
        for (family, script) in scripts {
            changes += self.write(family, &script)?;
        }
        Ok(Some(Brought { changes, untidy: 0 }))
    }
}

impl<P: Port + Clone + 'static> Backend for Iptables<P> {
    fn mode(&self) -> &'static str {
        "iptables"
    }

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        if let Since::Last(touched) = since
            && let Some(brought) = self.follow(plan, touched)?
        {
            return Ok(brought);
        }
        Ok(self.bring_all(plan)?)
    }

    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError> {
        let (end, ended) = channel();
        let (port, pause) = (self.port.clone(), self.pause);
        let watch = move || guard::watch(port, pause, &ended, &tampered);
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(watch);
        thread.map_err(|error| BackendError { what: format!("starting a thread: {error}") })?;
        self.guard = Some(end);
        Ok(())
    }

    fn rules(&self, _plan: &Plan, port: &ServicePort) -> String {
        self.sides.get(&port.key.family).map(|side| side.text(&port.key)).unwrap_or_default()
    }
}

impl From<IptablesError> for BackendError {
    fn from(error: IptablesError) -> Self {
        Self { what: error.to_string() }
    }
}

/// The family of a plan that a family of the kernel is.
const fn ours(family: kernel::Family) -> Family {
    match family {
        kernel::Family::Ip => Family::V4,
        kernel::Family::Ip6 => Family::V6,
    }
}

/// Whether what was saved has our canary: somebody else may use chains of the same names.
#[must_use]
pub fn is_written(saved: &Saved) -> bool {
    Table::ALL.into_iter().any(|table| sings(saved, table))
}

fn sings(saved: &Saved, table: Table) -> bool {
    saved.rules(table, CANARY).any(|rule| rule.is_some_and(|rule| rule == frame::canary()))
}

/// Removes what we ever wrote by way of a port; answers whether there was something. Chains of the same names that another
/// program wrote are left alone: ours have our canary.
///
/// # Errors
/// When it cannot be read or removed.
pub fn cleanup(port: &mut dyn Port) -> Result<bool, IptablesError> {
    let mut found = false;
    for family in port.families() {
        let saved = port.save(family)?;
        let mut script = Script::default();
        for table in [Table::Filter, Table::Nat, Table::Mangle] {
            if !sings(&saved, table) {
                continue;
            }
            let mut edit = Edit::default();
            for chain in table.built_in() {
                let ways = ways_in(&saved, table, chain);
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
