//! The keys of ServiceAccount tokens: the signing key, and public keys of earlier ones.
//!
//! In: `service-account.key`, and `service-account-previous.json`, to which a rotation adds the replaced public key with the time. Out:
//! [`SigningKeys`]. Earlier private keys are not stored anywhere.

use std::path::Path;

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::load::{self, SIGNING_KEY_REMEDY};
use super::{PkiError, files};

/// The private signing key.
pub(super) const KEY: &str = "service-account.key";
/// The earlier public keys.
pub(super) const PREVIOUS: &str = "service-account-previous.json";
const PREVIOUS_REMEDY: &str = "put the original file back, or remove it with `waypost certs finish signing` (ServiceAccount tokens of the keys \
                               before are then refused)";

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeys {
    /// The key that signs (PKCS #8, DER).
    pub current: Vec<u8>,
    /// Earlier keys.
    pub previous: Vec<RetiredKey>,
}

/// A key that no longer signs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetiredKey {
    /// The public key: an uncompressed point of P-256.
    pub public: Vec<u8>,
    /// When it was replaced: it signed nothing later.
    pub retired: Timestamp,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys").field("previous", &self.previous).finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// All bytes, for comparisons.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let previous = self.previous.iter().flat_map(|key| key.public.iter().copied());
        self.current.iter().copied().chain(previous).collect()
    }
}

/// Loads the keys; creates the first.
pub(super) fn load(dir: &Path) -> Result<SigningKeys, PkiError> {
    let key = load::key_or_new(&dir.join(KEY), SIGNING_KEY_REMEDY)?;
    let mut previous = retired(dir)?;
    // A rotation records the old key before it replaces it.
    previous.retain(|retired| retired.public != key.public_key_raw());
    Ok(SigningKeys { current: key.serialize_der(), previous })
}

/// The earlier keys.
pub(super) fn retired(dir: &Path) -> Result<Vec<RetiredKey>, PkiError> {
    let path = dir.join(PREVIOUS);
    let Some(bytes) = files::read(&path)? else { return Ok(Vec::new()) };
    let damaged = |why: &str| PkiError::Damaged { path: path.clone(), why: why.to_owned(), remedy: PREVIOUS_REMEDY };
    let rows: Vec<Value> = serde_json::from_slice(&bytes).map_err(|_| damaged("it holds no list of keys"))?;
    let key = |row: &Value| {
        let public =
            STANDARD.decode(row.text("publicKey")).ok().filter(|key| key.len() == 65 && key.starts_with(&[4]))?;
        Some(RetiredKey { public, retired: row.text("retired").parse().ok()? })
    };
    rows.iter().map(|row| key(row).ok_or_else(|| damaged("an entry is not a public key"))).collect()
}

/// The contents of the file.
pub(super) fn render(keys: &[RetiredKey]) -> String {
    let row = |key: &RetiredKey| json!({"publicKey": STANDARD.encode(&key.public), "retired": key.retired.to_string()});
    Value::from(keys.iter().map(row).collect::<Vec<_>>()).to_string()
}
