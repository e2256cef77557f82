//! Reads and writes of the Leases by which announcers agree.
//!
//! In: an operation on a Lease, and the resourceVersion it is based on. Out: the Lease afterwards, or why not. Every write names the
//! version that it replaces, so that one of two concurrent writers fails. [`ApiLeases`] uses the API server; tests implement
//! [`Api`] in memory.

use std::time::Duration;

use client::events::{EventRecorder, ObjectEvent};
use client::remote::Remote;
use client::requests::{Requests, Verb};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::lease::{self, Key, Lease};

/// The collection of the Leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Time limit of a request; a claim lasts no longer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// An operation on a Lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Read.
    Get,
    /// Create; it does not exist.
    Create(Lease),
    /// Replace this version.
    Replace(Lease, Box<str>),
    /// Delete this version.
    Delete(Box<str>),
}

/// A Lease, and its version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// What it says.
    pub lease: Lease,
    /// Its version.
    pub version: Box<str>,
}

/// What comes of it: how the Lease is now, nothing if there is none (any more).
pub type Answer = Result<Option<Versioned>, Refusal>;

/// Why a request was not carried out, or perhaps not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The Lease is another by now: nothing was changed.
    TooLate,
    /// Nobody knows whether it was done.
    Unknown,
}

/// The API, as announcers need it.
pub trait Api: Send + Sync {
    /// Performs an operation on a Lease.
    fn ask<'a>(&'a self, key: &'a Key, ask: Ask) -> BoxFuture<'a, Answer>;

    /// Records an Event; never waits.
    fn record(&self, event: ObjectEvent);
}

/// Leases of an API server.
#[derive(Debug)]
pub struct ApiLeases {
    requests: Requests,
    recorder: EventRecorder,
}

impl ApiLeases {
    /// The Leases of this server; Events go to the recorder.
    #[must_use]
    pub fn new(remote: Remote, recorder: EventRecorder) -> Self {
        Self { requests: Requests::new(remote), recorder }
    }

    async fn send(&self, key: &Key, ask: Ask) -> Answer {
        let now = Timestamp::now();
        let one = format!("{LEASES}/{}", key.name());
        let (verb, path, body) = match &ask {
            Ask::Get => (Verb::Get, one, None),
            Ask::Create(lease) => (Verb::Create, LEASES.to_owned(), Some(lease.write(key, None, now))),
            Ask::Replace(lease, version) => (Verb::Replace, one, Some(lease.write(key, Some(version), now))),
            Ask::Delete(version) => (Verb::Delete, one, Some(lease::preconditions(version))),
        };
        let (code, value) = match tokio::time::timeout(TIMEOUT, self.requests.send(verb, &path, body.as_ref())).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(%error, path, "could not access Lease");
                return Err(Refusal::Unknown);
            }
            Err(_) => return Err(Refusal::Unknown),
        };
        match (code, &ask) {
            (404, Ask::Get | Ask::Delete(_)) | (200..=299, Ask::Delete(_)) => Ok(None),
            (200..=299, _) => Ok(Some(Versioned { lease: Lease::read(&value), version: lease::version(&value) })),
            (404 | 409, _) => Err(Refusal::TooLate),
            _ => {
                let message = value["message"].as_str().unwrap_or_default();
                tracing::warn!(code, message, lease = key.name(), "could not access Lease");
                Err(Refusal::Unknown)
            }
        }
    }
}

impl Api for ApiLeases {
    fn ask<'a>(&'a self, key: &'a Key, ask: Ask) -> BoxFuture<'a, Answer> {
        self.send(key, ask).boxed()
    }

    fn record(&self, event: ObjectEvent) {
        self.recorder.record(event);
    }
}
