//! The keys of tokens: the signing key, and earlier ones, which are accepted until the last token they signed has expired.

use std::iter;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};

use super::verified::VerifiedTokens;
use super::{KeyError, LEEWAY};
use crate::pki::SigningKeys;

/// The prefix that makes a SubjectPublicKeyInfo of the 65 bytes of a P-256 point.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The SubjectPublicKeyInfo (DER) of an uncompressed P-256 point.
pub(crate) fn subject_public_key_info(point: &[u8]) -> Vec<u8> {
    [&SPKI_PREFIX, point].concat()
}

/// See the module.
pub(super) struct Keys {
    signer: EcdsaKeyPair,
    random: SystemRandom,
    current: PublicKey,
    previous: Vec<PublicKey>,
}

/// A verification key.
pub(super) struct PublicKey {
    /// Its hash, which is the `kid`.
    pub(super) id: String,
    point: Vec<u8>,
    /// When it was replaced, in seconds since 1970; `None` for the signing key.
    retired: Option<i64>,
    /// Cache of verified tokens.
    pub(super) verified: VerifiedTokens,
}

impl Keys {
    pub(super) fn new(keys: &SigningKeys) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let signer =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &keys.current, &random).map_err(|_| KeyError)?;
        let current = PublicKey::new(signer.public_key().as_ref(), None);
        let previous = keys.previous.iter().map(|key| PublicKey::new(&key.public, Some(key.retired.as_second())));
        Ok(Self { previous: previous.collect(), signer, random, current })
    }

    /// The id of the signing key.
    pub(super) fn id(&self) -> &str {
        &self.current.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        Ok(self.signer.sign(&self.random, message).map_err(|_| KeyError)?.as_ref().to_vec())
    }

    /// The accepted keys, if tokens are valid for at most so many seconds; the signing key first.
    pub(super) fn accepted(&self, now: Timestamp, lifetime: i64) -> impl Iterator<Item = &PublicKey> {
        let end = move |retired: i64| retired.saturating_add(lifetime).saturating_add(LEEWAY);
        let is_accepted = move |key: &&PublicKey| key.retired.is_none_or(|retired| now.as_second() <= end(retired));
        iter::once(&self.current).chain(&self.previous).filter(is_accepted)
    }
}

impl PublicKey {
    fn new(point: &[u8], retired: Option<i64>) -> Self {
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &subject_public_key_info(point)));
        Self { id, point: point.to_vec(), retired, verified: VerifiedTokens::default() }
    }

    /// Verifies a signature.
    pub(super) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.point).verify(message, signature).is_ok()
    }

    /// As a JSON Web Key (RFC 7517).
    pub(super) fn json_web_key(&self) -> Value {
        // The point is 4, x, y; each coordinate has 32 bytes.
        let (x, y) = self.point.get(1..).and_then(|point| point.split_at_checked(32)).unwrap_or_default();
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": x, "y": y})
    }
}
