//! A key of the configuration, and the data keys derived from it.
//!
//! In: the secret, 16 to 32 bytes. Out: an id by which files name the key without revealing it, and AES-256-GCM keys derived with
//! HKDF-SHA256 from the secret and a random salt. A data key encrypts at most [`MAX_VALUES`] values, so random nonces of 96
//! bits do not repeat, however long the key of the configuration is in use.

use std::fmt;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::error::Unspecified;
use ring::{hkdf, hmac};
use zeroize::Zeroizing;

/// Bytes of a salt.
pub(super) const SALT: usize = 32;
/// Bytes of a key id.
pub(super) const ID: usize = 8;
/// How many values one data key encrypts; NIST SP 800-38D allows 2^32 with random nonces.
pub(super) const MAX_VALUES: u32 = 1 << 30;

const DATA_KEY: &[u8] = b"waypost store data key, AES-256-GCM";
const KEY_ID: &[u8] = b"waypost store key id";

/// Drawn at random for each data key.
pub(super) type Salt = [u8; SALT];

/// Identifies a key by its secret: a truncated HMAC of it. Two keys with the same name have different ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub(super) [u8; ID]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A key of the configuration. The secret is overwritten when the value is dropped.
#[derive(Clone)]
pub(super) struct SecretKey {
    name: Box<str>,
    id: KeyId,
    secret: Zeroizing<Vec<u8>>,
}

impl SecretKey {
    pub(super) fn new(name: &str, secret: Zeroizing<Vec<u8>>) -> Self {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), KEY_ID);
        let mut id = [0; ID];
        id.iter_mut().zip(tag.as_ref()).for_each(|(id, byte)| *id = *byte);
        Self { name: name.into(), id: KeyId(id), secret }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn id(&self) -> KeyId {
        self.id
    }

    /// The data key of a salt.
    pub(super) fn data_key(&self, salt: &Salt) -> Result<LessSafeKey, Unspecified> {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.secret);
        let expanded = extracted.expand(&[DATA_KEY], &AES_256_GCM)?;
        Ok(LessSafeKey::new(UnboundKey::from(expanded)))
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }
}

impl Eq for SecretKey {}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, byte: u8) -> SecretKey {
        SecretKey::new(name, Zeroizing::new(vec![byte; 32]))
    }

    #[test]
    fn an_id_follows_the_secret_and_not_the_name() {
        assert_eq!(key("a", 1).id(), key("b", 1).id());
        assert_ne!(key("a", 1).id(), key("a", 2).id());
        assert_ne!(key("a", 1), key("b", 1));
        let shown = format!("{:?}", key("a", 1));
        assert_eq!(shown, format!("a ({})", key("a", 1).id()));
        assert_eq!(shown.len(), "a ()".len() + 2 * ID);
    }

    #[test]
    fn every_salt_gives_another_data_key() {
        use ring::aead::{Aad, Nonce};
        let sealed = |key: &SecretKey, salt: u8| {
            let mut text = b"value".to_vec();
            let data = key.data_key(&[salt; SALT]).expect("derived");
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            data.seal_in_place_append_tag(nonce, Aad::empty(), &mut text).expect("encrypted");
            text
        };
        assert_eq!(sealed(&key("a", 1), 7), sealed(&key("b", 1), 7));
        assert_ne!(sealed(&key("a", 1), 7), sealed(&key("a", 1), 8));
        assert_ne!(sealed(&key("a", 1), 7), sealed(&key("a", 2), 7));
    }
}
