//! How something that was adopted is, as facts of a Pod: a pure function, so that its status is written as that of every other Pod.
//!
//! In: the Pod, what its adapter says of it, what it answered when it was asked, the addresses of the machine. Out: [`Facts`].

use std::net::IpAddr;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use crate::facts::{Container, Ending, Facts, Health, Sandbox, State};

/// What an adapter says of something that it found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// What it does.
    pub life: Life,
    /// Its own addresses; none when it has those of the machine.
    pub addresses: Vec<IpAddr>,
    /// What its keeper says of its health, if anything.
    pub healthy: Option<bool>,
    /// By which it is known to its keeper.
    pub id: String,
}

/// What something does.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Life {
    /// It runs; since then, if that is known.
    Running(Option<Timestamp>),
    /// It will run, or is paused.
    #[default]
    Waiting,
    /// It failed: with this code, for this reason.
    Failed(i32, String),
}

/// What is known of the answers that something gave.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// Nobody asks.
    Never,
    /// It was asked, and has not answered yet.
    NotYet,
    /// It answers at these addresses.
    Answers(&'a [IpAddr]),
}

/// The facts of a Pod.
#[must_use]
pub fn facts(pod: &Value, standing: &Standing, asked: Asked<'_>, host: &[IpAddr], now: Timestamp) -> Facts {
    let began = pod.text("status.startTime").parse().unwrap_or(now);
    let reachable: Vec<IpAddr> = host.iter().copied().filter(|ip| !ip.is_loopback()).collect();
    let addresses = addresses(pod, standing, asked, &reachable);
    let before = pod.items("status.containerStatuses").first();
    let answered = match asked {
        Asked::Never => true,
        // What was found before we began holds until the first answer, which is on its way.
        Asked::NotYet => before.is_some_and(|before| before.flag("ready")),
        Asked::Answers(good) => !good.is_empty(),
    };
    let running = matches!(standing.life, Life::Running(_));
    let ready = running && answered && standing.healthy != Some(false) && !addresses.is_empty();
    let state = match &standing.life {
        Life::Running(_) if addresses.is_empty() => State::Refused {
            reason: "NoAddress".to_owned(),
            message: "it has no address but those of loopback, which endpoints may not have".to_owned(),
            until: now,
        },
        Life::Running(since) => State::Running { since: since.unwrap_or(began), stopping: None },
        Life::Waiting => State::New,
        Life::Failed(code, reason) => State::Ended(ending(*code, reason, before, standing, now)),
    };
    let container = Container {
        state,
        health: Health { greeted: true, started: running, ready, condemned: None },
        id: standing.id.clone(),
        ..Container::default()
    };
    let name = pod.items("spec.containers").first().map_or("", |container| container.text("name"));
    let sandbox = if addresses.is_empty() { Sandbox::Absent } else { Sandbox::Ready { addresses: addresses.clone() } };
    Facts {
        sandbox,
        containers: [(name.to_owned(), container)].into(),
        // The status of a Pod on the machine's network takes its addresses from here.
        host: if pod.flag("spec.hostNetwork") && !addresses.is_empty() { addresses } else { host.to_vec() },
        began: Some(began),
        gone: false,
    }
}

/// Where it is: its own addresses, or those of the machine at which it answers.
fn addresses(pod: &Value, standing: &Standing, asked: Asked<'_>, host: &[IpAddr]) -> Vec<IpAddr> {
    if !pod.flag("spec.hostNetwork") {
        return standing.addresses.iter().copied().filter(|ip| !ip.is_loopback()).collect();
    }
    match asked {
        Asked::Answers(good) if !good.is_empty() => good.to_vec(),
        Asked::Never => host.to_vec(),
        // It is where it was, as far as anybody knows.
        Asked::Answers(_) | Asked::NotYet => {
            let shown = pod.items("status.podIPs").iter().filter_map(|ip| ip.text("ip").parse().ok());
            let still: Vec<IpAddr> = shown.filter(|ip| host.contains(ip)).collect();
            if still.is_empty() { host.to_vec() } else { still }
        }
    }
}

/// How it ended. The time is that of the first time it was seen so.
fn ending(code: i32, reason: &str, before: Option<&Value>, standing: &Standing, now: Timestamp) -> Ending {
    let shown = before.map_or("", |before| before.text("state.terminated.finishedAt"));
    Ending {
        code,
        reason: reason.to_owned(),
        message: String::new(),
        started: None,
        finished: shown.parse().unwrap_or(now),
        id: standing.id.clone(),
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

    fn status(pod: &Value, standing: &Standing, asked: Asked<'_>, host: &[IpAddr]) -> Value {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        decide(pod, &facts(pod, standing, asked, host, now), now).status
    }

    fn is_ready(status: &Value) -> bool {
        let mut all = status.items("conditions").iter();
        all.any(|one| one.text("type") == "Ready" && one.text("status") == "True")
    }

    fn ips(status: &Value) -> Vec<&str> {
        status.items("podIPs").iter().map(|ip| ip.text("ip")).collect()
    }

    #[test]
    fn a_program_is_where_it_answers_and_ready_while_it_does() {
        let runs = Standing { life: Life::Running(None), ..Standing::default() };
        let both = status(&pod(true), &runs, Asked::Answers(&HOST), &HOST);
        assert_eq!((ips(&both), is_ready(&both)), (vec!["192.0.2.11", "2001:db8::11"], true));
        assert_eq!(both.text("phase"), "Running");
        let one = status(&pod(true), &runs, Asked::Answers(&HOST[1..]), &HOST);
        assert_eq!((ips(&one), is_ready(&one)), (vec!["2001:db8::11"], true));
        let mut before = pod(true);
        before["status"] = one;
        let none = status(&before, &runs, Asked::Answers(&[]), &HOST);
        assert_eq!((ips(&none), is_ready(&none)), (vec!["2001:db8::11"], false), "it stays where it was");
        let again = status(&before, &runs, Asked::NotYet, &HOST);
        assert!(is_ready(&again), "an agent that begins again changes nothing before it knows more");
        assert!(!is_ready(&status(&pod(true), &runs, Asked::NotYet, &HOST)));
    }

    #[test]
    fn s13_loopback_is_no_address_of_an_endpoint() {
        let runs = Standing { life: Life::Running(None), ..Standing::default() };
        let only = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];
        let alone = status(&pod(true), &runs, Asked::Never, &only);
        assert_eq!((ips(&alone), is_ready(&alone)), (vec![], false));
        let own = Standing { addresses: only.to_vec(), ..runs };
        let container = status(&pod(false), &own, Asked::Never, &HOST);
        assert_eq!((ips(&container), is_ready(&container)), (vec![], false));
        let waiting = &container["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "NoAddress");
    }

    #[test]
    fn the_health_that_its_keeper_sees_counts() {
        let at = |healthy| Standing {
            life: Life::Running(None),
            addresses: vec![[10, 88, 0, 7].into()],
            healthy,
            ..Standing::default()
        };
        for (healthy, ready) in [(None, true), (Some(true), true), (Some(false), false)] {
            let status = status(&pod(false), &at(healthy), Asked::Never, &HOST);
            assert_eq!((ips(&status), is_ready(&status)), (vec!["10.88.0.7"], ready), "{healthy:?}");
        }
    }

    #[test]
    fn what_failed_says_how() {
        let failed = Standing { life: Life::Failed(3, "exit-code".to_owned()), ..Standing::default() };
        let status = status(&pod(true), &failed, Asked::NotYet, &HOST);
        let state = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&state["exitCode"], &state["reason"]), (&json!(3), &json!("exit-code")));
        assert!(!is_ready(&status));
    }
}
