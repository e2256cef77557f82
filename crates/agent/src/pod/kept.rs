//! What of a Pod's containers is written down, and how an agent that comes back finds them.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use api::value::ValueExt as _;

use super::{Message, Worker};
use crate::facts::{Container, Ending, Health, Sandbox, State};
use crate::shim::{BEGUN, Begun, Claim, ENDED, Ended, ORDER, Settled};
use crate::{files, sandbox};

/// How often it is looked whether a supervisor that is about to begin a container has done so.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What is written down of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    number: u32,
    back_off: u32,
    last: Option<Ending>,
    ended: Option<Ending>,
    id: String,
    image: String,
}

impl Worker {
    /// Writes down what is known of a container.
    pub(super) fn keep(&self, name: &str) {
        let Some(container) = self.facts.containers.get(name) else { return };
        let kept = Kept {
            number: container.restarts,
            back_off: container.back_off,
            last: container.last.clone(),
            ended: container.ending().cloned(),
            id: container.id.clone(),
            image: container.image.clone(),
        };
        let path = self.home.state(name);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| files::put(&path, &kept));
        if let Err(error) = written {
            tracing::warn!(%error, pod = self.key(), name, "the state of a container cannot be written");
        }
    }

    /// Finds what is left of the Pod from before.
    pub(super) fn take_over(&mut self) {
        let began = self.pod.text("status.startTime");
        self.facts.began = began.parse().ok();
        let pod = self.pod.clone();
        let host_network = pod.flag("spec.hostNetwork");
        if let Some(addresses) = sandbox::find(&self.home, host_network) {
            if let Err(error) = sandbox::open_doors(&self.machine, &pod, &addresses) {
                tracing::warn!(%error, pod = self.key(), "ports of this machine do not lead to the Pod");
            }
            self.facts.sandbox = Sandbox::Ready { addresses };
        }
        let all = pod.items("spec.initContainers").iter().chain(pod.items("spec.containers"));
        for name in all.map(|container| container.text("name")) {
            let Some(kept) = files::get::<Kept>(&self.home.state(name)) else { continue };
            let number = kept.number;
            let folder = self.home.instance(name, number);
            let begun: Option<Begun> = files::get(&folder.join(BEGUN));
            let ended: Option<Ended> = files::get(&folder.join(ENDED));
            let alive = begun.filter(|begun| ended.is_none() && begun.shim().is_there());
            let (restarts, back_off) = (kept.number, kept.back_off);
            let mut container = Container {
                restarts,
                back_off,
                last: kept.last,
                id: kept.id,
                image: kept.image,
                ..Container::default()
            };
            match (kept.ended, alive) {
                (Some(ending), _) => container.state = State::Ended(ending),
                (None, Some(begun)) => {
                    container.state = State::Running { since: begun.at, stopping: None };
                    container.health = health_of(&pod, name, &container.id);
                }
                // Its image was still on its way.
                (None, None) if begun.is_none() && !folder.join(ORDER).exists() => {}
                (None, None) => {
                    let running = |begun: Begun| State::Running { since: begun.at, stopping: None };
                    container.state = begun.map_or(State::Starting, running);
                }
            }
            let (running, unknown) = (container.is_running(), container.state == State::Starting);
            self.facts.containers.insert(name.to_owned(), container);
            match alive {
                _ if unknown => self.settle(name, number),
                Some(begun) if running => self.follow(name, number, begun),
                _ if running => self.lost(name, number, ended),
                _ => {}
            }
        }
    }

    /// Finds out whether an instance was begun that was about to be when the agent ended.
    fn settle(&mut self, name: &str, number: u32) {
        let (container, instance) = (self.home.container(name), self.home.instance(name, number));
        let (name, inbox) = (name.to_owned(), self.inbox.clone());
        self.work.spawn(async move {
            let settled = loop {
                // While a supervisor has the claim, it is about to begin the instance.
                match Claim::try_take(&container)
                    .and_then(|claim| claim.map(|claim| claim.settle(&instance)).transpose())
                {
                    Ok(Some(settled)) => break settled,
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, name, "whether a container was begun cannot be found out"),
                }
                tokio::time::sleep(ASK_AGAIN).await;
            };
            let _ = inbox.send(match settled {
                Settled::Begun(begun, image) => Message::Began(name, number, Ok((begun, image))),
                Settled::Nobody => Message::Unbegun(name, number),
            });
        });
    }

    /// An instance of which nothing runs any more.
    fn lost(&mut self, name: &str, number: u32, ended: Option<Ended>) {
        let ended = ended.unwrap_or_else(|| Ended {
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the agent began: its supervisor is gone".to_owned(),
            finished: Timestamp::now(),
        });
        let _ = self.inbox.send(Message::Ended(name.to_owned(), number, ended));
    }

    /// Takes up again what was begun for a running container.
    fn follow(&mut self, name: &str, number: u32, begun: Begun) {
        self.watch(name, number, begun);
        self.begin_probes(name, number);
    }
}

/// What the API last heard of a container's health, which stays true until its probes say otherwise: nothing that serves may stop
/// serving because the agent was away.
fn health_of(pod: &Value, name: &str, id: &str) -> Health {
    let lists = ["status.containerStatuses", "status.initContainerStatuses"];
    let found = lists
        .iter()
        .flat_map(|list| pod.items(list))
        .find(|status| status.text("name") == name && status.text("containerID").ends_with(id) && !id.is_empty());
    let known = |field: &str| found.is_some_and(|status| status.flag(field));
    Health { greeted: true, started: known("started"), ready: known("ready"), condemned: None }
}
