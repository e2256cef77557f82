//! An ACME client (RFC 8555): accounts, orders, challenges by HTTP-01 and TLS-ALPN-01.
//!
//! In: a [`Directory`], hosts, and a function that publishes answers to challenges. Out: a private key with its certificate, or the problem as the server describes
//! it. The protocol is that of the crate `instant-acme`; [`exchange`] is its HTTP, so that a hostile server has no more than the limits there: it cannot make
//! the client connect elsewhere, wait for long, or keep much in memory.

pub mod certificate;
mod exchange;
mod order;

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{Account, AccountCredentials, Error as AcmeError, NewAccount, Problem};
use rustls::{ClientConfig, RootCertStore};

pub use exchange::{AddressError, ExchangeError};
pub use order::Proof;

use exchange::{Exchange, Origin};

/// An ACME server.
#[derive(Clone, Debug)]
pub struct Directory {
    url: Box<str>,
    contact: Option<Box<str>>,
    origin: Arc<Origin>,
    tls: Arc<ClientConfig>,
}

/// Why there is no account or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server does not know the account of the credentials.
    #[error("the ACME server does not know the account; another one is registered for the next order")]
    UnknownAccount,
    /// A rate limit of the CA.
    #[error("{0}; orders of this certificate pause for at least an hour")]
    RateLimit(String),
    /// The server refused, with its problem.
    #[error("{0}")]
    Refused(String),
    /// A host could not be validated.
    #[error("the CA could not validate {host}: {why}")]
    Validation {
        /// The host.
        host: String,
        /// The problem of the server.
        why: String,
    },
    /// The server offers no such challenge.
    #[error("the CA offers no {challenge} for {host}; it offers {offered}")]
    NoChallenge {
        /// The challenge.
        challenge: &'static str,
        /// The host.
        host: String,
        /// Others.
        offered: String,
    },
    /// The server does not follow the protocol.
    #[error("the ACME server does not follow the protocol: {0}")]
    Protocol(String),
    /// There is no response in time, or one beyond the limits.
    #[error("no response of the ACME server: {0}")]
    Exchange(String),
    /// An answer could not be published.
    #[error("{0}")]
    Publication(String),
    /// The certificate cannot be made or read.
    #[error("{0}")]
    Certificate(String),
}

impl Directory {
    /// The server with this directory. `contact` is an address for mail.
    ///
    /// # Errors
    /// When the URL is not that of a resource over HTTPS.
    pub fn new(url: &str, contact: Option<&str>, roots: RootCertStore) -> Result<Self, AddressError> {
        let origin = Arc::new(Origin::of(url)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut tls = builder.map_err(AddressError::Tls)?.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let contact = contact.map(|address| format!("mailto:{address}").into());
        Ok(Self { url: url.into(), contact, origin, tls: Arc::new(tls) })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Registers an account with a new key, and agrees to the terms of service; returns its credentials as JSON.
    ///
    /// # Errors
    /// When the server refuses or does not respond.
    pub async fn register(&self) -> Result<String, Error> {
        let contact: Vec<&str> = self.contact.iter().map(|contact| &**contact).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let builder = Account::builder_with_http(Box::new(self.exchange()));
        let (_, credentials) = builder.create(&new, self.url.to_string(), None).await?;
        serde_json::to_string(&credentials).map_err(|error| Error::Protocol(error.to_string()))
    }

    /// The account of credentials.
    async fn account(&self, credentials: &str) -> Result<Account, Error> {
        let credentials: AccountCredentials = serde_json::from_str(credentials).map_err(|_| Error::UnknownAccount)?;
        Ok(Account::builder_with_http(Box::new(self.exchange())).from_credentials(credentials).await?)
    }

    fn exchange(&self) -> Exchange {
        Exchange::new(Arc::clone(&self.origin), Arc::clone(&self.tls))
    }
}

/// How long the server may take to validate hosts, or to issue a certificate.
const ORDER_TIMEOUT: Duration = Duration::from_secs(120);

impl From<AcmeError> for Error {
    fn from(error: AcmeError) -> Self {
        match error {
            AcmeError::Api(problem) => Self::of(&problem),
            AcmeError::Timeout(_) => Self::Exchange(format!("it is not done after {} s", ORDER_TIMEOUT.as_secs())),
            AcmeError::Other(error) => Self::Exchange(error.to_string()),
            other => Self::Protocol(other.to_string()),
        }
    }
}

impl Error {
    /// The error for a problem document.
    fn of(problem: &Problem) -> Self {
        let text = describe(problem);
        match problem.r#type.as_deref().and_then(|kind| kind.rsplit(':').next()) {
            Some("accountDoesNotExist") => Self::UnknownAccount,
            Some("rateLimited") => Self::RateLimit(text),
            _ => Self::Refused(text),
        }
    }
}

/// Longest description of a problem, in characters: it is logged, and the server decides how long it is.
const MAX_DESCRIPTION: usize = 1000;

/// A problem document in one line.
fn describe(problem: &Problem) -> String {
    let own = [problem.detail.as_deref(), problem.r#type.as_deref()];
    let own = own.into_iter().flatten().map(str::to_owned);
    let parts = problem.subproblems.iter().filter_map(|part| part.detail.clone());
    let text = own.chain(parts).collect::<Vec<_>>().join("; ");
    // It is shown to users: no control characters of the server.
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_DESCRIPTION).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_are_described_in_a_line_of_limited_length() {
        let problem = |detail: &str| serde_json::from_value(json!({"type": "t", "detail": detail})).expect("a problem");
        assert_eq!(describe(&problem("a\nb")), "a b; t");
        assert_eq!(describe(&problem(&"ä".repeat(100_000))).chars().count(), MAX_DESCRIPTION);
    }
}
