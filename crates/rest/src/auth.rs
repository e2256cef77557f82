//! Authentication: the credentials of a request in, a [`User`] out.
//!
//! In: the headers of a request and the client certificate of its connection. Out: the user, or 401. Authenticators run in the order of
//! kube-apiserver: client certificate, static tokens, bootstrap tokens, ServiceAccount tokens. A request without credentials is
//! anonymous; one with an invalid token is refused even where anonymous requests are allowed. Authorization is in [`crate::authz`].

pub mod bootstrap;
pub mod certificate;
mod credential;
pub(crate) mod impersonate;
pub mod objects;
pub mod service_account;
pub mod token_file;

use std::collections::BTreeMap;

use api::bootstrap_token::{NAME_PREFIX, NAMESPACE, Token};
use api::status::Status;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use serde_json::Value;

use objects::{ObjectLookup, Referent};
use service_account::{ServiceAccounts, TokenError, Verified};
use token_file::TokenFile;

use crate::pki::{Live, MASTERS};

pub use credential::Credential;

/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The user of requests over the local socket. No certificate with this name is signed.
pub const LOCAL: &str = "waypost:local";
/// The user of writes that the API server makes itself.
const API_SERVER: &str = "system:apiserver";
/// The key in a user's `extra` for the id of the credential.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The longest token, in bytes; ours are much shorter.
const MAX_TOKEN: usize = 16 * 1024;

/// An authenticated user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// Distinguishes users who had the same name at different times; mostly empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The anonymous user.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// The user of the local socket: components of this machine beside the server, with all permissions.
    #[must_use]
    pub fn local() -> Self {
        Self { name: LOCAL.into(), groups: vec![MASTERS.into()], ..Self::default() }.authenticated()
    }

    /// The API server itself.
    #[must_use]
    pub fn api_server() -> Self {
        Self { name: API_SERVER.into(), groups: vec![MASTERS.into()], ..Self::default() }.authenticated()
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    fn add_group(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }

    fn authenticated(mut self) -> Self {
        self.add_group(AUTHENTICATED);
        self
    }
}

/// All authenticators.
pub struct Authenticator {
    tokens: TokenFile,
    accounts: ServiceAccounts,
    lookup: ObjectLookup,
    /// Whether requests without credentials are accepted, as `system:anonymous`.
    anonymous: bool,
    /// The server's identity, which determines the trusted CAs, if it may change.
    identity: Option<Live>,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Combines the authenticators; `lookup` finds the objects that tokens depend on, at each request: deleting one ends its tokens.
    #[must_use]
    pub fn new(tokens: TokenFile, accounts: ServiceAccounts, lookup: ObjectLookup) -> Self {
        Self { tokens, accounts, lookup, anonymous: true, identity: None }
    }

    /// Refuses requests without credentials.
    #[must_use]
    pub fn without_anonymous(mut self) -> Self {
        self.anonymous = false;
        self
    }

    /// Accepts client certificates only while this identity trusts their CA.
    #[must_use]
    pub fn with_identity(mut self, identity: Live) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whether the CA of a client certificate is still trusted.
    fn trusts(&self, certificate: &[u8]) -> bool {
        self.identity.as_ref().is_none_or(|identity| identity.get().client_issuer(certificate).is_some())
    }

    /// The signer of ServiceAccount tokens.
    #[must_use]
    pub fn accounts(&self) -> &ServiceAccounts {
        &self.accounts
    }

    /// Finds an object that a credential may depend on.
    #[must_use]
    pub fn find(&self, what: Referent, namespace: &str, name: &str) -> Option<Value> {
        (self.lookup)(what, namespace, name)
    }

    /// The user of a request. `client_cert` is the end certificate (DER) of a handshake that **verified** it.
    ///
    /// # Errors
    /// 401 when credentials are malformed or invalid, or missing where they are required.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        client_cert: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<User, Status> {
        let token = bearer(headers)?;
        let certified = match client_cert {
            Some(der) => certificate::user(der, now).map_err(|_| Status::unauthorized())?,
            None => None,
        };
        match (certified, token) {
            (Some(user), _) => Ok(user.authenticated()),
            (None, Some(token)) => {
                let verified = self.token_user(token, &[self.accounts.issuer()], now);
                Ok(verified.map_err(|_| Status::unauthorized())?.user)
            }
            (None, None) if self.anonymous => Ok(User::anonymous()),
            (None, None) => Err(Status::unauthorized()),
        }
    }

    /// The user of a token for one of the audiences, and those of them that it is valid for.
    ///
    /// # Errors
    /// Why the token is invalid.
    pub fn token_user(&self, token: &str, audiences: &[&str], now: Timestamp) -> Result<Verified, TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::Unknown);
        }
        let own = self.accounts.issuer();
        // Static and bootstrap tokens have no audience: they are for this server.
        if audiences.contains(&own)
            && let Some(user) = self.tokens.user(token).cloned().or_else(|| self.bootstrap_user(token, now))
        {
            return Ok(Verified {
                user: user.authenticated(),
                audiences: vec![own.to_owned()],
                claims: Value::Null,
                key_id: String::new(),
            });
        }
        let verified = self.accounts.verify(token, audiences, now, &*self.lookup)?;
        Ok(Verified { user: verified.user.authenticated(), ..verified })
    }

    fn bootstrap_user(&self, token: &str, now: Timestamp) -> Option<User> {
        let token = Token::parse(token)?;
        let secret = (self.lookup)(Referent::Secret, NAMESPACE, &format!("{NAME_PREFIX}{}", token.id()))?;
        bootstrap::user(&token, &secret, now)
    }
}

/// The bearer token of a request. Other schemes are ignored, as in kube-apiserver; a header that is not text, or that is
/// repeated, is refused: a proxy in front might use another one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Status::unauthorized());
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Status::unauthorized())?;
    let Some((scheme, rest)) = text.trim().split_once(' ') else { return Ok(None) };
    let token = rest.split(' ').next().unwrap_or_default();
    Ok((scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token))
}

#[cfg(test)]
mod tests;
