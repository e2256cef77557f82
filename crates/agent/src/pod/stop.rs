//! Stops containers: preStop hook, stop signal, grace period, SIGKILL.

use std::time::Duration;

use api::value::ValueExt as _;
use kernel::process::Signal;

use super::Worker;
use crate::command;
use crate::decide::spec::Spec;
use crate::facts::State;
use crate::machine::Machine;
use crate::probes::run::run_probe;
use crate::{ready, shim};

/// The least time between the stop signal and SIGKILL, however long the hook took.
const MIN_TERM_WAIT: Duration = Duration::from_secs(2);

impl Worker {
    /// Stops a container within the grace period, in seconds. A stop with a longer grace period that is under way is replaced.
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
            self.record(Some(name), true, "Killing", why);
        }
        // The hook runs once.
        let probe_target = self.probe_target(&value, name, number).filter(|_| !hook.is_null() && grace > 0 && is_first);
        let instance = self.dir.instance(name, number);
        let (machine, group) = (self.machine.clone(), Machine::container_group(self.uid(), name));
        if let Some(stop_task) = self.stops.remove(name) {
            stop_task.abort();
        }
        let (key, owner, name) = (name.to_owned(), pod, name.to_owned());
        let stop_task = self.work.spawn(async move {
            let start = std::time::Instant::now();
            let grace_period = Duration::from_secs(grace.into());
            if let Some(probe_target) = probe_target
                && let Err(why) = run_probe(&hook, &probe_target, grace_period).await
            {
                machine.recorder.record(
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
                let left = grace_period.saturating_sub(start.elapsed()).max(MIN_TERM_WAIT);
                if let Ok(Some(handle)) = running.process().open()
                    && tokio::time::timeout(left, ready::exited(handle)).await.is_ok()
                {
                    return;
                }
            }
            shim::signal(running.process(), Signal::KILL);
            machine.groups.kill(&group);
        });
        self.stops.insert(key, stop_task);
    }
}

/// The signal of `lifecycle.stopSignal`; SIGTERM by default.
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
