//! nftables over netlink.
//!
//! A batch is encoded into one message sequence ([`encode`]) and sent at once: either the last message is acknowledged,
//! or the failed messages are named and nothing has changed. [`decode`] parses dumps; [`Watcher`] monitors changes by
//! other programs.

mod decode;
mod encode;
mod foreign;
mod monitor;
pub(crate) mod numbers;
pub(crate) mod rules;
mod sets;

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use rustix::net::netlink;

use self::encode::{Encoded, Shapes};
use self::numbers::{SUBSYSTEM, chain, element, generation, message, rule, set, table};
use self::sets::Shape;
use super::{Base, Batch, ChainState, Change, Counter, Dump, Monitor, Name, Nft, NftError, Set, Value};
use crate::Family;
use crate::netlink::read::Meaning;
use crate::netlink::{Message, Messages, Socket, Writer};

pub use monitor::Watcher;

/// Receive buffer in bytes. Error messages repeat the message they are about.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How often a table that changes meanwhile is read again.
const ATTEMPTS: usize = 50;

/// nftables of the current network namespace.
pub struct Linux {
    socket: Socket,
    shapes: Shapes,
}

impl Linux {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel lacks nftables, or the socket is refused.
    pub fn open() -> Result<Self, NftError> {
        let socket = Socket::open(Some(netlink::NETFILTER), 0, RECEIVE_BUFFER);
        let socket = socket.map_err(|errno| NftError::new("opening a socket", errno))?;
        Ok(Self { socket, shapes: Shapes::new() })
    }

    /// Netlink port ID of our socket; a [`Watcher`] identifies our own changes by it.
    #[must_use]
    pub fn portid(&self) -> u32 {
        self.socket.port()
    }

    /// Reads the shapes of sets that the batch changes without creating them. Missing sets stay unknown: the kernel
    /// will refuse the batch.
    fn learn(&mut self, batch: &Batch) -> Result<(), NftError> {
        let mut made = BTreeSet::new();
        for (index, change) in batch.changes.iter().enumerate() {
            let (Change::AddSet(family, table, set, _)
            | Change::AddElements(family, table, set, _)
            | Change::DeleteElements(family, table, set, _)) = change
            else {
                continue;
            };
            let name = (*family, table.clone(), set.clone());
            if matches!(change, Change::AddSet(..)) {
                made.insert(name);
            } else if !made.contains(&name) && !self.shapes.contains_key(&name) {
                match self.set(*family, table, set) {
                    Ok(set) => _ = self.shapes.insert(name, Shape::of(&set)),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(NftError { errno, change: Some(index), doing: "looking at a set" }),
                }
            }
        }
        Ok(())
    }

    /// One set without elements.
    fn set(&mut self, family: Family, table: &str, set: &str) -> Result<Set, Errno> {
        let mut found = None;
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(set::TABLE, table);
            w.text(set::NAME, set);
        };
        self.socket.request(kind(message::GET_SET), 0, body, |message| {
            if let Some(attributes) = decode::about(message, family, set::TABLE, table) {
                found = decode::set(&attributes, family);
            }
        })?;
        found.map(|(_, set)| set).ok_or(Errno::NOENT)
    }

    /// Result of a batch that was sent.
    fn outcome(&mut self, encoded: &Encoded) -> Result<(), NftError> {
        let (mut done, mut failure) = (false, None);
        loop {
            let datagram = match self.socket.receive() {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                // Replies were lost. Only errors come in such numbers.
                Err(errno) => {
                    failure.get_or_insert((errno, None));
                    continue;
                }
            };
            for message in Messages::new(datagram).filter(|message| encoded.numbers().contains(&message.sequence)) {
                match message.meaning() {
                    Meaning::Failure(errno) => _ = failure.get_or_insert((errno, encoded.change(message.sequence))),
                    Meaning::End => done |= message.sequence == encoded.last(),
                    Meaning::Content => {}
                }
            }
        }
        match failure {
            Some((errno, change)) => Err(NftError { errno, change, doing: "applying a batch" }),
            None if done => Ok(()),
            None => Err(NftError::new("awaiting the answer to a batch", Errno::PROTO)),
        }
    }

    /// Updates the known shapes after a successful batch.
    fn remember(&mut self, batch: &Batch) {
        for change in &batch.changes {
            match change {
                Change::AddSet(family, table, set, content) => {
                    self.shapes.insert((*family, table.clone(), set.clone()), Shape::of(content));
                }
                Change::DeleteSet(family, table, set) => {
                    self.shapes.remove(&(*family, table.clone(), set.clone()));
                }
                Change::DeleteTable(family, table) => {
                    self.shapes.retain(|(of, name, _), _| (*of, name) != (*family, table));
                }
                _ => {}
            }
        }
    }

    /// Tag of a table, if it exists.
    fn tag(&mut self, family: Family, table: &str) -> Result<Option<String>, Errno> {
        let mut tag = None;
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(table::NAME, table);
        };
        let asked = self.socket.request(kind(message::GET_TABLE), 0, body, |message| {
            tag = decode::about(message, family, table::NAME, table).map(|attributes| decode::tag(&attributes));
        });
        match asked {
            Ok(()) => Ok(tag),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Lists objects of a family; `read` selects.
    fn list<Item>(
        &mut self,
        ask: u16,
        body: impl Fn(&mut Writer),
        read: impl Fn(&Message<'_>, &mut Vec<Item>),
    ) -> Result<Vec<Item>, Errno> {
        let mut out = Vec::new();
        self.socket.dump(&mut out, kind(ask), body, Vec::clear, |out, message| read(message, out))?;
        Ok(out)
    }

    fn chains(&mut self, family: Family, table: &str) -> Result<Vec<(Name, Option<Base>)>, Errno> {
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(chain::TABLE, table);
        };
        self.list(message::GET_CHAIN, body, |message, out| {
            out.extend(decode::about(message, family, chain::TABLE, table).and_then(|found| decode::chain(&found)));
        })
    }

    /// The chain of each rule.
    fn rules(&mut self, family: Family, table: &str) -> Result<Vec<Name>, Errno> {
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(rule::TABLE, table);
        };
        self.list(message::GET_RULE, body, |message, out| {
            let found = decode::about(message, family, rule::TABLE, table);
            out.extend(found.and_then(|found| Some(found.text(rule::CHAIN)?.into())));
        })
    }

    fn sets(&mut self, family: Family, table: &str) -> Result<Vec<(Name, Set)>, Errno> {
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(set::TABLE, table);
        };
        self.list(message::GET_SET, body, |message, out| {
            out.extend(decode::about(message, family, set::TABLE, table).and_then(|found| decode::set(&found, family)));
        })
    }

    /// Elements of a set.
    ///
    /// The kernel lists them in parts and resumes by index. While its hash table grows in the background, the order
    /// changes between two parts: some elements come twice and others never, without an error. But the total is at
    /// least the number of elements. So without duplicates none is missing; with duplicates the list is read again.
    fn elements(&mut self, family: Family, table: &str, name: &str, set: &Set) -> Result<Vec<(Counter, Value)>, Errno> {
        let body = |w: &mut Writer| {
            w.raw(&encode::header(family));
            w.text(element::TABLE, table);
            w.text(element::SET, name);
        };
        for _ in 0..ATTEMPTS {
            let elements = self.list(message::GET_ELEMENT, body, |message, out| {
                let ours = decode::about(message, family, element::TABLE, table);
                out.extend(ours.into_iter().flat_map(|attributes| decode::elements(&attributes)));
            })?;
            if !decode::repeats(&elements) {
                return Ok(decode::assemble(set, elements));
            }
        }
        Err(Errno::INTR)
    }

    fn read(&mut self, family: Family, table: &str) -> Result<Option<Dump>, Errno> {
        let Some(tag) = self.tag(family, table)? else { return Ok(None) };
        let chains = self.chains(family, table)?.into_iter();
        let mut chains: BTreeMap<Name, ChainState> =
            chains.map(|(name, base)| (name, ChainState { base, rules: 0 })).collect();
        for of in self.rules(family, table)? {
            chains.entry(of).or_default().rules += 1;
        }
        let mut dump = Dump { tag, chains, sets: BTreeMap::new() };
        let name: Name = table.into();
        for (of, mut set) in self.sets(family, table)? {
            if set.timeout.is_none() {
                let elements = self.elements(family, table, &of, &set)?;
                set.elements = elements.into_iter().map(|(counter, value)| (counter.key, value)).collect();
            }
            self.shapes.insert((family, name.clone(), of.clone()), Shape::of(&set));
            dump.sets.insert(of, set);
        }
        Ok(Some(dump))
    }
}

/// Netlink message type of an nftables message.
fn kind(message: u16) -> u16 {
    SUBSYSTEM << 8 | message
}

impl Nft for Linux {
    fn apply(&mut self, batch: &Batch) -> Result<(), NftError> {
        self.learn(batch)?;
        let first = self.socket.sequences(encode::at_most(batch));
        let encoded = encode::batch(batch, first, &self.shapes)?;
        if encoded.changes.is_empty() {
            return Ok(());
        }
        self.socket.send(&encoded.bytes).map_err(|errno| NftError::new("sending a batch", errno))?;
        self.outcome(&encoded)?;
        self.remember(batch);
        Ok(())
    }

    fn dump(&mut self, family: Family, table: &str) -> Result<Option<Dump>, NftError> {
        for _ in 0..ATTEMPTS {
            match self.read(family, table) {
                // Part of the table was deleted while it was read.
                Err(Errno::NOENT) => {}
                read => return read.map_err(|errno| NftError::new("reading a table", errno)),
            }
        }
        Err(NftError::new("reading a table", Errno::INTR))
    }

    fn counters(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Counter>, NftError> {
        let read = self.set(family, table, set).and_then(|content| self.elements(family, table, set, &content));
        let counted = read.map_err(|errno| NftError::new("reading counters", errno))?;
        Ok(counted.into_iter().map(|(counter, _)| counter).collect())
    }

    fn generation(&mut self) -> Result<u32, NftError> {
        let mut number = None;
        let body = |w: &mut Writer| w.raw(&encode::header(Family::Ip));
        let asked = self.socket.request(kind(message::GET_GENERATION), 0, body, |message| {
            number = message.attributes(numbers::HEADER).be32(generation::NUMBER);
        });
        asked.and_then(|()| number.ok_or(Errno::PROTO)).map_err(|errno| NftError::new("reading the generation", errno))
    }

    fn monitor(&mut self, table: &str) -> Result<Box<dyn Monitor>, NftError> {
        Ok(Box::new(Watcher::open(table, self.portid())?))
    }
}

/// Parses bytes as any nftables message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in Messages::new(bytes) {
        let (_, attributes) = (message.meaning(), message.attributes(numbers::HEADER));
        foreign::read_anything(&message);
        let Some(family) = decode::family(&message) else { continue };
        decode::tag(&attributes);
        decode::chain(&attributes);
        let elements: Vec<_> = decode::elements(&attributes).collect();
        if let Some((_, set)) = decode::set(&attributes, family) {
            decode::assemble(&set, elements);
        }
    }
}
