//! Publishes answers to challenges for the gateways of the nodes, in a ConfigMap.
//!
//! In: the proofs of an order. Out: entries by token, each for one gateway. They are removed when the order ends; those of a process that was killed, when
//! the next one begins.

use std::sync::Arc;
use std::time::Duration;

use api::acme::{self, Answer, Challenge};
use api::value::ValueExt as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::worker::Api;
use crate::certificate_orders::{Problem, Proof, Publish};
use crate::commit::Failure;

const CONFIG_MAPS: &str = "configmaps";
/// Age at which an answer is removed, in seconds: orders end much earlier.
const LONGEST_LIFE: i64 = 3600;
/// Attempts to write while others write, too.
const ATTEMPTS: usize = 10;

/// Publishes the answers of one order.
pub(super) struct Answers {
    pub(super) api: Arc<Api>,
    pub(super) challenge: Challenge,
    pub(super) gateway: Arc<str>,
    /// Time that nodes get.
    pub(super) propagation: Duration,
}

impl Publish for Answers {
    fn publish(&self, proofs: Vec<Proof>) -> BoxFuture<'_, Result<(), Problem>> {
        let publish = async move {
            if let Some(wrong) = proofs.iter().find(|proof| !acme::is_token(&proof.token)) {
                return Err(Problem::retry(format!("the token of the challenge for {} is not valid", wrong.host)));
            }
            write(&self.api, |data, now| {
                for proof in &proofs {
                    let answer = Answer {
                        challenge: self.challenge,
                        gateway: (&*self.gateway).into(),
                        host: proof.host.clone(),
                        key_authorization: proof.key_authorization.clone(),
                        published: now,
                    };
                    data.insert(proof.token.to_string(), json!(answer).to_string().into());
                }
            })
            .await?;
            // Nodes do not acknowledge what they watch.
            tokio::time::sleep(self.propagation).await;
            Ok(())
        };
        publish.boxed()
    }
}

impl Answers {
    /// Removes the answers for these hosts at this gateway.
    pub(super) async fn remove<'a>(&self, hosts: impl Iterator<Item = &'a Box<str>> + Clone) {
        let is_of_order = |answer: &Answer| {
            answer.challenge == self.challenge
                && *answer.gateway == *self.gateway
                && hosts.clone().any(|host| *host == answer.host)
        };
        let removed =
            write(&self.api, |data, _| data.retain(|_, text| !read(text).is_some_and(|answer| is_of_order(&answer))));
        if let Err(error) = removed.await {
            tracing::warn!(gateway = &*self.gateway, %error, "cannot remove answers to ACME challenges");
        }
    }
}

/// Removes all answers.
pub(super) async fn clear(api: &Api) {
    if let Err(error) = write(api, |data, _| data.clear()).await {
        tracing::warn!(%error, "cannot remove answers to ACME challenges");
    }
}

/// Changes the data of the ConfigMap.
async fn write(api: &Api, change: impl Fn(&mut Map<String, Value>, i64)) -> Result<(), Problem> {
    let (namespace, name) = acme::ANSWERS;
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        let (mut map, modified) = api.read(CONFIG_MAPS, namespace, name);
        let now = api.now().as_second();
        let before = map.map("data").cloned().unwrap_or_default();
        let mut data = before.clone();
        let is_young = |answer: Answer| (now - LONGEST_LIFE..=now + LONGEST_LIFE).contains(&answer.published);
        data.retain(|_, text| read(text).is_some_and(is_young));
        change(&mut data, now);
        if data == before {
            return Ok(());
        }
        map.put("data", data);
        match api.write(CONFIG_MAPS, map, modified).await {
            Ok(()) => return Ok(()),
            Err(Failure::Conflict) => {}
            Err(failure) => why = failure.to_string(),
        }
    }
    Err(Problem::retry(format!("cannot write ConfigMap {namespace}/{name}: {why}")))
}

fn read(text: &Value) -> Option<Answer> {
    serde_json::from_str(text.as_str()?).ok()
}
