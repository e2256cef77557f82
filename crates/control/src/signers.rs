//! Signing functions that the server passes to the controllers: the CA and token keys stay in the server.

use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use jiff::Timestamp;

/// A certificate to sign.
#[derive(Clone, Copy, Debug)]
pub struct CertificateRequest<'a> {
    /// The signer (`spec.signerName`): agents' serving certificates have another CA than those of clients.
    pub signer: &'a str,
    /// Names and key.
    pub request: &'a Request,
    /// Key usages, as in CertificateSigningRequests.
    pub usages: &'a [&'a str],
    /// The lifetime.
    pub lifetime: Duration,
    /// The start of the validity.
    pub now: Timestamp,
}

/// The error of a signing function, which belongs to the server.
pub type SignError = Box<dyn Error + Send + Sync>;

type Sign = dyn Fn(&CertificateRequest<'_>) -> Result<String, SignError> + Send + Sync;

/// Signs certificates.
#[derive(Clone)]
pub struct Signer(Arc<Sign>);

impl Signer {
    /// Uses a function that returns a certificate in PEM, or an error.
    pub fn new(sign: impl Fn(&CertificateRequest<'_>) -> Result<String, SignError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }

    pub(crate) fn sign(&self, order: &CertificateRequest<'_>) -> Result<String, SignError> {
        (self.0)(order)
    }
}

impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Signer {}

impl Debug for Signer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

/// Signs a token.
type SignToken = dyn Fn(&TokenRequest<'_>) -> Result<String, SignError> + Send + Sync;

/// Whether a token was signed by an accepted key.
type AcceptToken = dyn Fn(&str) -> bool + Send + Sync;

/// Signs service account tokens in Secrets.
#[derive(Clone)]
pub struct TokenSigner {
    pub(crate) sign: Arc<SignToken>,
    pub(crate) accepts: Arc<AcceptToken>,
}

/// A token to sign.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The namespace of account and Secret.
    pub namespace: &'a str,
    /// The name and uid of the account.
    pub account: (&'a str, &'a str),
    /// The name of the Secret.
    pub secret: &'a str,
}

impl TokenSigner {
    /// Uses these functions. Tokens that `accepts` rejects are signed again.
    #[must_use]
    pub fn new(
        sign: impl Fn(&TokenRequest<'_>) -> Result<String, SignError> + Send + Sync + 'static,
        accepts: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { sign: Arc::new(sign), accepts: Arc::new(accepts) }
    }
}

impl Debug for TokenSigner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSigner")
    }
}

impl PartialEq for TokenSigner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sign, &other.sign)
    }
}

impl Eq for TokenSigner {}
