//! Hashes of passwords as in files of htpasswd. Pure.
//!
//! In: the text of a hash, a password. Out: whether they fit, compared in constant time. Formats: bcrypt (`$2y$`, `$2a$`,
//! `$2b$`), MD5 of Apache (`$apr1$`) and of crypt (`$1$`), SHA-crypt (`$5$`, `$6$`), `{SHA}`, `{SSHA}`, `{PLAIN}`. What a
//! hash may cost is limited, because owners of Secrets choose it: the cost of bcrypt, and the rounds of SHA-crypt.

mod md5_crypt;

use base64::Engine as _;
use base64::alphabet::BCRYPT;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use ring::digest;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use subtle::ConstantTimeEq as _;

/// The highest cost of bcrypt: about one second.
const MAX_COST: u32 = 14;
/// The fewest rounds of SHA-crypt.
const MIN_ROUNDS: u32 = 1000;
/// The most rounds of SHA-crypt: about one second.
const MAX_ROUNDS: u32 = 500_000;
/// Bytes of a password that bcrypt uses, with the zero at its end.
const BCRYPT_KEY: usize = 72;
/// Bytes of a bcrypt hash.
const BCRYPT_HASH: usize = 23;
/// Characters of the salt in a bcrypt hash.
const BCRYPT_SALT: usize = 22;
/// Bytes of a salt of `{SSHA}`.
const MAX_SHA1_SALT: usize = 64;
const SHA1_LENGTH: usize = digest::SHA1_OUTPUT_LEN;

/// Base64 of bcrypt: the last character has unused bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(&BCRYPT, NO_PAD.with_decode_allow_trailing_bits(true));

/// The hash of a password.
#[derive(PartialEq, Eq)]
pub(super) enum PasswordHash {
    Plain(Box<[u8]>),
    /// SHA-1 of the password and the salt, which may be empty.
    Sha1 {
        hash: Box<[u8]>,
        salt: Box<[u8]>,
    },
    Bcrypt {
        cost: u32,
        salt: [u8; 16],
        hash: Box<[u8]>,
    },
    Md5 {
        magic: &'static str,
        salt: Box<[u8]>,
        hash: Box<str>,
    },
    Sha2(Box<str>),
}

/// The text is not a hash that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum HashError {
    #[error("the format is not supported: use bcrypt (htpasswd -B)")]
    Unsupported,
    #[error("the hash is malformed")]
    Malformed,
    #[error("the hash takes too long to verify: use bcrypt with a cost of at most {MAX_COST}")]
    TooExpensive,
}

impl PasswordHash {
    /// Reads a hash.
    pub(super) fn parse(text: &str) -> Result<Self, HashError> {
        if let Some(plain) = text.strip_prefix("{PLAIN}") {
            return Ok(Self::Plain(plain.as_bytes().into()));
        }
        if let Some(encoded) = text.strip_prefix("{SHA}").or_else(|| text.strip_prefix("{SSHA}")) {
            return sha1(encoded, text.starts_with("{SHA}"));
        }
        let mut fields = text.split('$');
        let (Some(""), Some(id)) = (fields.next(), fields.next()) else { return Err(HashError::Unsupported) };
        match id {
            "2a" | "2b" | "2y" => bcrypt(fields),
            "apr1" => md5(md5_crypt::APACHE, fields),
            "1" => md5(md5_crypt::CRYPT, fields),
            "5" => sha2(text, 43, fields),
            "6" => sha2(text, 86, fields),
            _ => Err(HashError::Unsupported),
        }
    }

    /// Whether it is slow to verify, as hashes of passwords should be.
    pub(super) const fn is_slow(&self) -> bool {
        matches!(self, Self::Bcrypt { .. } | Self::Md5 { .. } | Self::Sha2(_))
    }

    /// Whether it is the hash of a password, which has no zero byte.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Plain(plain) => plain.ct_eq(password).into(),
            Self::Sha1 { hash, salt } => {
                let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
                context.update(password);
                context.update(salt);
                context.finish().as_ref().ct_eq(hash).into()
            }
            Self::Bcrypt { cost, salt, hash } => {
                let mut key: Vec<u8> = password.iter().copied().chain([0]).collect();
                key.truncate(BCRYPT_KEY);
                bcrypt::bcrypt(*cost, *salt, &key)[..BCRYPT_HASH].ct_eq(hash).into()
            }
            Self::Md5 { magic, salt, hash } => {
                md5_crypt::hash(password, magic, salt).as_bytes().ct_eq(hash.as_bytes()).into()
            }
            Self::Sha2(text) => ShaCrypt::default().verify_password(password, &**text).is_ok(),
        }
    }
}

fn sha1(encoded: &str, is_plain: bool) -> Result<PasswordHash, HashError> {
    let all = STANDARD.decode(encoded).map_err(|_| HashError::Malformed)?;
    let (hash, salt) = all.split_at_checked(SHA1_LENGTH).ok_or(HashError::Malformed)?;
    match salt.is_empty() == is_plain && salt.len() <= MAX_SHA1_SALT {
        true => Ok(PasswordHash::Sha1 { hash: hash.into(), salt: salt.into() }),
        false => Err(HashError::Malformed),
    }
}

fn bcrypt<'a>(mut fields: impl Iterator<Item = &'a str>) -> Result<PasswordHash, HashError> {
    let (Some(cost), Some(rest), None) = (fields.next(), fields.next(), fields.next()) else {
        return Err(HashError::Malformed);
    };
    let cost = number(cost).filter(|cost| *cost >= 4).ok_or(HashError::Malformed)?;
    if cost > MAX_COST {
        return Err(HashError::TooExpensive);
    }
    let (salt, hash) = rest.split_at_checked(BCRYPT_SALT).ok_or(HashError::Malformed)?;
    let decode = |text: &str| BASE64.decode(text).map_err(|_| HashError::Malformed);
    let (salt, hash) = (decode(salt)?.try_into().map_err(|_| HashError::Malformed)?, decode(hash)?);
    match hash.len() {
        BCRYPT_HASH => Ok(PasswordHash::Bcrypt { cost, salt, hash: hash.into() }),
        _ => Err(HashError::Malformed),
    }
}

fn md5<'a>(magic: &'static str, mut fields: impl Iterator<Item = &'a str>) -> Result<PasswordHash, HashError> {
    match (fields.next(), fields.next(), fields.next()) {
        (Some(salt), Some(hash), None) if hash.len() == md5_crypt::LENGTH => {
            // No more of a salt counts.
            let salt = salt.bytes().take(md5_crypt::MAX_SALT).collect();
            Ok(PasswordHash::Md5 { magic, salt, hash: hash.into() })
        }
        _ => Err(HashError::Malformed),
    }
}

/// `length` is that of the hash in characters.
fn sha2<'a>(text: &str, length: usize, fields: impl Iterator<Item = &'a str>) -> Result<PasswordHash, HashError> {
    let mut fields = fields.peekable();
    if let Some(rounds) = fields.next_if(|first| first.starts_with("rounds=")) {
        let rounds = rounds.strip_prefix("rounds=").and_then(number).ok_or(HashError::Malformed)?;
        match rounds {
            0..MIN_ROUNDS => return Err(HashError::Malformed),
            MIN_ROUNDS..=MAX_ROUNDS => {}
            _ => return Err(HashError::TooExpensive),
        }
    }
    match (fields.next(), fields.next(), fields.next()) {
        (Some(salt), Some(hash), None) if !salt.is_empty() && hash.len() == length => {
            Ok(PasswordHash::Sha2(text.into()))
        }
        _ => Err(HashError::Malformed),
    }
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
