//! Definitions become established: created through a client, followed by a watch.
//!
//! In: definitions. Out: the time until each has the condition `Established`.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::manifests::DEFINITIONS;
use crate::lines::Lines;
use crate::load::{self, Work};
use crate::subject::Running;

/// How long definitions may take until they are established, and until their objects are served.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How often a collection that is not served yet is requested.
const POLL: Duration = Duration::from_millis(5);

/// A watch of all definitions. Each connection is kept as long as its stream.
pub struct Established {
    client: Client,
    stream: Incoming,
    lines: Lines,
    names: HashSet<String>,
}

impl Established {
    /// Watches from now on.
    ///
    /// # Errors
    /// When the watch cannot be opened.
    pub async fn watch(running: &Running) -> anyhow::Result<Self> {
        let mut client = running.client();
        let (names, stream) = list_and_watch(&mut client).await?;
        Ok(Self { client, stream, lines: Lines::default(), names })
    }

    /// Waits until all of these are established.
    ///
    /// # Errors
    /// When that takes too long or the watch ends.
    pub async fn wait_for(&mut self, names: &[String]) -> anyhow::Result<()> {
        let all = async {
            while !names.iter().all(|name| self.names.contains(name)) {
                let Some(frame) = self.stream.frame().await else {
                    self.resume().await?;
                    continue;
                };
                let data = frame?.into_data().unwrap_or_default();
                let names = &mut self.names;
                self.lines.feed(&data, |line| names.extend(established_by(line)));
            }
            anyhow::Ok(())
        };
        timeout(TIMEOUT, all).await.context("definitions are not established in time")?
    }

    /// Lists and watches again, as an informer does: kube-apiserver ends a watch that cannot keep up with its cache.
    async fn resume(&mut self) -> anyhow::Result<()> {
        self.client = self.client.another();
        let (names, stream) = list_and_watch(&mut self.client).await?;
        self.names.extend(names);
        (self.stream, self.lines) = (stream, Lines::default());
        Ok(())
    }
}

/// The names of established definitions, and a watch from there.
async fn list_and_watch(client: &mut Client) -> anyhow::Result<(HashSet<String>, Incoming)> {
    let (code, list) = client.json(Method::GET, DEFINITIONS, None).await?;
    ensure!(code == 200, "the list of definitions was answered with {code}");
    let names = list["items"].as_array().into_iter().flatten().filter_map(established).collect();
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list without a resourceVersion")?;
    let path = format!("{DEFINITIONS}?watch=1&resourceVersion={revision}&timeoutSeconds=3600");
    let response = client.open(Method::GET, &path, None, Bytes::new()).await?;
    ensure!(response.status().as_u16() == 200, "a watch was answered with {}", response.status());
    Ok((names, response.into_body()))
}

/// Creates one definition over an open connection and waits until it is established; how long that took.
///
/// # Errors
/// When it is refused or not established in time.
pub async fn establish_one(
    client: &mut Client,
    watch: &mut Established,
    definition: &Value,
) -> anyhow::Result<Duration> {
    let work = Work::create(DEFINITIONS, definition);
    let begun = Instant::now();
    work.send(client).await?;
    watch.wait_for(&[name_of(definition)]).await?;
    Ok(begun.elapsed())
}

/// Creates definitions through this number of clients and waits until all are established; returns how long that
/// took.
///
/// # Errors
/// When one is refused or not established in time.
pub async fn establish(
    running: &Running,
    watch: &mut Established,
    definitions: &[Value],
    clients: usize,
) -> anyhow::Result<Duration> {
    let names: Vec<String> = definitions.iter().map(name_of).collect();
    let work = definitions.iter().map(|definition| Work::create(DEFINITIONS, definition)).collect();
    let client = running.client();
    let begun = Instant::now();
    // Events are read while definitions are created: a watch that is not read would be cut off.
    let (load, established) = tokio::join!(load::run(&client, clients, work, TIMEOUT), watch.wait_for(&names));
    ensure!(load?.done == definitions.len(), "not all definitions were created in time");
    established?;
    Ok(begun.elapsed())
}

/// Waits until a collection is served: kube-apiserver installs it some time after its definition is established.
///
/// # Errors
/// When that takes too long.
pub async fn until_served(client: &mut Client, collection: &str) -> anyhow::Result<()> {
    let served = async {
        while client.bytes(Method::GET, &format!("{collection}?limit=1"), None, Bytes::new()).await?.0 != 200 {
            sleep(POLL).await;
        }
        anyhow::Ok(())
    };
    timeout(TIMEOUT, served).await.with_context(|| format!("{collection} is not served in time"))?
}

/// The name of the definition in an event, if it is established.
fn established_by(line: &[u8]) -> Option<String> {
    let event: Value = serde_json::from_slice(line).ok()?;
    established(&event["object"])
}

/// The name of a definition, if it is established.
fn established(object: &Value) -> Option<String> {
    let holds = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().any(holds).then(|| name_of(object))
}

fn name_of(definition: &Value) -> String {
    definition["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_says_whether_its_definition_is_established() {
        let event = |status: &str| {
            let conditions =
                json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": status}]);
            json!({"type": "MODIFIED", "object": {"metadata": {"name": "a.b"}, "status": {"conditions": conditions}}})
                .to_string()
        };
        assert_eq!(established_by(event("True").as_bytes()).as_deref(), Some("a.b"));
        assert_eq!(established_by(event("False").as_bytes()), None);
        assert_eq!(established_by(b"{\"type\":\"ADDED\",\"object\":{}}"), None);
    }
}
