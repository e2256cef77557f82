//! The observed state of an adopted workload as [`Facts`], so that its Pod status is computed like that of every other Pod. Pure.
//!
//! In: the Pod, the state that its adapter reports, probe results, the node's addresses. Out: [`Facts`].

use std::net::IpAddr;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use crate::facts::{Container, Facts, Health, Sandbox, State, Termination};

/// The state of a workload, as its adapter reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Whether it runs.
    pub state: RunState,
    /// Its own addresses; none on the host network.
    pub addresses: Vec<IpAddr>,
    /// The result of its health check, if it has one.
    pub healthy: Option<bool>,
    /// Its ID in podman, docker or systemd.
    pub id: String,
}

/// Whether a workload runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RunState {
    /// It runs; since this time, if known.
    Running(Option<Timestamp>),
    /// It is starting, stopping or paused.
    #[default]
    Waiting,
    /// It failed, with an exit code and a reason.
    Failed(i32, String),
}

/// The state of the readiness probe.
#[derive(Clone, Copy, Debug)]
pub enum ProbeState<'a> {
    /// There is no probe.
    NoProbe,
    /// There is no result yet.
    Pending,
    /// The probe succeeds at these addresses.
    Reachable(&'a [IpAddr]),
}

/// The facts of a Pod.
#[must_use]
pub fn facts(pod: &Value, observed: &Observed, probe: ProbeState<'_>, host: &[IpAddr], now: Timestamp) -> Facts {
    let started = pod.text("status.startTime").parse().unwrap_or(now);
    let reachable: Vec<IpAddr> = host.iter().copied().filter(|ip| !ip.is_loopback()).collect();
    let addresses = addresses(pod, observed, probe, &reachable);
    let before = pod.items("status.containerStatuses").first();
    let answered = match probe {
        ProbeState::NoProbe => true,
        // The readiness in the API holds until the first result.
        ProbeState::Pending => before.is_some_and(|before| before.flag("ready")),
        ProbeState::Reachable(good) => !good.is_empty(),
    };
    let running = matches!(observed.state, RunState::Running(_));
    let ready = running && answered && observed.healthy != Some(false) && !addresses.is_empty();
    let state = match &observed.state {
        RunState::Running(_) if addresses.is_empty() => State::StartFailed {
            reason: "NoAddress".to_owned(),
            message: "it has only loopback addresses, which endpoints must not have".to_owned(),
            until: now,
        },
        RunState::Running(since) => State::Running { since: since.unwrap_or(started), stopping: None },
        RunState::Waiting => State::New,
        RunState::Failed(code, reason) => State::Terminated(ending(*code, reason, before, observed, now)),
    };
    let container = Container {
        state,
        health: Health { post_start_done: true, started: running, ready, kill_reason: None },
        id: observed.id.clone(),
        ..Container::default()
    };
    let name = pod.items("spec.containers").first().map_or("", |container| container.text("name"));
    let sandbox = if addresses.is_empty() { Sandbox::Absent } else { Sandbox::Ready { addresses: addresses.clone() } };
    Facts {
        sandbox,
        containers: [(name.to_owned(), container)].into(),
        // Source of podIPs for a Pod on the host network.
        host: if pod.flag("spec.hostNetwork") && !addresses.is_empty() { addresses } else { host.to_vec() },
        started: Some(started),
        ..Facts::default()
    }
}

/// Its own addresses, or the node's addresses at which the probe succeeds.
fn addresses(pod: &Value, observed: &Observed, probe: ProbeState<'_>, host: &[IpAddr]) -> Vec<IpAddr> {
    if !pod.flag("spec.hostNetwork") {
        return observed.addresses.iter().copied().filter(|ip| !ip.is_loopback()).collect();
    }
    match probe {
        ProbeState::Reachable(good) if !good.is_empty() => good.to_vec(),
        ProbeState::NoProbe => host.to_vec(),
        // Keep the published addresses until the probe succeeds.
        ProbeState::Reachable(_) | ProbeState::Pending => {
            let shown = pod.items("status.podIPs").iter().filter_map(|ip| ip.text("ip").parse().ok());
            let still: Vec<IpAddr> = shown.filter(|ip| host.contains(ip)).collect();
            if still.is_empty() { host.to_vec() } else { still }
        }
    }
}

/// How it terminated; the time is when that was first observed.
fn ending(code: i32, reason: &str, before: Option<&Value>, observed: &Observed, now: Timestamp) -> Termination {
    let shown = before.map_or("", |before| before.text("state.terminated.finishedAt"));
    Termination {
        code,
        reason: reason.to_owned(),
        message: String::new(),
        started: None,
        finished: shown.parse().unwrap_or(now),
        id: observed.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::decide;

    const HOST: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 11)),
        IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x11)),
    ];

    fn pod(host_network: bool) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"hostNetwork": host_network, "restartPolicy": "Always", "containers": [{"name": "web", "image": "x"}]},
        })
    }

    fn status(pod: &Value, observed: &Observed, probe: ProbeState<'_>, host: &[IpAddr]) -> Value {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        decide(pod, &facts(pod, observed, probe, host, now), now).status
    }

    fn is_ready(status: &Value) -> bool {
        let mut all = status.items("conditions").iter();
        all.any(|one| one.text("type") == "Ready" && one.text("status") == "True")
    }

    fn ips(status: &Value) -> Vec<&str> {
        status.items("podIPs").iter().map(|ip| ip.text("ip")).collect()
    }

    #[test]
    fn a_program_is_ready_at_the_addresses_where_its_probe_succeeds() {
        let runs = Observed { state: RunState::Running(None), ..Observed::default() };
        let both = status(&pod(true), &runs, ProbeState::Reachable(&HOST), &HOST);
        assert_eq!((ips(&both), is_ready(&both)), (vec!["192.0.2.11", "2001:db8::11"], true));
        assert_eq!(both.text("phase"), "Running");
        let one = status(&pod(true), &runs, ProbeState::Reachable(&HOST[1..]), &HOST);
        assert_eq!((ips(&one), is_ready(&one)), (vec!["2001:db8::11"], true));
        let mut before = pod(true);
        before["status"] = one;
        let none = status(&before, &runs, ProbeState::Reachable(&[]), &HOST);
        assert_eq!((ips(&none), is_ready(&none)), (vec!["2001:db8::11"], false), "its addresses are kept");
        let again = status(&before, &runs, ProbeState::Pending, &HOST);
        assert!(is_ready(&again), "a restarted agent keeps the readiness until the first result");
        assert!(!is_ready(&status(&pod(true), &runs, ProbeState::Pending, &HOST)));
    }

    #[test]
    fn s13_loopback_addresses_are_not_published_as_endpoints() {
        let runs = Observed { state: RunState::Running(None), ..Observed::default() };
        let only = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];
        let alone = status(&pod(true), &runs, ProbeState::NoProbe, &only);
        assert_eq!((ips(&alone), is_ready(&alone)), (vec![], false));
        let own = Observed { addresses: only.to_vec(), ..runs };
        let container = status(&pod(false), &own, ProbeState::NoProbe, &HOST);
        assert_eq!((ips(&container), is_ready(&container)), (vec![], false));
        let waiting = &container["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "NoAddress");
    }

    #[test]
    fn an_unhealthy_container_is_not_ready() {
        let at = |healthy| Observed {
            state: RunState::Running(None),
            addresses: vec![[10, 88, 0, 7].into()],
            healthy,
            ..Observed::default()
        };
        for (healthy, ready) in [(None, true), (Some(true), true), (Some(false), false)] {
            let status = status(&pod(false), &at(healthy), ProbeState::NoProbe, &HOST);
            assert_eq!((ips(&status), is_ready(&status)), (vec!["10.88.0.7"], ready), "{healthy:?}");
        }
    }

    #[test]
    fn a_failed_unit_shows_exit_code_and_reason() {
        let failed = Observed { state: RunState::Failed(3, "exit-code".to_owned()), ..Observed::default() };
        let status = status(&pod(true), &failed, ProbeState::Pending, &HOST);
        let state = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&state["exitCode"], &state["reason"]), (&json!(3), &json!("exit-code")));
        assert!(!is_ready(&status));
    }
}
