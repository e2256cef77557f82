//! Encrypts values on their way into a file.
//!
//! In: a table, a location, a plain value. Out: the encrypted value at the end of a buffer. An encryptor draws a salt, and so has
//! a data key of its own, for each key that it uses; the log has one encryptor, each snapshot another.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use ring::aead::{Aad, LessSafeKey, Nonce};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::Encryption;
use super::envelope::{self, Location, NONCE, TAG};
use super::key::{MAX_VALUES, SALT, SecretKey};
use crate::Table;

/// See the module.
pub(crate) struct Encryptor {
    encryption: Arc<Encryption>,
    random: SystemRandom,
    /// The keys of tables seen so far, according to the rules.
    tables: HashMap<Table, Option<usize>>,
    /// By the place of the key in the configuration.
    data: HashMap<usize, DataKey>,
}

struct DataKey {
    key: LessSafeKey,
    /// What stands before the nonce of each value.
    header: Vec<u8>,
    /// How many values it encrypted.
    used: u32,
}

/// The key of a table, for [`Encryptor::append`].
#[derive(Clone, Copy)]
pub(crate) struct Chosen(usize);

impl Encryptor {
    pub(crate) fn new(encryption: Arc<Encryption>) -> Self {
        Self { encryption, random: SystemRandom::new(), tables: HashMap::new(), data: HashMap::new() }
    }

    /// The key for values of this table; `None` if they are written plain.
    pub(crate) fn choose(&mut self, table: Table) -> Option<Chosen> {
        if self.encryption.rules.is_empty() {
            return None;
        }
        let Self { encryption, tables, .. } = self;
        tables.entry(table).or_insert_with(|| encryption.writes(table)).map(Chosen)
    }

    /// How many bytes [`Encryptor::append`] writes for a value of this length.
    pub(crate) fn length(&self, chosen: Chosen, value: usize) -> usize {
        let name = self.encryption.keys.get(chosen.0).map_or(0, |key| key.name().len());
        2 + name + super::key::ID + SALT + NONCE + value + TAG
    }

    /// Appends the encrypted value.
    ///
    /// # Errors
    ///
    /// When the system has no random bytes. The appended bytes must not be used then.
    pub(crate) fn append(
        &mut self,
        out: &mut Vec<u8>,
        chosen: Chosen,
        location: Location<'_>,
        value: &[u8],
    ) -> io::Result<()> {
        self.try_append(out, chosen, location, value)
            .map_err(|Unspecified| io::Error::other("a value cannot be encrypted"))
    }

    fn try_append(
        &mut self,
        out: &mut Vec<u8>,
        Chosen(place): Chosen,
        location: Location<'_>,
        value: &[u8],
    ) -> Result<(), Unspecified> {
        let Self { encryption, random, data, .. } = self;
        let mut nonce = [0; NONCE];
        random.fill(&mut nonce)?;
        let fresh = data.get(&place).is_none_or(|data| data.used >= MAX_VALUES);
        if fresh {
            data.insert(place, DataKey::draw(encryption.keys.get(place).ok_or(Unspecified)?, random)?);
        }
        let data = data.get_mut(&place).ok_or(Unspecified)?;
        data.used += 1;
        out.extend_from_slice(&data.header);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(value);
        let body = out.get_mut(start..).ok_or(Unspecified)?;
        let associated = Aad::from(envelope::associated(&data.header, location));
        let tag = data.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), associated, body)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

impl DataKey {
    fn draw(key: &SecretKey, random: &SystemRandom) -> Result<Self, Unspecified> {
        let mut salt = [0; SALT];
        random.fill(&mut salt)?;
        Ok(Self { key: key.data_key(&salt)?, header: envelope::header(key.name(), key.id(), &salt), used: 0 })
    }
}
