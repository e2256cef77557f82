//! Programs that were registered, and everything else that is asked how it is: a question to each of its addresses, again and again.
//!
//! In: the readiness probe of the Pod, which is where a registration is kept. Out: at which addresses it answers, whenever that changes and is
//! certain. A program that dies and comes back is found again by the next question; nobody needs to register it twice.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::value::ValueExt as _;
use futures_util::future::join_all;
use serde_json::Value;

use super::listeners::{self, Listening};
use super::{Inbox, News};
use crate::events::Teller;
use crate::probes::ask::{Place, ask};
use crate::probes::{Tally, Timing};
use crate::workloads::PodId;

/// At which addresses something answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(pub Vec<IpAddr>);

/// Somebody who asks.
pub struct Asking {
    /// The Pod.
    pub pod: Arc<Value>,
    /// Where it may be.
    pub addresses: Vec<IpAddr>,
    /// Where answers go.
    pub inbox: Inbox,
    /// Where people are told of bad ones.
    pub teller: Teller,
}

impl Asking {
    /// The question, and to whom: when these change, somebody else must ask.
    #[must_use]
    pub fn question(pod: &Value) -> &Value {
        pod.items("spec.containers").first().map_or(&Value::Null, |container| container.at("readinessProbe"))
    }

    /// Asks for ever.
    pub async fn run(self) {
        let how = Self::question(&self.pod).clone();
        let timing = Timing::read(&how);
        let (id, uid) = (
            PodId {
                namespace: self.pod.text("metadata.namespace").to_owned(),
                name: self.pod.text("metadata.name").to_owned(),
            },
            self.pod.text("metadata.uid").to_owned(),
        );
        tokio::time::sleep(timing.delay).await;
        let mut tally = Tally::new(timing);
        let mut said: Option<Answer> = None;
        let mut every = tokio::time::interval(timing.period);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let (answer, why) = self.once(&how, timing.timeout).await;
            let good = !answer.0.is_empty();
            if !good {
                self.complain(&how, &why);
            }
            // The first answer is better than none, whatever the thresholds.
            let certain = tally.count(good).is_some() || said.is_none();
            if certain && said.as_ref() != Some(&answer) {
                if self.inbox.send(News::Answered(id.clone(), uid.clone(), answer.clone())).is_err() {
                    return;
                }
                said = Some(answer);
            }
        }
    }

    /// Asks at every address at once; answers where it went well, and why it did not.
    async fn once(&self, how: &Value, patience: std::time::Duration) -> (Answer, String) {
        let container = self.pod.items("spec.containers").first().cloned().unwrap_or_default();
        let questions = self.addresses.iter().map(|address| {
            let place = Place {
                address: *address,
                container: container.clone(),
                instance: PathBuf::new(),
                program: PathBuf::new(),
            };
            async move { (place.address, ask(how, &place, patience).await) }
        });
        let answers = join_all(questions).await;
        let good = answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(address, _)| *address).collect();
        let why = answers.into_iter().find_map(|(_, answer)| answer.err()).unwrap_or_default();
        (Answer(good), why)
    }

    /// Tells people; one that listens where nobody may come is told what to do.
    fn complain(&self, how: &Value, why: &str) {
        let port = ["tcpSocket.port", "httpGet.port"].iter().find_map(|path| how.at(path).as_u64());
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|_| self.pod.flag("spec.hostNetwork"));
        let advice = match port.map(|port| (port, listeners::of_this_machine(port))) {
            Some((port, Listening::Loopback)) => format!("; {}", listeners::advice(port)),
            _ => String::new(),
        };
        let name = self.pod.items("spec.containers").first().map_or("", |container| container.text("name"));
        self.teller.tell(&self.pod, Some(name), false, "Unhealthy", format!("Readiness probe failed: {why}{advice}"));
    }
}
