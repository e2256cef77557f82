//! How announcers write to the API: a few requests, whoever carries them.
//!
//! In: what is to be done to a Lease, and which version of it is meant. Out: the Lease as it is then, or why not. The binary
//! implements [`Api`] over its client; tests over memory. Every write names the version that it replaces, so of two that want the
//! same one is told that it came too late.

use futures_util::future::BoxFuture;

use super::lease::{Key, Lease};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// How is it now?
    Get,
    /// Make it; it is not there.
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

/// Something that people should know of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// `namespace/name` of the Service.
    pub service: Box<str>,
    /// Its uid; may be empty.
    pub uid: Box<str>,
    /// Whether it is no warning.
    pub normal: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// The API, as announcers need it.
pub trait Api: Send + Sync {
    /// Asks something about a Lease.
    fn ask<'a>(&'a self, key: &'a Key, ask: Ask) -> BoxFuture<'a, Answer>;

    /// Tells people; never waits.
    fn tell(&self, news: News);
}
