//! Decrypts values on their way out of a file, and counts which keys were used.
//!
//! In: a stored value and its location. Out: the plain value, or an error. A tolerant decryptor, which checks a store,
//! records errors and continues with an empty value.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use ring::aead::{Aad, LessSafeKey, Nonce};

use super::Encryption;
use super::envelope::{self, Envelope, Location};
use super::key::{KeyId, Salt};
use crate::{Key, Table};

/// Why a value cannot be read with the encryption configuration that was given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecryptError {
    /// Its key is not in the configuration.
    #[error(
        "{object} is encrypted with key {name:?} (id {id}), which is not in the encryption configuration; add the key to the file of \
         --encryption-provider-config"
    )]
    UnknownKey {
        /// The first object concerned.
        object: Key,
        /// The key's name when the value was written.
        name: String,
        /// The key's id.
        id: KeyId,
    },
    /// The configuration has a key of that name, but with another secret.
    #[error(
        "{object} is encrypted with key {name:?} (id {id}); the key of that name in the encryption configuration has another secret (id \
         {configured}); add the former secret as another key to the file of --encryption-provider-config"
    )]
    OtherSecret {
        /// The first object concerned.
        object: Key,
        /// The name.
        name: String,
        /// The id of the key that the value was encrypted with.
        id: KeyId,
        /// The id of the key in the configuration.
        configured: KeyId,
    },
    /// It is not encrypted, and the configuration does not list `identity` for it.
    #[error(
        "{object} is not encrypted, and the encryption configuration accepts only encrypted values of its kind; add `identity: {{}}` as \
         the last provider until all values are encrypted"
    )]
    Plain {
        /// The first object concerned.
        object: Key,
    },
    /// It is not what was written for this object at this revision.
    #[error(
        "{object}: the value failed authentication with key {name:?}; it was altered, or is the value of another object or revision"
    )]
    Altered {
        /// The object.
        object: Key,
        /// The name of the key.
        name: String,
    },
}

/// Why a record cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The bytes passed their checksum and cannot be decoded.
    Malformed,
    Encrypted(DecryptError),
}

/// How many values of a table are in files, and how they are stored. Versions of the same object in the log count each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Values {
    /// Values that are not encrypted.
    pub plain: u64,
    /// Encrypted values, by the id of the key: the key's name and the number.
    pub encrypted: BTreeMap<KeyId, (String, u64)>,
}

/// See the module.
pub(crate) struct Decryptor {
    encryption: Arc<Encryption>,
    tolerant: bool,
    /// Whether tables seen so far accept plain values.
    reads_plain: HashMap<Table, bool>,
    data: HashMap<(KeyId, Salt), LessSafeKey>,
    tally: BTreeMap<Table, Values>,
    /// The first refusal of each kind, and how many values it concerns.
    refused: Vec<(DecryptError, u64)>,
}

impl Decryptor {
    pub(crate) fn new(encryption: Arc<Encryption>) -> Self {
        Self {
            encryption,
            tolerant: false,
            reads_plain: HashMap::new(),
            data: HashMap::new(),
            tally: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// A decryptor that records errors and continues.
    pub(crate) fn tolerant(encryption: Arc<Encryption>) -> Self {
        Self { tolerant: true, ..Self::new(encryption) }
    }

    /// What was read, by table.
    pub(crate) const fn tally(&self) -> &BTreeMap<Table, Values> {
        &self.tally
    }

    /// What a tolerant decryptor could not read.
    pub(crate) fn refused(&self) -> &[(DecryptError, u64)] {
        &self.refused
    }

    /// Resets the counts, because the file is damaged.
    pub(crate) fn reset(&mut self) {
        self.tally.clear();
        self.refused.clear();
    }

    /// A value that was stored plain.
    pub(crate) fn plain(&mut self, key: &Key, value: &[u8]) -> Result<Bytes, Unreadable> {
        self.tally.entry(key.table).or_default().plain += 1;
        let Self { encryption, reads_plain, .. } = self;
        if encryption.rules.is_empty()
            || *reads_plain.entry(key.table).or_insert_with(|| encryption.reads_plain(key.table))
        {
            // Copied out, so that a value does not keep the whole frame in memory.
            return Ok(Bytes::copy_from_slice(value));
        }
        self.refuse(DecryptError::Plain { object: key.clone() })
    }

    /// A value that was stored encrypted.
    pub(crate) fn encrypted(&mut self, location: Location<'_>, value: &[u8]) -> Result<Bytes, Unreadable> {
        let envelope = envelope::parse(value).ok_or(Unreadable::Malformed)?;
        let values = self.tally.entry(location.key.table).or_default();
        values.encrypted.entry(envelope.id).or_insert_with(|| (envelope.name.to_owned(), 0)).1 += 1;
        match self.decrypt(location, &envelope) {
            Ok(value) => Ok(value),
            Err(error) => self.refuse(error),
        }
    }

    fn decrypt(&mut self, location: Location<'_>, envelope: &Envelope<'_>) -> Result<Bytes, DecryptError> {
        let altered = || DecryptError::Altered { object: location.key.clone(), name: envelope.name.to_owned() };
        let place = (envelope.id, envelope.salt);
        if !self.data.contains_key(&place) {
            let key = self.encryption.key(envelope.id).ok_or_else(|| self.unknown(location.key, envelope))?;
            let derived = key.data_key(&envelope.salt).map_err(|_| altered())?;
            self.data.insert(place, derived);
        }
        let key = self.data.get(&place).ok_or_else(altered)?;
        let associated = Aad::from(envelope::associated(envelope.header, location));
        let mut body = envelope.body.to_vec();
        let nonce = Nonce::assume_unique_for_key(envelope.nonce);
        let plain = key.open_in_place(nonce, associated, &mut body).map_err(|_| altered())?;
        // Copied again, to have no room for the tag at its end: the value is kept for long.
        Ok(Bytes::copy_from_slice(plain))
    }

    fn unknown(&self, object: &Key, envelope: &Envelope<'_>) -> DecryptError {
        let (object, name, id) = (object.clone(), envelope.name.to_owned(), envelope.id);
        match self.encryption.keys.iter().find(|key| key.name() == name) {
            Some(other) => DecryptError::OtherSecret { object, name, id, configured: other.id() },
            None => DecryptError::UnknownKey { object, name, id },
        }
    }

    fn refuse(&mut self, error: DecryptError) -> Result<Bytes, Unreadable> {
        if !self.tolerant {
            return Err(Unreadable::Encrypted(error));
        }
        match self.refused.iter_mut().find(|(known, _)| known.is_like(&error)) {
            Some((_, count)) => *count += 1,
            None => self.refused.push((error, 1)),
        }
        Ok(Bytes::new())
    }
}

impl DecryptError {
    /// Whether both have the same cause, so that one of them is enough to report.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::UnknownKey { id, .. }, Self::UnknownKey { id: other, .. })
            | (Self::OtherSecret { id, .. }, Self::OtherSecret { id: other, .. }) => id == other,
            (Self::Plain { object }, Self::Plain { object: other }) => object.table == other.table,
            _ => self == other,
        }
    }
}

#[cfg(test)]
mod tests;
