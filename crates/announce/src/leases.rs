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
pub enum Operation {
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
    /// Its content.
    pub lease: Lease,
    /// Its version.
    pub version: Box<str>,
}

/// The Lease after an operation; none if it does not exist.
pub type LeaseResult = Result<Option<Versioned>, LeaseError>;

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseError {
    /// The Lease has another version: nothing was changed.
    Conflict,
    /// It is not known whether the operation was executed.
    Unknown,
}

/// API access of announcers.
pub trait Api: Send + Sync {
    /// Performs an operation on a Lease.
    fn execute<'a>(&'a self, key: &'a Key, operation: Operation) -> BoxFuture<'a, LeaseResult>;

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

    async fn send(&self, key: &Key, operation: Operation) -> LeaseResult {
        let now = Timestamp::now();
        let one = format!("{LEASES}/{}", key.name());
        let (verb, path, body) = match &operation {
            Operation::Get => (Verb::Get, one, None),
            Operation::Create(lease) => (Verb::Create, LEASES.to_owned(), Some(lease.write(key, None, now))),
            Operation::Replace(lease, version) => (Verb::Replace, one, Some(lease.write(key, Some(version), now))),
            Operation::Delete(version) => (Verb::Delete, one, Some(lease::preconditions(version))),
        };
        let (code, value) = match tokio::time::timeout(TIMEOUT, self.requests.send(verb, &path, body.as_ref())).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(%error, path, "could not access Lease");
                return Err(LeaseError::Unknown);
            }
            Err(_) => return Err(LeaseError::Unknown),
        };
        match (code, &operation) {
            (404, Operation::Get | Operation::Delete(_)) | (200..=299, Operation::Delete(_)) => Ok(None),
            (200..=299, _) => Ok(Some(Versioned { lease: Lease::read(&value), version: lease::version(&value) })),
            (404 | 409, _) => Err(LeaseError::Conflict),
            _ => {
                let message = value["message"].as_str().unwrap_or_default();
                tracing::warn!(code, message, lease = key.name(), "could not access Lease");
                Err(LeaseError::Unknown)
            }
        }
    }
}

impl Api for ApiLeases {
    fn execute<'a>(&'a self, key: &'a Key, operation: Operation) -> BoxFuture<'a, LeaseResult> {
        self.send(key, operation).boxed()
    }

    fn record(&self, event: ObjectEvent) {
        self.recorder.record(event);
    }
}
