//! The payload of frames: transactions in the log, entries in a snapshot.
//!
//! Numbers are little-endian base 128 (varint), strings and values are length-prefixed. Derived data (facts, the revision of
//! creation, the previous version) is not in the log: replay computes it as the writer did. The tag of a value shows whether it is
//! encrypted; see [`crate::encryption`].

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::batch::{Change, Put};
use crate::embedded::Index;
use crate::encryption::{Decryptor, Encryptor, Location, Unreadable};
use crate::{Entry, Event, Key, Revision, Table};

const TXN: u8 = 1;
const PUT: u8 = 2;
const PUT_EXPIRING: u8 = 3;
const DELETE: u8 = 4;
const ENTRY: u8 = 5;
const ENTRY_EXPIRING: u8 = 6;
const END: u8 = 7;
/// Set in the tag of a put or an entry whose value is encrypted.
const ENCRYPTED: u8 = 0x40;

/// The reason for bytes that passed their checksum and cannot be decoded.
pub(crate) const INVALID_RECORD: &str = "invalid record";

/// A transaction of the log.
pub(crate) struct Record {
    pub(crate) revision: Revision,
    pub(crate) changes: Vec<Change>,
}

/// A record of a snapshot.
pub(crate) enum SnapshotRecord {
    Entry(Entry),
    /// The end, with the number of entries.
    End(u64),
}

/// Appends these events as one transaction.
pub(crate) fn encode_txn(
    out: &mut Vec<u8>,
    revision: Revision,
    events: &[Arc<Event>],
    encryptor: &mut Encryptor,
) -> io::Result<()> {
    out.push(TXN);
    number(out, revision);
    number(out, events.len() as u64);
    for event in events {
        let entry = &event.entry;
        if event.deleted {
            out.push(DELETE);
            key(out, &entry.key);
        } else {
            encode_version(out, [PUT, PUT_EXPIRING], entry, &[], encryptor)?;
        }
    }
    Ok(())
}

/// Appends an entry of a snapshot.
pub(crate) fn encode_entry(out: &mut Vec<u8>, entry: &Entry, encryptor: &mut Encryptor) -> io::Result<()> {
    encode_version(out, [ENTRY, ENTRY_EXPIRING], entry, &[entry.created, entry.modified], encryptor)
}

/// Appends a version of a key. The tags are for entries without and with expiry.
fn encode_version(
    out: &mut Vec<u8>,
    [permanent, expiring]: [u8; 2],
    entry: &Entry,
    revisions: &[Revision],
    encryptor: &mut Encryptor,
) -> io::Result<()> {
    let tag = if entry.expires.is_some() { expiring } else { permanent };
    let chosen = encryptor.choose(entry.key.table);
    out.push(if chosen.is_some() { tag | ENCRYPTED } else { tag });
    key(out, &entry.key);
    revisions.iter().for_each(|revision| number(out, *revision));
    entry.expires.into_iter().for_each(|at| number(out, at.get()));
    let Some(chosen) = chosen else {
        string(out, &entry.value);
        return Ok(());
    };
    number(out, encryptor.length(chosen, entry.value.len()) as u64);
    encryptor.append(out, chosen, Location { key: &entry.key, revision: entry.modified }, &entry.value)
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

/// Decodes the payload of a frame.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    index: Index,
    decryptor: &'a mut Decryptor,
}

impl<'a> Decoder<'a> {
    pub(crate) const fn new(payload: &'a [u8], index: Index, decryptor: &'a mut Decryptor) -> Self {
        Self { rest: payload, index, decryptor }
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next transaction of a log.
    pub(crate) fn txn(&mut self) -> Result<Record, Unreadable> {
        if self.byte()? != TXN {
            return Err(Unreadable::Malformed);
        }
        let revision = self.number()?;
        let count = self.number()?;
        // Each change has a revision of its own.
        let changes = (0..count).map(|place| self.change(revision.wrapping_add(place))).collect::<Result<_, _>>()?;
        Ok(Record { revision, changes })
    }

    /// The next record of a snapshot.
    pub(crate) fn snapshot_record(&mut self) -> Result<SnapshotRecord, Unreadable> {
        let tag = self.byte()?;
        match tag & !ENCRYPTED {
            END if tag == END => self.number().map(SnapshotRecord::End),
            ENTRY | ENTRY_EXPIRING => {
                let key = self.key()?;
                let (created, modified) = (self.number()?, self.number()?);
                let Put { value, facts, expires } = self.put(&key, modified, tag, ENTRY_EXPIRING)?;
                Ok(SnapshotRecord::Entry(Entry { key, created, modified, expires, value, facts }))
            }
            _ => Err(Unreadable::Malformed),
        }
    }

    fn change(&mut self, revision: Revision) -> Result<Change, Unreadable> {
        let tag = self.byte()?;
        let key = self.key()?;
        let put = match tag & !ENCRYPTED {
            PUT | PUT_EXPIRING => Some(self.put(&key, revision, tag, PUT_EXPIRING)?),
            DELETE if tag == DELETE => None,
            _ => return Err(Unreadable::Malformed),
        };
        Ok(Change { key, put })
    }

    fn put(&mut self, key: &Key, revision: Revision, tag: u8, expiring: u8) -> Result<Put, Unreadable> {
        let expires = match tag & !ENCRYPTED == expiring {
            true => Some(NonZeroU64::new(self.number()?).ok_or(Unreadable::Malformed)?),
            false => None,
        };
        let stored = self.string()?;
        let value = match tag & ENCRYPTED != 0 {
            true => self.decryptor.encrypted(Location { key, revision }, stored)?,
            false => self.decryptor.plain(key, stored)?,
        };
        let facts = Arc::new((self.index)(key.table.as_str(), &value));
        Ok(Put { value, facts, expires })
    }

    fn key(&mut self) -> Result<Key, Unreadable> {
        let table = Table::named(text(self.string()?)?);
        let name = text(self.string()?)?;
        Ok(Key::new(table, name))
    }

    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (first, rest) = self.rest.split_first().ok_or(Unreadable::Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable::Malformed)
    }

    fn string(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = usize::try_from(self.number()?).map_err(|_| Unreadable::Malformed)?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(Unreadable::Malformed)?;
        self.rest = rest;
        Ok(string)
    }
}

fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    str::from_utf8(bytes).map_err(|_| Unreadable::Malformed)
}

#[cfg(test)]
mod tests {
    use api::facts::Facts;
    use bytes::Bytes;

    use super::*;
    use crate::encryption::Encryption;
    use crate::encryption::testing::encryption;

    fn entry(table: &str, expires: Option<u64>) -> Entry {
        Entry {
            key: Key::new(Table::named(table), "space/name"),
            created: 300,
            modified: 1_000,
            expires: expires.and_then(NonZeroU64::new),
            value: Bytes::from_static(b"value"),
            facts: Arc::default(),
        }
    }

    /// Encrypts Secrets and nothing else.
    fn secrets() -> Arc<Encryption> {
        Arc::new(encryption(&[("secrets", &["one:a"])]))
    }

    #[test]
    fn transactions_round_trip() {
        let put = Arc::new(Event::new(999, Arc::new(Entry { modified: 999, ..entry("pods", Some(127)) }), None, false));
        let secret = Arc::new(Event::new(1_000, Arc::new(entry("secrets", None)), None, false));
        let delete = Arc::new(Event::new(1_001, Arc::new(entry("pods", None)), None, true));
        let mut bytes = Vec::new();
        let events = [put, secret, delete];
        encode_txn(&mut bytes, 999, &events, &mut Encryptor::new(secrets())).expect("encoded");
        assert_eq!(bytes.windows(5).filter(|window| window == b"value").count(), 1, "the Secret is encrypted");
        let mut decryptor = Decryptor::new(secrets());
        let mut decoder = Decoder::new(&bytes, |_, _| Facts::default(), &mut decryptor);
        let record = decoder.txn().expect("it can be read");
        assert!(decoder.is_done());
        assert_eq!(record.revision, 999);
        let found: Vec<_> = record
            .changes
            .iter()
            .map(|change| (change.key.table.as_str(), change.put.as_ref().map(|put| (&put.value[..], put.expires))))
            .collect();
        let value = &b"value"[..];
        let expires = NonZeroU64::new(127);
        assert_eq!(found, [("pods", Some((value, expires))), ("secrets", Some((value, None))), ("pods", None)]);
    }

    #[test]
    fn entries_round_trip_and_truncated_ones_are_errors() {
        for entry in
            [entry("pods", None), entry("pods", Some(128)), entry("secrets", None), entry("secrets", Some(128))]
        {
            let mut bytes = Vec::new();
            encode_entry(&mut bytes, &entry, &mut Encryptor::new(secrets())).expect("encoded");
            let decode = |bytes: &[u8]| {
                Decoder::new(bytes, |_, _| Facts::default(), &mut Decryptor::new(secrets())).snapshot_record()
            };
            assert!(matches!(decode(&bytes), Ok(SnapshotRecord::Entry(back)) if back == entry));
            for end in 0..bytes.len() {
                assert!(matches!(decode(&bytes[..end]), Err(Unreadable::Malformed)), "cut at {end}");
            }
        }
    }
}
