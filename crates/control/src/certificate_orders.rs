//! What controllers want from an ACME server, and what they need from the code that speaks to it.
//!
//! In: certificates that objects request ([`Wanted`]). Out: the interface [`Authority`], which the binary implements; so this crate needs neither
//! cryptography nor HTTP.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::acme::Challenge;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::event::Reference;

/// A certificate that an object requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The object.
    pub requester: Requester,
    /// The Secret to write, in the namespace of the object: no object can name one of another namespace.
    pub secret: Box<str>,
    /// The hosts, in lower case.
    pub hosts: BTreeSet<Box<str>>,
    /// How the control of the hosts is proved.
    pub challenge: Challenge,
    /// The gateway that the hosts belong to, and the only one that answers challenges for them.
    pub gateway: Arc<str>,
    /// Whether the listener is closed until there is a certificate, although the challenge needs it.
    pub opens_by_certificate: bool,
    /// Whether the validation can succeed as far as the objects say.
    pub is_ready: bool,
}

impl Wanted {
    /// `namespace/name` of the Secret.
    #[must_use]
    pub fn secret_key(&self) -> String {
        format!("{}/{}", self.requester.object.namespace, self.secret)
    }
}

/// An object that requests certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requester {
    /// Its kind.
    pub kind: &'static str,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Where it is.
    pub object: Reference,
}

/// A private key and its certificate with the chain, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The private key.
    pub key: String,
    /// The chain, the certificate of the key first.
    pub chain: String,
}

impl fmt::Debug for KeyPair {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair")
    }
}

/// What a certificate says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Its hosts, in lower case.
    pub hosts: BTreeSet<Box<str>>,
    /// The start of its validity.
    pub from: Timestamp,
    /// The end of its validity.
    pub until: Timestamp,
}

/// The answer to a challenge, to be published before the ACME server validates the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The host.
    pub host: Box<str>,
    /// The token of the challenge.
    pub token: Box<str>,
    /// The token with the thumbprint of the account key.
    pub key_authorization: Box<str>,
}

/// Why there is no certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// The problem as the ACME server describes it, and the next step.
    pub message: String,
    /// What follows from it.
    pub kind: ProblemKind,
}

/// What follows from a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProblemKind {
    /// Try again later.
    Retry,
    /// A rate limit of the CA: try again much later.
    RateLimit,
    /// The ACME server does not know the account: register again.
    UnknownAccount,
}

impl Problem {
    /// A problem after which the order is tried again.
    #[must_use]
    pub fn retry(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: ProblemKind::Retry }
    }
}

/// Publishes answers to challenges.
pub trait Publish: Send + Sync {
    /// Returns when the gateways of all nodes can be expected to give the answers.
    ///
    /// # Errors
    /// When they cannot be stored.
    fn publish(&self, proofs: Vec<Proof>) -> BoxFuture<'_, Result<(), Problem>>;
}

/// An ACME server, and the certificates of it.
pub trait Authority: Send + Sync {
    /// The URL of its directory.
    fn directory(&self) -> &str;

    /// Registers an account; returns its credentials, which contain its private key.
    ///
    /// # Errors
    /// When the server refuses, or does not respond.
    fn register(&self) -> BoxFuture<'_, Result<String, Problem>>;

    /// Orders a certificate with a new key.
    ///
    /// # Errors
    /// When the server refuses, cannot validate a host, or does not respond.
    fn issue<'a>(
        &'a self,
        credentials: &'a str,
        hosts: &'a BTreeSet<Box<str>>,
        challenge: Challenge,
        publish: &'a dyn Publish,
    ) -> BoxFuture<'a, Result<KeyPair, Problem>>;

    /// A self-signed certificate.
    ///
    /// # Errors
    /// When a host cannot be in a certificate.
    fn temporary(&self, hosts: &BTreeSet<Box<str>>) -> Result<KeyPair, Problem>;

    /// Reads the first certificate of a PEM text; none if it is invalid.
    fn read(&self, chain: &[u8]) -> Option<Validity>;
}

/// How long orders wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// After the first failure of a certificate; each further one triples it, up to a day.
    pub retry: Duration,
    /// Between the publication of answers and the validation: nodes do not acknowledge what they watch.
    pub propagation: Duration,
    /// Until an order is given up.
    pub order: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { retry: Duration::from_secs(120), propagation: Duration::from_secs(2), order: Duration::from_secs(300) }
    }
}

/// The ACME server of the controllers, and the certificates that they want from it.
#[derive(Clone)]
pub struct Acme {
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) pauses: Pauses,
    wanted: Arc<watch::Sender<Option<Arc<[Wanted]>>>>,
}

impl Acme {
    /// Orders from this server.
    #[must_use]
    pub fn new(authority: Arc<dyn Authority>, pauses: Pauses) -> Self {
        Self { authority, pauses, wanted: Arc::new(watch::Sender::new(None)) }
    }

    /// Sets what is wanted. Whoever orders looks at everything again, also when this is as before.
    pub(crate) fn want(&self, wanted: Arc<[Wanted]>) {
        self.wanted.send_replace(Some(wanted));
    }

    /// What is wanted; nothing before it was determined.
    pub(crate) fn wanted(&self) -> watch::Receiver<Option<Arc<[Wanted]>>> {
        self.wanted.subscribe()
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acme({})", self.authority.directory())
    }
}

impl PartialEq for Acme {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.authority, &other.authority) && self.pauses == other.pauses
    }
}

impl Eq for Acme {}
