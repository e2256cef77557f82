//! ServiceAccount tokens: JSON Web Tokens signed by this server (ES256).
//!
//! In: an account, or a token. Out: a token, or the user of the account. A token is valid while its signature, times and audience are,
//! and while the account (with the same uid) and the bound object exist. Only ES256 is accepted, whatever the header of a token
//! names, which prevents algorithm confusion.

mod bound;
mod keys;
mod legacy;
mod verified;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Value, json};

use self::keys::{Keys, PublicKey};
use super::objects::Referent;
use super::{CREDENTIAL_ID, User};
use crate::pki::SigningKeys;

pub use bound::{Binding, Reference};
pub(crate) use keys::subject_public_key_info;

/// The issuer of earlier versions, also the audience of their tokens. Still accepted, because such tokens and manifests exist.
const EARLIER_ISSUER: &str = "https://kubernetes.default.svc";
/// The prefix of the user names.
pub const USER_PREFIX: &str = "system:serviceaccount:";
/// The group of all ServiceAccounts; followed by `:namespace`, of those of one namespace.
pub const GROUP: &str = "system:serviceaccounts";
/// The default limit of the lifetime of tokens, in seconds.
const MAX_LIFETIME: i64 = 24 * 3600;
/// The tolerance for clock skew in seconds, as in kube-apiserver.
const LEEWAY: i64 = 60;
/// Why a token is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not a token of this server.
    #[error("invalid bearer token")]
    Unknown,
    /// The issuer is this server, but the key is unknown.
    #[error("invalid signature, no keys found")]
    OtherKey,
    /// The signature is wrong.
    #[error("invalid signature of the token")]
    Signature,
    /// It is for other audiences.
    #[error("token audiences [{}] is invalid for the target audiences [{}]", quoted(have), quoted(want))]
    Audience {
        /// The audiences of the token.
        have: Vec<String>,
        /// The accepted audiences.
        want: Vec<String>,
    },
    /// It has expired.
    #[error("service account token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("service account token is not valid yet")]
    NotYet,
    /// It was issued in the future.
    #[error("service account token is issued in the future")]
    FromTheFuture,
    /// The account was deleted.
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    /// The account is being deleted, for longer than the clock tolerance.
    #[error("service account {0} has been deleted")]
    Deleted(String),
    /// The bound object does not exist.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// The bound object was deleted and created again.
    #[error("{what} UID ({have}) does not match service account {what} ref claim ({claimed})")]
    OtherObject {
        /// The kind, in lower case.
        what: String,
        /// The uid of the current object.
        have: String,
        /// The uid in the token.
        claimed: String,
    },
    /// The account was deleted and created again.
    #[error("service account UID ({have}) does not match claim ({claimed})")]
    OtherAccount {
        /// The uid of the current account.
        have: String,
        /// The uid in the token.
        claimed: String,
    },
}

/// The claims of a new token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant<'a> {
    /// The namespace of the account.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The audiences.
    pub audiences: &'a [&'a str],
    /// The lifetime in seconds.
    pub seconds: i64,
    /// The bound object besides the account.
    pub bound: Binding<'a>,
}

/// A verified token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The user.
    pub user: User,
    /// The requested audiences that it is valid for.
    pub audiences: Vec<String>,
    /// The claims of a ServiceAccount token, for later checks.
    pub claims: Value,
    /// The key that signed it; empty for other tokens.
    pub key_id: String,
}

/// Looks up an object that a token depends on.
pub type Lookup<'a> = &'a dyn Fn(Referent, &str, &str) -> Option<Value>;

/// The key is not a P-256 key. Does not happen to keys from [`crate::pki`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the key for ServiceAccount tokens cannot be used")]
pub struct KeyError;

/// The limit of the lifetime of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// In seconds.
    pub seconds: i64,
    /// Whether it was configured.
    pub is_configured: bool,
}

/// Signs and verifies tokens. Clones share the keys.
#[derive(Clone)]
pub struct ServiceAccounts {
    keys: Arc<RwLock<Arc<Keys>>>,
    issuer: String,
    max_lifetime: Lifetime,
}

impl Debug for ServiceAccounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("key_id", &self.keys().id()).finish_non_exhaustive()
    }
}

impl ServiceAccounts {
    /// Uses a signing key (PKCS #8, DER); the domain of the cluster is in the issuer.
    ///
    /// # Errors
    /// When it is not a P-256 key.
    pub fn new(pkcs8: &[u8], cluster_domain: &str) -> Result<Self, KeyError> {
        let keys = Keys::new(&SigningKeys { current: pkcs8.to_vec(), previous: Vec::new() })?;
        let issuer = format!("{EARLIER_ISSUER}.{cluster_domain}");
        let max_lifetime = Lifetime { seconds: MAX_LIFETIME, is_configured: false };
        Ok(Self { keys: Arc::new(RwLock::new(Arc::new(keys))), issuer, max_lifetime })
    }

    /// Replaces the keys, also of all clones.
    ///
    /// # Errors
    /// When the signing key is not a P-256 key; the previous keys stay in use.
    pub fn set_keys(&self, keys: &SigningKeys) -> Result<(), KeyError> {
        *self.keys.write() = Arc::new(Keys::new(keys)?);
        Ok(())
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().clone()
    }

    /// The accepted public keys as JSON Web Keys; the signing key first.
    #[must_use]
    pub fn public_keys(&self, now: Timestamp) -> Vec<Value> {
        self.keys().accepted(now, self.max_lifetime.seconds).map(|key| key.json_web_key()).collect()
    }

    /// Whether tokens of the key with this id are accepted.
    #[must_use]
    pub fn accepts_key(&self, key_id: &str, now: Timestamp) -> bool {
        self.keys().accepted(now, self.max_lifetime.seconds).any(|key| key.id == key_id)
    }

    /// Whether the key id of a token is accepted, or absent (then it is not one of ours). The signature is not verified.
    #[must_use]
    pub fn accepts_key_of(&self, token: &str, now: Timestamp) -> bool {
        let header = token.split('.').next().and_then(|part| json_part(part).ok()).unwrap_or_default();
        !header.has("kid") || header["alg"] != "ES256" || self.accepts_key(header.text("kid"), now)
    }

    /// Sets the limit of the lifetime of tokens, in seconds.
    #[must_use]
    pub fn with_max_lifetime(mut self, seconds: i64) -> Self {
        self.max_lifetime = Lifetime { seconds, is_configured: true };
        self
    }

    /// The limit of the lifetime of tokens.
    #[must_use]
    pub fn max_lifetime(&self) -> Lifetime {
        self.max_lifetime
    }

    /// The issuer of tokens, also the audience of this server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Signs a token.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn sign(&self, grant: &Grant<'_>, now: Timestamp) -> Result<String, KeyError> {
        let issued = now.as_second();
        let mut claims = json!({
            "iss": self.issuer,
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
        grant.bound.write(&mut claims["kubernetes.io"]);
        self.signed(&claims)
    }

    /// Signs a token for a Secret, without expiry. The account is given by name and uid.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn sign_kept(&self, namespace: &str, account: (&str, &str), secret: &str) -> Result<String, KeyError> {
        self.signed(&legacy::claims(namespace, account, secret))
    }

    fn signed(&self, claims: &Value) -> Result<String, KeyError> {
        let keys = self.keys();
        let header = json!({"alg": "ES256", "kid": keys.id()});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = keys.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// Verifies a token for one of the audiences.
    ///
    /// # Errors
    /// Why the token is invalid.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[&str],
        now: Timestamp,
        lookup: Lookup<'_>,
    ) -> Result<Verified, TokenError> {
        let (mut claims, key_id) = self.claims(token, now)?;
        if claims["iss"] == legacy::ISSUER {
            legacy::keep(&mut claims, token);
            claims["aud"] = json!([self.issuer]);
        }
        let have: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            _ => claims.texts("aud"),
        };
        let is_in = |wanted: &str| have.contains(&wanted) || wanted == self.issuer && have.contains(&EARLIER_ISSUER);
        let good: Vec<String> =
            audiences.iter().filter(|wanted| is_in(wanted)).map(|wanted| (*wanted).to_owned()).collect();
        if good.is_empty() {
            let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            return Err(TokenError::Audience { have: owned(&have), want: owned(audiences) });
        }
        let user = self.holder(&claims, now, lookup)?;
        Ok(Verified { user, audiences: good, claims, key_id })
    }

    /// The user of claims whose signature was verified earlier: times, account and bound object are checked again.
    ///
    /// # Errors
    /// Why they are no longer valid.
    pub fn holder(&self, claims: &Value, now: Timestamp, lookup: Lookup<'_>) -> Result<User, TokenError> {
        if claims["iss"] == legacy::ISSUER {
            return legacy::holder(claims, now, lookup);
        }
        check_times(claims, now.as_second())?;
        let kubernetes = &claims["kubernetes.io"];
        let (namespace, name) = (kubernetes.text("namespace"), kubernetes.text("serviceaccount.name"));
        let claimed = kubernetes.text("serviceaccount.uid");
        let account = lookup(Referent::ServiceAccount, namespace, name);
        let account = account.ok_or_else(|| TokenError::NoAccount(name.to_owned()))?;
        if bound::is_over(&account, now) {
            return Err(TokenError::Deleted(format!("{namespace}/{name}")));
        }
        let uid = account.text("metadata.uid").to_owned();
        if uid != claimed {
            return Err(TokenError::OtherAccount { have: uid, claimed: claimed.to_owned() });
        }
        let binding = Binding::read(kubernetes);
        binding.check(namespace, now, lookup)?;
        let mut user = User { name: username(namespace, name), uid, groups: groups(namespace), ..User::default() };
        if let Some(id) = claims["jti"].as_str() {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        binding.extras(&mut user.extra);
        Ok(user)
    }

    /// The claims of a token signed by an accepted key, and the key's id.
    fn claims(&self, token: &str, now: Timestamp) -> Result<(Value, String), TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Unknown)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Unknown)?;
        let claims = json_part(payload)?;
        if ![self.issuer.as_str(), EARLIER_ISSUER, legacy::ISSUER].contains(&claims.text("iss")) {
            return Err(TokenError::Unknown);
        }
        let header = json_part(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Unknown)?;
        // `crit` lists extensions that must be understood; none are supported.
        if header["alg"] != "ES256" || header.has("crit") {
            return Err(TokenError::Signature);
        }
        let keys = self.keys();
        let is_named = |id: &str| !header.has("kid") || header["kid"] == id;
        let mut candidates = keys.accepted(now, self.max_lifetime.seconds).filter(|key| is_named(&key.id)).peekable();
        if candidates.peek().is_none() {
            return Err(TokenError::OtherKey);
        }
        let is_signed = |key: &&PublicKey| {
            let verify = || key.signed(signed.as_bytes(), &signature).then_some(()).ok_or(());
            key.verified.check(token, verify).is_ok()
        };
        let key = candidates.find(is_signed).ok_or(TokenError::Signature)?;
        Ok((claims, key.id.clone()))
    }
}

/// A list of strings in the format of Go's `%q`.
fn quoted(list: &[String]) -> String {
    list.iter().map(|text| api::field::quote(text)).collect::<Vec<String>>().join(" ")
}

/// The id of a token in users and in the audit log. The signature is not verified.
pub(crate) fn credential_id(token: &str) -> Option<String> {
    let claims = json_part(token.split('.').nth(1)?).ok()?;
    claims["jti"].as_str().map(|id| format!("JTI={id}"))
}

fn json_part(part: &str) -> Result<Value, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Unknown)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| TokenError::Unknown)?;
    if value.is_object() { Ok(value) } else { Err(TokenError::Unknown) }
}

/// Checks the times. A token without expiry is not accepted.
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

/// The groups of an account, without `system:authenticated`.
#[must_use]
pub fn groups(namespace: &str) -> Vec<String> {
    vec![GROUP.to_owned(), format!("{GROUP}:{namespace}")]
}

/// Namespace and name of an account's user name.
#[must_use]
pub fn split_username(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

#[cfg(test)]
mod tests;
