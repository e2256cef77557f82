//! Readiness probes of adopted Pods, run against each address.
//!
//! In: the readiness probe of the Pod. Out: the addresses where it succeeds, whenever they change and the thresholds are met. A program that is
//! restarted becomes ready again by its next successful probe; it need not be registered again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::value::ValueExt as _;
use futures_util::future::join_all;
use serde_json::Value;

use super::listeners::{self, Listening};
use super::{AdapterEvent, Queue};
use crate::events::EventRecorder;
use crate::probes::run::{ProbeTarget, run_probe};
use crate::probes::{Tally, Timing};
use crate::workloads::PodId;

/// The addresses at which a probe succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reachable(pub Vec<IpAddr>);

/// Runs the probe of one Pod.
pub struct Prober {
    /// The Pod.
    pub pod: Arc<Value>,
    /// Its possible addresses.
    pub addresses: Vec<IpAddr>,
    /// The queue for results.
    pub queue: Queue,
    /// Records Events of failures.
    pub recorder: EventRecorder,
}

impl Prober {
    /// The readiness probe of a Pod, or null.
    #[must_use]
    pub fn probe_of(pod: &Value) -> &Value {
        pod.items("spec.containers").first().map_or(&Value::Null, |container| container.at("readinessProbe"))
    }

    /// Probes until the queue is closed.
    pub async fn run(self) {
        let how = Self::probe_of(&self.pod).clone();
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
        let mut last: Option<Reachable> = None;
        let mut every = tokio::time::interval(timing.period);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let (answer, why) = self.probe_all(&how, timing.timeout).await;
            let good = !answer.0.is_empty();
            if !good {
                self.record_failure(&how, &why);
            }
            // The first result is published whatever the thresholds.
            let certain = tally.count(good).is_some() || last.is_none();
            if certain && last.as_ref() != Some(&answer) {
                if self.queue.send(AdapterEvent::Probed(id.clone(), uid.clone(), answer.clone())).is_err() {
                    return;
                }
                last = Some(answer);
            }
        }
    }

    /// Probes all addresses concurrently; returns those that succeeded, and the first error.
    async fn probe_all(&self, how: &Value, timeout: std::time::Duration) -> (Reachable, String) {
        let container = self.pod.items("spec.containers").first().cloned().unwrap_or_default();
        let questions = self.addresses.iter().map(|address| {
            let place = ProbeTarget {
                address: *address,
                container: container.clone(),
                instance: PathBuf::new(),
                program: PathBuf::new(),
            };
            async move { (place.address, run_probe(how, &place, timeout).await) }
        });
        let answers = join_all(questions).await;
        let good = answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(address, _)| *address).collect();
        let why = answers.into_iter().find_map(|(_, answer)| answer.err());
        (Reachable(good), why.map(|error| error.to_string()).unwrap_or_default())
    }

    /// Records an Event; with the next step when the program listens on loopback only.
    fn record_failure(&self, how: &Value, why: &str) {
        let port = ["tcpSocket.port", "httpGet.port"].iter().find_map(|path| how.at(path).as_u64());
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|_| self.pod.flag("spec.hostNetwork"));
        let advice = match port.map(|port| (port, listeners::of_this_machine(port))) {
            Some((port, Listening::Loopback)) => format!("; {}", listeners::advice(port)),
            _ => String::new(),
        };
        let name = self.pod.items("spec.containers").first().map_or("", |container| container.text("name"));
        self.recorder.record(
            &self.pod,
            Some(name),
            false,
            "Unhealthy",
            format!("Readiness probe failed: {why}{advice}"),
        );
    }
}
