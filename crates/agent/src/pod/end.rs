//! Ends containers: the preStop hook, a signal, patience, and then no more patience.

use std::time::Duration;

use api::value::ValueExt as _;
use kernel::process::Signal;

use super::Worker;
use crate::command;
use crate::decide::spec::Spec;
use crate::facts::State;
use crate::machine::Machine;
use crate::probes::ask::ask;
use crate::{ready, shim};

/// However long its hook took, a container has so long after its signal.
const LEAST: Duration = Duration::from_secs(2);

impl Worker {
    /// Ends a container within so many seconds. When it was asked before and had more time, that time is over now.
    pub(super) fn stop(&mut self, name: &str, grace: u32, why: String) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let hook = spec.part(name).map(|part| part.value.at("lifecycle.preStop").clone()).unwrap_or_default();
        let signal = spec.part(name).map_or("", |part| part.value.text("lifecycle.stopSignal"));
        let signal = signal_named(signal);
        let value = spec.part(name).map(|part| part.value.clone()).unwrap_or_default();
        let Some(container) = self.facts.containers.get_mut(name) else { return };
        let State::Running { stopping, .. } = &mut container.state else { return };
        let is_first = stopping.replace(grace).is_none();
        let number = container.restarts;
        if is_first {
            self.tell(Some(name), true, "Killing", why);
        }
        // Its hook is not run twice.
        let place = self.place(&value, name, number).filter(|_| !hook.is_null() && grace > 0 && is_first);
        let instance = self.home.instance(name, number);
        let (machine, group) = (self.machine.clone(), Machine::container_group(self.uid(), name));
        if let Some(patient) = self.stops.remove(name) {
            patient.abort();
        }
        let (key, owner, name) = (name.to_owned(), pod, name.to_owned());
        let patient = self.work.spawn(async move {
            let begun = std::time::Instant::now();
            let patience = Duration::from_secs(grace.into());
            if let Some(place) = place
                && let Err(why) = ask(&hook, &place, patience).await
            {
                machine.teller.tell(
                    &owner,
                    Some(&name),
                    false,
                    "FailedPreStopHook",
                    format!("PreStopHook failed: {why}"),
                );
            }
            let Some(running) = command::running(&instance) else { return };
            if grace > 0 {
                shim::signal(running.process(), signal);
                let left = patience.saturating_sub(begun.elapsed()).max(LEAST);
                if let Ok(Some(handle)) = running.process().open()
                    && tokio::time::timeout(left, ready::ended(handle)).await.is_ok()
                {
                    return;
                }
            }
            shim::signal(running.process(), Signal::KILL);
            machine.groups.kill(&group);
        });
        self.stops.insert(key, patient);
    }
}

/// `SIGUSR1` and the like.
fn signal_named(name: &str) -> Signal {
    match name {
        "SIGINT" => Signal::INT,
        "SIGQUIT" => Signal::QUIT,
        "SIGHUP" => Signal::HUP,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        "SIGKILL" => Signal::KILL,
        "SIGWINCH" => Signal::WINCH,
        _ => Signal::TERM,
    }
}
