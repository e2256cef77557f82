//! The agent's requests, over the client of this program: a few connections that are used again.

use agent::api::{Api, ApiError, Verb, refused};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rest::client::{Client, Method};
use rest::remote::Remote;
use serde_json::Value;

/// How many idle connections are kept.
const KEPT: usize = 8;

/// See the module.
pub(super) struct Requests {
    remote: Remote,
    idle: Mutex<Vec<Client>>,
}

impl Requests {
    pub(super) fn new(remote: Remote) -> Self {
        Self { remote, idle: Mutex::default() }
    }

    async fn carry(&self, verb: Verb, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let (method, kind) = match verb {
            Verb::Get => (Method::GET, None),
            Verb::Create => (Method::POST, Some("application/json")),
            Verb::Patch => (Method::PATCH, Some("application/strategic-merge-patch+json")),
            Verb::Replace => (Method::PUT, Some("application/json")),
            Verb::Delete => (Method::DELETE, Some("application/json")),
        };
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let idle = self.idle.lock().pop();
        let kept = idle.is_some();
        let mut client = idle.unwrap_or_else(|| self.remote.client());
        let mut answer = client.bytes(method.clone(), path, kind, bytes.clone()).await;
        if answer.is_err() && kept {
            // The server may have closed a connection that nobody used; a new one knows better.
            client = self.remote.client();
            answer = client.bytes(method, path, kind, bytes).await;
        }
        let (code, bytes) = answer.map_err(|error| ApiError::Unreachable(error.to_string()))?;
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(client);
        }
        drop(idle);
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| ApiError::Unreachable(error.to_string()))?;
        if (200..300).contains(&code) { Ok(value) } else { Err(refused(code, &value)) }
    }
}

impl Api for Requests {
    fn ask<'a>(&'a self, verb: Verb, path: &'a str, body: Option<&'a Value>) -> BoxFuture<'a, Result<Value, ApiError>> {
        self.carry(verb, path, body).boxed()
    }
}
