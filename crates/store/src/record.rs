//! What stands inside a frame: transactions in the log, entries in a snapshot.
//!
//! Numbers are little-endian base 128, strings and values have their length before them. What is derived (facts, the
//! revision of creation, the version before) is not in the log: replay finds it again the way the writer found it.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{Change, Put};
use crate::embedded::Index;
use crate::{Entry, Event, Key, Revision, Table};

const TXN: u8 = 1;
const PUT: u8 = 2;
const PUT_EXPIRING: u8 = 3;
const DELETE: u8 = 4;
const ENTRY: u8 = 5;
const ENTRY_EXPIRING: u8 = 6;
const END: u8 = 7;

/// The bytes passed their checksum and still make no sense.
pub(crate) const SENSELESS: &str = "a record cannot be understood";

/// A transaction of the log.
pub(crate) struct Record {
    pub(crate) revision: Revision,
    pub(crate) changes: Vec<Change>,
}

/// A piece of a snapshot.
pub(crate) enum Piece {
    Entry(Entry),
    /// Nothing follows; so many entries came before.
    End(u64),
}

/// Appends the transaction that these events are.
pub(crate) fn encode_txn(out: &mut Vec<u8>, revision: Revision, events: &[Arc<Event>]) {
    out.push(TXN);
    number(out, revision);
    number(out, events.len() as u64);
    for event in events {
        let entry = &event.entry;
        if event.deleted {
            out.push(DELETE);
            key(out, &entry.key);
        } else {
            out.push(if entry.expires.is_some() { PUT_EXPIRING } else { PUT });
            key(out, &entry.key);
            entry.expires.into_iter().for_each(|at| number(out, at.get()));
            string(out, &entry.value);
        }
    }
}

/// Appends an entry of a snapshot.
pub(crate) fn encode_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(if entry.expires.is_some() { ENTRY_EXPIRING } else { ENTRY });
    key(out, &entry.key);
    number(out, entry.created);
    number(out, entry.modified);
    entry.expires.into_iter().for_each(|at| number(out, at.get()));
    string(out, &entry.value);
}

/// Appends the end of a snapshot.
pub(crate) fn encode_end(out: &mut Vec<u8>, entries: u64) {
    out.push(END);
    number(out, entries);
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn key(out: &mut Vec<u8>, key: &Key) {
    string(out, key.table.as_str().as_bytes());
    string(out, key.name.as_bytes());
}

/// Reads the payload of a frame from its front.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    index: Index,
}

impl<'a> Decoder<'a> {
    pub(crate) const fn new(payload: &'a [u8], index: Index) -> Self {
        Self { rest: payload, index }
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next transaction of a log.
    pub(crate) fn txn(&mut self) -> Option<Record> {
        if self.byte()? != TXN {
            return None;
        }
        let revision = self.number()?;
        let count = self.number()?;
        let changes = (0..count).map(|_| self.change()).collect::<Option<_>>()?;
        Some(Record { revision, changes })
    }

    /// The next piece of a snapshot.
    pub(crate) fn piece(&mut self) -> Option<Piece> {
        let tag = self.byte()?;
        match tag {
            END => self.number().map(Piece::End),
            ENTRY | ENTRY_EXPIRING => {
                let key = self.key()?;
                let (created, modified) = (self.number()?, self.number()?);
                let Put { value, facts, expires } = self.put(&key, tag == ENTRY_EXPIRING)?;
                Some(Piece::Entry(Entry { key, created, modified, expires, value, facts }))
            }
            _ => None,
        }
    }

    fn change(&mut self) -> Option<Change> {
        let tag = self.byte()?;
        let key = self.key()?;
        let put = match tag {
            PUT | PUT_EXPIRING => Some(self.put(&key, tag == PUT_EXPIRING)?),
            DELETE => None,
            _ => return None,
        };
        Some(Change { key, put })
    }

    fn put(&mut self, key: &Key, expiring: bool) -> Option<Put> {
        let expires = if expiring { Some(NonZeroU64::new(self.number()?)?) } else { None };
        // Copied out, so that a value does not keep the whole frame in memory.
        let value = Bytes::copy_from_slice(self.string()?);
        let facts = Arc::new((self.index)(key.table.as_str(), &value));
        Some(Put { value, facts, expires })
    }

    fn key(&mut self) -> Option<Key> {
        let table = Table::named(str::from_utf8(self.string()?).ok()?);
        let name = str::from_utf8(self.string()?).ok()?;
        Some(Key::new(table, name))
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(string)
    }
}

#[cfg(test)]
mod tests {
    use api::facts::Facts;

    use super::*;

    fn entry(expires: Option<u64>) -> Entry {
        Entry {
            key: Key::new(Table::named("tests/records"), "space/name"),
            created: 300,
            modified: u64::MAX,
            expires: expires.and_then(NonZeroU64::new),
            value: Bytes::from_static(b"value"),
            facts: Arc::default(),
        }
    }

    #[test]
    fn transactions_come_back() {
        let put = Arc::new(Event::new(9, Arc::new(entry(Some(127))), None, false));
        let delete = Arc::new(Event::new(9, Arc::new(entry(None)), None, true));
        let mut bytes = Vec::new();
        encode_txn(&mut bytes, 9, &[put, delete]);
        let mut decoder = Decoder::new(&bytes, |_, _| Facts::default());
        let record = decoder.txn().expect("it can be read");
        assert!(decoder.is_done());
        assert_eq!(record.revision, 9);
        let [put, delete] = &record.changes[..] else { panic!("two changes") };
        assert_eq!(
            put.put.as_ref().map(|put| (&put.value[..], put.expires)),
            Some((&b"value"[..], NonZeroU64::new(127)))
        );
        assert_eq!((&delete.key, delete.put.is_none()), (&entry(None).key, true));
    }

    #[test]
    fn entries_come_back_and_nonsense_does_not() {
        for entry in [entry(None), entry(Some(128))] {
            let mut bytes = Vec::new();
            encode_entry(&mut bytes, &entry);
            let decode = |bytes| Decoder::new(bytes, |_, _| Facts::default()).piece();
            assert!(matches!(decode(&bytes), Some(Piece::Entry(back)) if back == entry));
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_none(), "cut at {end}");
            }
        }
    }
}
