//! The nftables backend: programs, and the kernel behind a port.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use api::ip::Family;
use kernel::nft::{Batch, Change, Dump, Key, Nft, NftError, Value};
use plan::{Plan, ServicePort, Touched};

use crate::nft::{self, Changes, FAMILIES, Program, Style, Trust, guard, kernel_family};
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// The backend.
pub struct Nftables<N> {
    nft: N,
    style: Style,
    program: Program,
    /// What is still to be tidied up.
    untidy: Batch,
    /// How the kernel numbered what we wrote last.
    generation: u32,
    /// Reads what the kernel has while objects are still being listed.
    ahead: Option<JoinHandle<Result<Found, NftError>>>,
}

/// What the kernel has.
pub(crate) struct Found {
    generation: u32,
    tables: BTreeMap<Family, Option<Dump>>,
}

impl Found {
    fn read(nft: &mut impl Nft, style: Style) -> Result<Self, NftError> {
        let generation = nft.generation()?;
        let mut tables = BTreeMap::new();
        for family in FAMILIES {
            tables.insert(family, nft.dump(kernel_family(family), style.table())?);
        }
        Ok(Self { generation, tables })
    }

    /// The elements of a set that is in the tables of both families.
    pub(crate) fn keys(&self, set: &str) -> impl Iterator<Item = (Family, &Key)> {
        let tables = self.tables.iter().filter_map(|(family, table)| Some((*family, table.as_ref()?.sets.get(set)?)));
        tables.flat_map(|(family, set)| set.elements.keys().map(move |key| (family, key)))
    }
}

/// An element of a set that follows from more than the plan.
pub(crate) type Noted = (Family, &'static str, Key);

impl<N: Nft> Nftables<N> {
    /// Nothing is written yet.
    pub fn new(nft: N) -> Self {
        Self::styled(nft, Style::Alone)
    }

    /// The same, with tables of a style.
    pub(crate) fn styled(nft: N, style: Style) -> Self {
        let (program, untidy) = (Program::default(), Batch::default());
        Self { nft, style, program, untidy, generation: 0, ahead: None }
    }

    /// Begins to read what the kernel has by another socket: it takes as long as the lists of a large cluster do.
    #[must_use]
    pub fn read_ahead(mut self, mut reader: N) -> Self
    where
        N: 'static,
    {
        let style = self.style;
        let read = move || Found::read(&mut reader, style);
        // Without a thread it is read when it is needed.
        self.ahead = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read).ok();
        self
    }

    /// What the kernel has: what was read ahead, if nobody has changed anything since.
    pub(crate) fn found(&mut self) -> Result<Found, NftError> {
        let ahead = self.ahead.take().and_then(|ahead| ahead.join().ok()?.ok());
        let generation = self.nft.generation()?;
        match ahead.filter(|found| found.generation == generation) {
            Some(found) => Ok(found),
            None => Found::read(&mut self.nft, self.style),
        }
    }

    /// Reads what the kernel has and makes it what it should be: after a start with unchanged objects nothing is written.
    fn bring_all(&mut self, plan: &Plan, trust: Trust) -> Result<Brought, NftError> {
        let found = self.found()?;
        self.correct(plan, trust, found, Vec::new())
    }

    /// Makes what was found what it should be, with elements besides those that follow from the plan.
    pub(crate) fn correct(
        &mut self,
        plan: &Plan,
        trust: Trust,
        mut found: Found,
        noted: Vec<Noted>,
    ) -> Result<Brought, NftError> {
        let (mut program, mut tables) = Program::start(self.style, plan);
        for (family, set, key) in noted {
            if let Some(table) = tables.get_mut(&family) {
                table.put(set, key, Value::Nothing);
            }
        }
        let mut changes = Changes::default();
        for (family, table) in tables {
            let (these, left) = table.correct(family, found.tables.remove(&family).flatten(), trust);
            changes.append(these);
            program.keep(family, left);
        }
        self.untidy = Batch::default();
        let brought = self.write(changes)?;
        self.program = program;
        self.generation = self.nft.generation()?;
        Ok(brought)
    }

    /// Follows a plan in which something changed.
    pub(crate) fn follow(&mut self, plan: &Plan, touched: &Touched) -> Result<Brought, NftError> {
        let changes = self.program.follow(plan, touched);
        self.write(changes)
    }

    /// Adds and deletes elements that do not follow from the plan alone.
    pub(crate) fn note(&mut self, added: Vec<Noted>, deleted: Vec<Noted>) -> Result<(), NftError> {
        let table = || self.style.table().into();
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

    fn write(&mut self, changes: Changes) -> Result<Brought, NftError> {
        let batches = [&changes.first, &changes.now, &changes.next];
        let count = batches.iter().map(|batch| batch.changes.len()).sum();
        for batch in batches {
            if !batch.changes.is_empty() {
                self.nft.apply(batch)?;
            }
        }
        self.untidy.changes.extend(changes.later.changes);
        Ok(Brought { changes: count, untidy: self.tidy() })
    }

    /// Deletes what nothing uses any more; answers how often that failed. What cannot be deleted yet does no harm, and is found
    /// again at the next reading.
    fn tidy(&mut self) -> usize {
        let batch = std::mem::take(&mut self.untidy);
        let tidied = self.nft.apply(&batch);
        if let Err(error) = &tidied {
            tracing::debug!(%error, "unused chains could not be deleted yet");
        }
        usize::from(tidied.is_err())
    }
}

impl<N: Nft> Backend for Nftables<N> {
    fn mode(&self) -> &'static str {
        "nftables"
    }

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        let result = match since {
            Since::Ever => self.bring_all(plan, Trust::Counted),
            Since::Tampered => self.bring_all(plan, Trust::Nothing),
            Since::Last(touched) => self.follow(plan, touched),
        };
        result.map_err(BackendError::from)
    }

    /// Listens only after the first load: while anybody listens, the kernel makes a message of every element.
    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError> {
        guard::watch(&mut self.nft, self.style.table(), self.generation, tampered)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        nft::of_port(self.style, plan, port)
    }
}

impl From<NftError> for BackendError {
    fn from(error: NftError) -> Self {
        Self { what: error.to_string() }
    }
}

/// Removes our tables; answers whether there were some.
///
/// # Errors
/// When the kernel refuses.
pub fn cleanup(nft: &mut dyn Nft) -> Result<bool, NftError> {
    remove(nft, Style::Alone)
}

/// Removes our tables of a style; answers whether there were some.
pub(crate) fn remove(nft: &mut dyn Nft, style: Style) -> Result<bool, NftError> {
    let mut batch = Batch::default();
    for family in FAMILIES {
        if nft.dump(kernel_family(family), style.table())?.is_some() {
            batch.changes.push(Change::DeleteTable(kernel_family(family), style.table().into()));
        }
    }
    let found = !batch.changes.is_empty();
    if found {
        nft.apply(&batch)?;
    }
    Ok(found)
}
