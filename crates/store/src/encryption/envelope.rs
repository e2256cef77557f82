//! The format of an encrypted value in a record, and what its authentication covers.
//!
//! ```text
//! version 1 │ length 1 │ key name │ key id 8 │ salt 32 │ nonce 12 │ ciphertext │ tag 16
//! ```
//! Everything a reader needs besides the key is in the value itself, so a torn or replaced file loses nothing that another
//! record needs. The tag covers the plain header and the [`Location`]: a value cannot be moved to another object, nor
//! an old version of an object be put in place of a newer one.

use super::key::{ID, KeyId, SALT, Salt};
use crate::{Key, Revision};

/// Bytes of a nonce.
pub(super) const NONCE: usize = 12;
/// Bytes of a tag.
pub(super) const TAG: usize = 16;
/// The longest name of a key in bytes.
pub(super) const MAX_NAME: usize = u8::MAX as usize;

const VERSION: u8 = 1;
const DOMAIN: &[u8] = b"waypost store value";

/// Where a value belongs.
#[derive(Clone, Copy)]
pub(crate) struct Location<'a> {
    pub(crate) key: &'a Key,
    /// The revision that made this version of the entry.
    pub(crate) revision: Revision,
}

/// A parsed encrypted value.
pub(super) struct Envelope<'a> {
    /// The bytes before the nonce.
    pub(super) header: &'a [u8],
    pub(super) name: &'a str,
    pub(super) id: KeyId,
    pub(super) salt: Salt,
    pub(super) nonce: [u8; NONCE],
    /// Ciphertext and tag.
    pub(super) body: &'a [u8],
}

/// The bytes before the nonce. A name is at most [`MAX_NAME`] bytes long, which the configuration ensures.
pub(super) fn header(name: &str, id: KeyId, salt: &Salt) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + name.len() + ID + SALT);
    out.push(VERSION);
    out.push(name.len().min(MAX_NAME) as u8);
    out.extend(name.bytes().take(MAX_NAME));
    out.extend(id.0);
    out.extend(salt);
    out
}

/// Parses a value; `None` if it is too short, of another version, or its key has no readable name.
pub(super) fn parse(bytes: &[u8]) -> Option<Envelope<'_>> {
    let ([VERSION, length], rest) = bytes.split_first_chunk()? else { return None };
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (id, rest) = rest.split_first_chunk()?;
    let (salt, rest) = rest.split_first_chunk()?;
    let header = bytes.get(..bytes.len() - rest.len())?;
    let (nonce, body) = rest.split_first_chunk()?;
    if body.len() < TAG {
        return None;
    }
    let name = str::from_utf8(name).ok()?;
    Some(Envelope { header, name, id: KeyId(*id), salt: *salt, nonce: *nonce, body })
}

/// What the tag covers besides the ciphertext.
pub(super) fn associated(header: &[u8], location: Location<'_>) -> Vec<u8> {
    let Location { key, revision } = location;
    let (table, name) = (key.table.as_str().as_bytes(), key.name.as_bytes());
    let mut out = Vec::with_capacity(DOMAIN.len() + header.len() + table.len() + name.len() + 24);
    out.extend(DOMAIN);
    for part in [header, table, name] {
        out.extend((part.len() as u64).to_le_bytes());
        out.extend(part);
    }
    out.extend(revision.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Table;

    proptest! {
        #[test]
        fn headers_round_trip(name in "\\PC{0,60}", id: [u8; ID], salt: [u8; SALT], rest in prop::collection::vec(any::<u8>(), 28..60)) {
            let mut bytes = header(&name, KeyId(id), &salt);
            let length = bytes.len();
            bytes.extend(&rest);
            let envelope = parse(&bytes).expect("it is whole");
            prop_assert_eq!((envelope.name, envelope.id, envelope.salt), (&*name, KeyId(id), salt));
            prop_assert_eq!((envelope.header, &envelope.nonce[..], envelope.body), (&bytes[..length], &rest[..NONCE], &rest[NONCE..]));
            prop_assert!(parse(&bytes[..length + NONCE + TAG - 1]).is_none());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(envelope) = parse(&bytes) {
                prop_assert_eq!(envelope.header.len() + NONCE + envelope.body.len(), bytes.len());
            }
        }
    }

    #[test]
    fn no_two_locations_are_covered_by_the_same_bytes() {
        let at = |table: &str, name: &str, revision| {
            let key = Key::new(Table::named(table), name);
            associated(b"header", Location { key: &key, revision })
        };
        let all = [at("a", "b/c", 1), at("ab", "/c", 1), at("a", "b/c", 2), at("a", "b/", 1), at("", "ab/c", 1)];
        for (place, one) in all.iter().enumerate() {
            assert!(all.iter().skip(place + 1).all(|other| other != one), "{place}");
        }
    }
}
