//! Webhooks that the server calls over HTTPS, for admission and for the conversion of custom resources.
//!
//! In: a [`Target`] and the body of a review. Out: the body of the response. What reviews contain is not known here.

pub(crate) mod client;
pub(crate) mod target;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;

use target::Target;

/// Why a call failed, with the messages of Go's HTTP client as far as they are known.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum CallError {
    /// The configuration cannot be used.
    #[error("could not get REST client: {0}")]
    Configuration(String),
    /// There is no response, or it is an error.
    #[error("failed to call webhook: {0}")]
    Exchange(String),
}

impl CallError {
    /// The message without what admission puts in front of it.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Configuration(why) | Self::Exchange(why) => why,
        }
    }
}

/// Calls webhooks.
pub(crate) trait Caller: Send + Sync {
    /// Posts a review and returns the body of the response within a timeout.
    ///
    /// # Errors
    /// When there is no successful response.
    fn post<'a>(&'a self, target: &'a Target, body: Bytes, within: Duration)
    -> BoxFuture<'a, Result<Bytes, CallError>>;
}
