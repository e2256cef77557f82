//! Users by ServiceAccount token: JSON Web Tokens that this server signed (ES256).
//!
//! In: an account, or a token. Out: a token, or the account's user. A token is good while its signature, times and
//! audience are, and while the very account (same uid) exists. The only algorithm is ES256, whatever a token's header
//! says, so the header cannot talk the server into another one.

use std::fmt::{self, Debug, Formatter};

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};

use super::{CREDENTIAL_ID, User};

/// The audience of tokens for this server, and their issuer.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc";
/// What names of ServiceAccount users begin with.
pub const USER_PREFIX: &str = "system:serviceaccount:";
/// The group of all ServiceAccounts; with `:namespace` behind it, of those of one namespace.
pub const GROUP: &str = "system:serviceaccounts";
/// Clocks differ: times are taken this many seconds less strictly, as in the original.
const LEEWAY: i64 = 60;
/// What stands before the 65 bytes of a P-256 point to make it a SubjectPublicKeyInfo.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Why a token is not good.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Nobody knows it, or it is not a token of ours at all.
    #[error("invalid bearer token")]
    Unknown,
    /// It says that it is ours, but was signed by another key.
    #[error("invalid signature, no keys found")]
    OtherKey,
    /// The signature does not fit.
    #[error("the signature of the token does not fit")]
    Signature,
    /// It is for someone else.
    #[error("token audiences {have:?} is invalid for the target audiences {want:?}")]
    Audience {
        /// Whom it is for.
        have: Vec<String>,
        /// Who was named.
        want: Vec<String>,
    },
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYet,
    /// It was issued later than now.
    #[error("service account token is issued in the future")]
    FromTheFuture,
    /// The account was deleted.
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    /// The account was deleted and made anew.
    #[error("service account UID ({have}) does not match claim ({claimed})")]
    OtherAccount {
        /// The uid of the account that is there.
        have: String,
        /// The uid in the token.
        claimed: String,
    },
}

/// What a token is issued for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant<'a> {
    /// The namespace of the account.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Who may accept the token.
    pub audiences: &'a [&'a str],
    /// For how many seconds.
    pub seconds: i64,
}

/// The key of a damaged kind: it was read as a P-256 key before, so this does not happen to keys from [`crate::pki`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the key for ServiceAccount tokens cannot be used")]
pub struct KeyError;

/// Signs and verifies tokens.
pub struct ServiceAccounts {
    key: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
}

impl Debug for ServiceAccounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl ServiceAccounts {
    /// Takes the signing key (PKCS #8, DER).
    ///
    /// # Errors
    /// When it is not a P-256 key.
    pub fn new(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).map_err(|_| KeyError)?;
        let info = [&SPKI_PREFIX, key.public_key().as_ref()].concat();
        let key_id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &info));
        Ok(Self { key, key_id, random })
    }

    /// A token.
    ///
    /// # Errors
    /// When there is no randomness to be had.
    pub fn sign(&self, grant: &Grant<'_>, now: Timestamp) -> Result<String, KeyError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let issued = now.as_second();
        let claims = json!({
            "iss": API_AUDIENCE,
            "sub": username(grant.namespace, grant.name),
            "aud": grant.audiences,
            "iat": issued,
            "nbf": issued,
            "exp": issued.saturating_add(grant.seconds),
            "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": {
                "namespace": grant.namespace,
                "serviceaccount": {"name": grant.name, "uid": grant.uid},
            },
        });
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = self.key.sign(&self.random, token.as_bytes()).map_err(|_| KeyError)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// The user of a token meant for one of the audiences, and those of them that it is good for. `lookup` gives the
    /// uid of an account that exists.
    ///
    /// # Errors
    /// Why the token is not good.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[&str],
        now: Timestamp,
        lookup: &dyn Fn(&str, &str) -> Option<String>,
    ) -> Result<(User, Vec<String>), TokenError> {
        let claims = self.claims(token)?;
        let have: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            _ => claims.texts("aud"),
        };
        let good: Vec<String> =
            have.iter().filter(|own| audiences.contains(own)).map(|own| (*own).to_owned()).collect();
        if good.is_empty() {
            let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            return Err(TokenError::Audience { have: owned(&have), want: owned(audiences) });
        }
        check_times(&claims, now.as_second())?;

        let kubernetes = &claims["kubernetes.io"];
        let (namespace, name) = (kubernetes.text("namespace"), kubernetes.text("serviceaccount.name"));
        let claimed = kubernetes.text("serviceaccount.uid");
        let uid = lookup(namespace, name).ok_or_else(|| TokenError::NoAccount(name.to_owned()))?;
        if uid != claimed {
            return Err(TokenError::OtherAccount { have: uid, claimed: claimed.to_owned() });
        }
        let mut user = User { name: username(namespace, name), uid, groups: groups(namespace), ..User::default() };
        if let Some(id) = claims["jti"].as_str() {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        Ok((user, good))
    }

    /// The claims of a token that this key signed.
    fn claims(&self, token: &str) -> Result<Value, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Unknown)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Unknown)?;
        let claims = json_part(payload)?;
        if claims.text("iss") != API_AUDIENCE {
            return Err(TokenError::Unknown);
        }
        let header = json_part(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Unknown)?;
        // `crit` names extensions that must be understood; there are none here.
        if header["alg"] != "ES256" || header.has("crit") {
            return Err(TokenError::Signature);
        }
        if header.has("kid") && header["kid"] != self.key_id.as_str() {
            return Err(TokenError::OtherKey);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        Ok(claims)
    }
}

fn json_part(part: &str) -> Result<Value, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Unknown)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| TokenError::Unknown)?;
    if value.is_object() { Ok(value) } else { Err(TokenError::Unknown) }
}

/// A token without an end is none of ours.
fn check_times(claims: &Value, now: i64) -> Result<(), TokenError> {
    if claims["nbf"].as_i64().is_some_and(|from| now.saturating_add(LEEWAY) < from) {
        return Err(TokenError::NotYet);
    }
    if claims["exp"].as_i64().is_none_or(|end| now.saturating_sub(LEEWAY) > end) {
        return Err(TokenError::Expired);
    }
    if claims["iat"].as_i64().is_some_and(|issued| now.saturating_add(LEEWAY) < issued) {
        return Err(TokenError::FromTheFuture);
    }
    Ok(())
}

/// The user name of an account.
#[must_use]
pub fn username(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// The groups of an account, but for the one of all users.
#[must_use]
pub fn groups(namespace: &str) -> Vec<String> {
    vec![GROUP.to_owned(), format!("{GROUP}:{namespace}")]
}

/// Namespace and name of a user that is an account.
#[must_use]
pub fn split_username(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

#[cfg(test)]
mod tests;
