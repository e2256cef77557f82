//! What this node tries for a Service when somebody looks at it: its name, and connections to it.
//!
//! In: the name of a Service. Out: a document with a verdict for each, by the doctor's checks over fresh objects of the API. It is done
//! only when somebody asks, for a few Services at a time, and what was found counts for some seconds, however many look.

use std::collections::BTreeMap;
use std::time::Duration;

use client::remote::Remote;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::commands::doctor::objects;
use crate::commands::doctor::tries::{Bounds, Tries};
use crate::commands::reach::Api;
use crate::doctor::{Evidence, Here, measurements};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long what was found counts.
const FRESH: Duration = Duration::from_secs(3);
/// How long something that has just changed may look wrong.
const MOMENT: Duration = Duration::from_millis(300);
/// How many Services are tried at once.
const ABREAST: usize = 2;

/// See the module.
pub(super) struct Trier {
    remote: Remote,
    node: String,
    domain: String,
    turns: Semaphore,
    known: Mutex<BTreeMap<String, (Instant, Value)>>,
}

impl Trier {
    pub(super) fn new(remote: Remote, node: &str, domain: &str) -> Self {
        let domain = domain.trim_matches('.').to_owned();
        Self { remote, node: node.to_owned(), domain, turns: Semaphore::new(ABREAST), known: Mutex::default() }
    }

    /// What was found for a Service (`namespace/name`), now or a moment ago.
    pub(super) async fn of(&self, service: &str) -> Value {
        if let Some(known) = self.known(service) {
            return known;
        }
        let busy = || unmeasured(&format!("this node did not come to an end within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, self.in_turn(service)).await.unwrap_or_else(|_| busy())
    }

    fn known(&self, service: &str) -> Option<Value> {
        let known = self.known.lock();
        let (at, found) = known.get(service)?;
        (at.elapsed() < FRESH).then(|| found.clone())
    }

    async fn in_turn(&self, service: &str) -> Value {
        // The turns are never closed.
        let _turn = self.turns.acquire().await;
        // Somebody may have asked for the same while we waited.
        if let Some(known) = self.known(service) {
            return known;
        }
        let found = match self.look(service).await {
            // What is wrong only for a moment is not said.
            Ok((_, true)) => {
                sleep(MOMENT).await;
                self.look(service).await
            }
            found => found,
        };
        let found = found.map_or_else(|error| unmeasured(&format!("{error:#}")), |(found, _)| found);
        let mut known = self.known.lock();
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        known.insert(service.to_owned(), (Instant::now(), found.clone()));
        found
    }

    /// Looks once; also says whether something failed.
    async fn look(&self, service: &str) -> anyhow::Result<(Value, bool)> {
        let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
        let mut api = Api::new(self.remote.client());
        let cluster = objects::of_one(&mut api, (namespace, name), &self.node, &self.domain).await?;
        anyhow::ensure!(cluster.service(namespace, name).is_some(), "there is no Service {namespace}/{name}");
        let here = Here::named(&self.node);
        let tried = Tries::new(&cluster, &here, Bounds::BRIEF).await.of(namespace, name).await;
        Ok(measurements(&Evidence { namespace, name, cluster: &cluster, here: &here, tried: &tried, diagnosis: None }))
    }
}

/// Nothing could be tried, and why.
fn unmeasured(why: &str) -> Value {
    let stage = json!({"verdict": "unmeasured", "text": why, "next": ""});
    json!({"name": stage, "reachable": stage})
}
