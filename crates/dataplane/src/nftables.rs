//! The nftables backend: programs, and the kernel behind a port.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use api::ip::Family;
use kernel::nft::{Batch, Dump, Nft, NftError};
use plan::Plan;

use crate::nft::{Changes, FAMILIES, Program, TABLE, Trust, kernel_family};
use crate::{Backend, BackendError, Brought, Since};

/// The backend.
pub struct Nftables<N> {
    nft: N,
    program: Program,
    /// What is still to be tidied up.
    untidy: Batch,
    /// How the kernel numbered what we wrote last.
    generation: u32,
    /// Reads what the kernel has while objects are still being listed.
    ahead: Option<JoinHandle<Result<Found, NftError>>>,
}

/// What the kernel has.
struct Found {
    generation: u32,
    tables: BTreeMap<Family, Option<Dump>>,
}

impl Found {
    fn read(nft: &mut impl Nft) -> Result<Self, NftError> {
        let generation = nft.generation()?;
        let mut tables = BTreeMap::new();
        for family in FAMILIES {
            tables.insert(family, nft.dump(kernel_family(family), TABLE)?);
        }
        Ok(Self { generation, tables })
    }
}

impl<N: Nft> Nftables<N> {
    /// Nothing is written yet.
    pub fn new(nft: N) -> Self {
        Self { nft, program: Program::default(), untidy: Batch::default(), generation: 0, ahead: None }
    }

    /// Begins to read what the kernel has by another socket: it takes as long as the lists of a large cluster do.
    #[must_use]
    pub fn read_ahead(mut self, mut reader: N) -> Self
    where
        N: 'static,
    {
        let read = move || Found::read(&mut reader);
        // Without a thread it is read when it is needed.
        self.ahead = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read).ok();
        self
    }

    /// What the kernel has: what was read ahead, if nobody has changed anything since.
    fn found(&mut self) -> Result<Found, NftError> {
        let ahead = self.ahead.take().and_then(|ahead| ahead.join().ok()?.ok());
        let generation = self.nft.generation()?;
        match ahead.filter(|found| found.generation == generation) {
            Some(found) => Ok(found),
            None => Found::read(&mut self.nft),
        }
    }

    /// Reads what the kernel has and makes it what it should be: after a start with unchanged objects nothing is written.
    fn bring_all(&mut self, plan: &Plan, trust: Trust) -> Result<Brought, NftError> {
        let mut found = self.found()?;
        let (mut program, tables) = Program::start(plan);
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

    fn write(&mut self, changes: Changes) -> Result<Brought, NftError> {
        let count = changes.now.changes.len();
        if count > 0 {
            self.nft.apply(&changes.now)?;
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
            Since::Last(touched) => {
                let changes = self.program.follow(plan, touched);
                self.write(changes)
            }
        };
        result.map_err(BackendError::from)
    }

    /// Listens only after the first load: while anybody listens, the kernel makes a message of every element.
    fn guard(&mut self, tampered: Box<dyn Fn() + Send>) -> Result<(), BackendError> {
        let mut monitor = self.nft.monitor(TABLE)?;
        if self.nft.generation()? != self.generation {
            // Somebody was quicker than our listening.
            tampered();
        }
        let listen = move || {
            while let Ok(touch) = monitor.wait(None) {
                if touch.is_some() {
                    tampered();
                }
            }
        };
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(listen);
        thread.map(drop).map_err(|error| BackendError { what: format!("starting a thread: {error}") })
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
    let mut batch = Batch::default();
    for family in FAMILIES {
        if nft.dump(kernel_family(family), TABLE)?.is_some() {
            batch.changes.push(kernel::nft::Change::DeleteTable(kernel_family(family), TABLE.into()));
        }
    }
    let found = !batch.changes.is_empty();
    if found {
        nft.apply(&batch)?;
    }
    Ok(found)
}
