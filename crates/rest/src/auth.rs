//! Who is asking: from what a request carries to a [`User`].
//!
//! In: the headers of a request and the client certificate of its connection. Out: the user, or the 401 that answers
//! the request. The sources are asked in the order of the original: certificate, static tokens, bootstrap tokens,
//! ServiceAccount tokens; a request that carries none of them is anonymous, one that carries a bad token is refused even where
//! anonymous requests are allowed. What a user may do is the business of [`crate::authz`].

pub mod bootstrap;
pub mod certificate;
mod impersonate;
pub mod service_account;
pub mod token_file;

use std::collections::BTreeMap;

use api::bootstrap_token::{NAME_PREFIX, Token};
use api::status::Status;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use bootstrap::SecretLookup;
use service_account::{ServiceAccounts, TokenError};
use token_file::TokenFile;

/// The group of everyone who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Where a user's `extra` says which credential was shown.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// No token of ours comes near; hashing more than this is work for nothing.
const MAX_TOKEN: usize = 16 * 1024;

/// Someone who asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// Tells apart users who had the same name one after the other; mostly empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the source knew.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
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

/// Finds the uid of the ServiceAccount of a namespace and name, if there is one.
pub type AccountLookup = Box<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// All sources of users.
pub struct Authenticator {
    tokens: TokenFile,
    accounts: ServiceAccounts,
    lookup: AccountLookup,
    secrets: SecretLookup,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Puts the sources together; `lookup` is asked for each ServiceAccount token, so that deleting the account ends
    /// its tokens.
    #[must_use]
    pub fn new(tokens: TokenFile, accounts: ServiceAccounts, lookup: AccountLookup) -> Self {
        Self { tokens, accounts, lookup, secrets: Box::new(|_| None) }
    }

    /// The same with bootstrap tokens, which are kept in Secrets.
    #[must_use]
    pub fn with_bootstrap_tokens(mut self, secrets: SecretLookup) -> Self {
        self.secrets = secrets;
        self
    }

    /// The signer of ServiceAccount tokens.
    #[must_use]
    pub fn accounts(&self) -> &ServiceAccounts {
        &self.accounts
    }

    /// The user of a request. `client_cert` is the end certificate (DER) of a handshake that **verified** it.
    ///
    /// # Errors
    /// 401 when credentials are malformed or not good, 403 or 400 when another user is to be impersonated and that is
    /// not allowed or not well put.
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
        let user = match (certified, token) {
            (Some(user), _) => user.authenticated(),
            (None, Some(token)) => {
                self.token_user(token, &[service_account::API_AUDIENCE], now).map_err(|_| Status::unauthorized())?.0
            }
            (None, None) => User::anonymous(),
        };
        impersonate::as_asked(user, headers)
    }

    /// Whether a user who was let in earlier still exists, as far as that can be known: accounts can be deleted.
    #[must_use]
    pub fn is_still_there(&self, user: &User) -> bool {
        match service_account::split_username(&user.name) {
            Some((namespace, name)) => {
                (self.lookup)(namespace, name).is_some_and(|uid| user.uid.is_empty() || uid == user.uid)
            }
            None => true,
        }
    }

    /// The user of a token that is meant for one of the audiences, and those of them it is good for.
    ///
    /// # Errors
    /// Why the token is not good.
    pub fn token_user(
        &self,
        token: &str,
        audiences: &[&str],
        now: Timestamp,
    ) -> Result<(User, Vec<String>), TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::Unknown);
        }
        // Static and bootstrap tokens name no audience: they are meant for this server.
        if audiences.contains(&service_account::API_AUDIENCE)
            && let Some(user) = self.tokens.user(token).cloned().or_else(|| self.bootstrap_user(token, now))
        {
            return Ok((user.authenticated(), vec![service_account::API_AUDIENCE.to_owned()]));
        }
        let (user, audiences) = self.accounts.verify(token, audiences, now, &*self.lookup)?;
        Ok((user.authenticated(), audiences))
    }

    fn bootstrap_user(&self, token: &str, now: Timestamp) -> Option<User> {
        let token = Token::parse(token)?;
        let secret = (self.secrets)(&format!("{NAME_PREFIX}{}", token.id()))?;
        bootstrap::user(&token, &secret, now)
    }
}

/// The bearer token of a request. Other schemes are not looked at, as in the original; a header that is not text, or
/// there twice, is refused: two servers in a row might read different ones.
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
