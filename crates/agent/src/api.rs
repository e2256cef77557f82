//! How the agent writes to the API: a few requests, whoever carries them.
//!
//! In: a verb, a path, a body. Out: the object, or why not. The binary implements [`Api`] over its client; tests over memory.

use api::status::Status;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use thiserror::Error;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Made.
    Create,
    /// Changed by a strategic merge patch.
    Patch,
    /// Replaced.
    Replace,
    /// Deleted.
    Delete,
}

/// Why an object is not as it should be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ApiError {
    /// The API says no.
    #[error("the API answers {code}: {message}")]
    Refused {
        /// Its code.
        code: u16,
        /// Its words.
        message: String,
    },
    /// Nobody answers.
    #[error("the API cannot be reached: {0}")]
    Unreachable(String),
}

impl ApiError {
    /// Whether there is no such object.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether it is there already, or has changed meanwhile.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }
}

/// Somebody who carries requests.
pub trait Api: Send + Sync + 'static {
    /// Asks.
    fn ask<'a>(&'a self, verb: Verb, path: &'a str, body: Option<&'a Value>) -> BoxFuture<'a, Result<Value, ApiError>>;
}

/// Reads an object; nothing when there is none.
///
/// # Errors
/// When it may not be read, or nobody answers.
pub async fn find(api: &dyn Api, path: &str) -> Result<Option<Value>, ApiError> {
    match api.ask(Verb::Get, path, None).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a Pod.
#[must_use]
pub fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Deletes a Pod that has ended, for good; one of the same name that came after it stays.
///
/// # Errors
/// When the API does not; that it is gone already is no error.
pub async fn forget_pod(api: &dyn Api, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    match api.ask(Verb::Delete, &pod_path(namespace, name), Some(&options)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

/// What a Status of the API says.
#[must_use]
pub fn refused(code: u16, answer: &Value) -> ApiError {
    let message = answer["message"].as_str().unwrap_or("no reason was given").to_owned();
    ApiError::Refused { code, message }
}

/// A Status of ours, as an error.
impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::Unreachable(status.message)
    }
}
