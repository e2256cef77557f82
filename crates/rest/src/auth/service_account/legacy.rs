//! Tokens in Secrets of the type `kubernetes.io/service-account-token`: without expiry, valid while the same Secret holds them.

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Lookup, TokenError, User, bound, groups, username};
use crate::auth::objects::Referent;

/// The issuer of such tokens.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
const CLAIM: &str = "kubernetes.io/serviceaccount/";
/// The key under which verified claims contain the token itself, for later checks.
const TOKEN: &str = "waypost.dev/token";

/// The claims of such a token.
pub(super) fn claims(namespace: &str, account: (&str, &str), secret: &str) -> Value {
    json!({
        "iss": ISSUER,
        "sub": username(namespace, account.0),
        format!("{CLAIM}namespace"): namespace,
        format!("{CLAIM}secret.name"): secret,
        format!("{CLAIM}service-account.name"): account.0,
        format!("{CLAIM}service-account.uid"): account.1,
    })
}

/// Adds the token to its claims.
pub(super) fn keep(claims: &mut Value, token: &str) {
    claims[TOKEN] = token.into();
}

/// The user of claims whose signature was verified.
///
/// # Errors
/// When account or Secret do not exist, or have another uid.
pub(super) fn holder(claims: &Value, now: Timestamp, lookup: Lookup<'_>) -> Result<User, TokenError> {
    let claim = |name: &str| claims[format!("{CLAIM}{name}")].as_str().unwrap_or_default();
    let (namespace, name) = (claim("namespace"), claim("service-account.name"));
    let secret =
        lookup(Referent::Secret, namespace, claim("secret.name")).filter(|secret| !bound::is_over(secret, now));
    let kept = secret.as_ref().map_or("", |secret| secret.at("data").text("token"));
    let kept = STANDARD.decode(kept).unwrap_or_default();
    if kept.is_empty() || kept != claims[TOKEN].as_str().unwrap_or_default().as_bytes() {
        return Err(TokenError::Invalidated);
    }
    let account = lookup(Referent::ServiceAccount, namespace, name);
    let account = account.ok_or_else(|| TokenError::NoAccount(name.to_owned()))?;
    if bound::is_over(&account, now) {
        return Err(TokenError::Deleted(format!("{namespace}/{name}")));
    }
    let (uid, claimed) = (account.text("metadata.uid").to_owned(), claim("service-account.uid"));
    if uid != claimed {
        return Err(TokenError::OtherAccount { have: uid, claimed: claimed.to_owned() });
    }
    Ok(User { name: username(namespace, name), uid, groups: groups(namespace), ..User::default() })
}
