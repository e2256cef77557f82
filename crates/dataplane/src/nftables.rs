//! The nftables backend: applies programs to the kernel.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use api::ip::Family;
use kernel::nft::{Batch, Change, Dump, Key, Nft, NftError, Value};
use plan::{Plan, ServicePort, Touched};

use crate::nft::{self, Changes, FAMILIES, Program, TableKind, Trust, kernel_family, tamper};
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// The nftables backend.
pub struct Nftables<N> {
    nft: N,
    kind: TableKind,
    program: Program,
    /// Deletions of unused objects that have not succeeded yet.
    pending_cleanup: Batch,
    /// Kernel generation number after our last write.
    generation: u32,
    /// Kernel state that is read while objects are being listed.
    prefetched: Option<JoinHandle<Result<KernelState, NftError>>>,
}

/// Our tables in the kernel.
pub(crate) struct KernelState {
    generation: u32,
    tables: BTreeMap<Family, Option<Dump>>,
}

impl KernelState {
    fn read(nft: &mut impl Nft, kind: TableKind) -> Result<Self, NftError> {
        let generation = nft.generation()?;
        let mut tables = BTreeMap::new();
        for family in FAMILIES {
            tables.insert(family, nft.dump(kernel_family(family), kind.table())?);
        }
        Ok(Self { generation, tables })
    }

    /// Elements of a set in both families.
    pub(crate) fn keys(&self, set: &str) -> impl Iterator<Item = (Family, &Key)> {
        let tables = self.tables.iter().filter_map(|(family, table)| Some((*family, table.as_ref()?.sets.get(set)?)));
        tables.flat_map(|(family, set)| set.elements.keys().map(move |key| (family, key)))
    }
}

/// An element that does not follow from the plan alone.
pub(crate) type ExtraElement = (Family, &'static str, Key);

impl<N: Nft> Nftables<N> {
    /// Nothing is written yet.
    pub fn new(nft: N) -> Self {
        Self::with_kind(nft, TableKind::Nftables)
    }

    /// A backend with tables of this kind; nothing is written yet.
    pub(crate) fn with_kind(nft: N, kind: TableKind) -> Self {
        let (program, pending_cleanup) = (Program::default(), Batch::default());
        Self { nft, kind, program, pending_cleanup, generation: 0, prefetched: None }
    }

    /// Starts to read the kernel state on another socket: this takes as long as listing a large cluster.
    #[must_use]
    pub fn prefetch(mut self, mut reader: N) -> Self
    where
        N: 'static,
    {
        let kind = self.kind;
        let read = move || KernelState::read(&mut reader, kind);
        // Without a thread the state is read when needed.
        self.prefetched = std::thread::Builder::new().name("nft-prefetch".to_owned()).spawn(read).ok();
        self
    }

    /// The kernel state: the prefetched one, if the generation is unchanged.
    pub(crate) fn kernel_state(&mut self) -> Result<KernelState, NftError> {
        let prefetched = self.prefetched.take().and_then(|prefetched| prefetched.join().ok()?.ok());
        let generation = self.nft.generation()?;
        match prefetched.filter(|found| found.generation == generation) {
            Some(found) => Ok(found),
            None => KernelState::read(&mut self.nft, self.kind),
        }
    }

    /// Reads the kernel state and corrects the differences; after a restart with unchanged objects nothing is written.
    fn full_sync(&mut self, plan: &Plan, trust: Trust) -> Result<SyncStats, NftError> {
        let state = self.kernel_state()?;
        self.reconcile(plan, trust, state, Vec::new())
    }

    /// Corrects the kernel state to the plan plus `extra`.
    pub(crate) fn reconcile(
        &mut self,
        plan: &Plan,
        trust: Trust,
        mut state: KernelState,
        extra: Vec<ExtraElement>,
    ) -> Result<SyncStats, NftError> {
        let (mut program, mut tables) = Program::build(self.kind, plan);
        for (family, set, key) in extra {
            if let Some(table) = tables.get_mut(&family) {
                table.put(set, key, Value::Nothing);
            }
        }
        let mut changes = Changes::default();
        for (family, table) in tables {
            let (these, left) = table.reconcile(family, state.tables.remove(&family).flatten(), trust);
            changes.append(these);
            program.keep_chains(family, left);
        }
        self.pending_cleanup = Batch::default();
        let stats = self.write(changes)?;
        self.program = program;
        self.generation = self.nft.generation()?;
        Ok(stats)
    }

    /// Applies changes of the plan.
    pub(crate) fn incremental_sync(&mut self, plan: &Plan, touched: &Touched) -> Result<SyncStats, NftError> {
        let changes = self.program.update(plan, touched);
        self.write(changes)
    }

    /// Adds and deletes elements that do not follow from the plan alone.
    pub(crate) fn write_extra(&mut self, added: Vec<ExtraElement>, deleted: Vec<ExtraElement>) -> Result<(), NftError> {
        let table = || self.kind.table().into();
        let mut batch = Batch::default();
        for (family, set, key) in added {
            let elements = vec![(key, Value::Nothing)];
            batch.changes.push(Change::AddElements(kernel_family(family), table(), set.into(), elements));
        }
        for (family, set, key) in deleted {
            batch.changes.push(Change::DeleteElements(kernel_family(family), table(), set.into(), vec![key]));
        }
        if batch.changes.is_empty() { Ok(()) } else { self.nft.apply(&batch) }
    }

    fn write(&mut self, changes: Changes) -> Result<SyncStats, NftError> {
        let batches = [&changes.prepare, &changes.commit, &changes.retire];
        let count = batches.iter().map(|batch| batch.changes.len()).sum();
        for batch in batches {
            if !batch.changes.is_empty() {
                self.nft.apply(batch)?;
            }
        }
        self.pending_cleanup.changes.extend(changes.cleanup.changes);
        Ok(SyncStats { changes: count, cleanup_failures: self.clean_up() })
    }

    /// Deletes unused objects; returns the number of failures. What cannot be deleted yet is harmless and is found
    /// again by the next full resync.
    fn clean_up(&mut self) -> usize {
        let batch = std::mem::take(&mut self.pending_cleanup);
        let applied = self.nft.apply(&batch);
        if let Err(error) = &applied {
            tracing::debug!(%error, "cannot delete unused chains yet");
        }
        usize::from(applied.is_err())
    }
}

impl<N: Nft> Backend for Nftables<N> {
    fn mode(&self) -> &'static str {
        "nftables"
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        let result = match scope {
            SyncScope::FullResync => self.full_sync(plan, Trust::RuleCount),
            SyncScope::Tampered => self.full_sync(plan, Trust::None),
            SyncScope::Changed(touched) => self.incremental_sync(plan, touched),
        };
        result.map_err(BackendError::from)
    }

    /// Opens the monitor only after the first load: while it is open, the kernel sends a message per element.
    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError> {
        tamper::watch(&mut self.nft, self.kind.table(), self.generation, on_tampering)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        nft::of_port(self.kind, plan, port)
    }
}

impl From<NftError> for BackendError {
    fn from(error: NftError) -> Self {
        Self { message: error.to_string() }
    }
}

/// Removes our tables; returns whether there were any.
///
/// # Errors
/// When the kernel refuses.
pub fn cleanup(nft: &mut dyn Nft) -> Result<bool, NftError> {
    remove(nft, TableKind::Nftables)
}

/// Removes our tables of a kind; returns whether there were any.
pub(crate) fn remove(nft: &mut dyn Nft, kind: TableKind) -> Result<bool, NftError> {
    let mut batch = Batch::default();
    for family in FAMILIES {
        if nft.dump(kernel_family(family), kind.table())?.is_some() {
            batch.changes.push(Change::DeleteTable(kernel_family(family), kind.table().into()));
        }
    }
    let found = !batch.changes.is_empty();
    if found {
        nft.apply(&batch)?;
    }
    Ok(found)
}
