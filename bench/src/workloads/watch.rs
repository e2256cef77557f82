//! The events of a watch, one after the other.

use std::collections::VecDeque;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::lines::Lines;

/// See the module.
pub struct Watch {
    body: Incoming,
    lines: Lines,
    events: VecDeque<Value>,
    // The connection ends with its client.
    _client: Client,
}

impl Watch {
    /// Starts a watch.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn begin(mut client: Client, path: &str) -> anyhow::Result<Self> {
        let response = client.open(Method::GET, path, None, Bytes::new()).await?;
        ensure!(response.status().is_success(), "{path}: {}", response.status());
        Ok(Self { body: response.into_body(), lines: Lines::default(), events: VecDeque::new(), _client: client })
    }

    /// Reads until an event is as wanted.
    ///
    /// # Errors
    /// When the watch ends before.
    pub async fn until(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> anyhow::Result<()> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if wanted(event["type"].as_str().unwrap_or_default(), &event["object"]) {
                    return Ok(());
                }
            }
            let frame = self.body.frame().await.context("the watch ended")?.context("reading a watch")?;
            let Ok(data) = frame.into_data() else { continue };
            let mut broken = None;
            self.lines.feed(&data, |line| match serde_json::from_slice(line) {
                Ok(event) => self.events.push_back(event),
                Err(error) => broken = Some(error),
            });
            if let Some(error) = broken {
                return Err(error).context("an event that is no JSON");
            }
        }
    }
}
