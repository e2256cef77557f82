//! No usable endpoint: a Service without endpoints rejects at once, one whose policy excludes its endpoints drops.

use std::net::IpAddr;
use std::time::Duration;

use testbed::net::{Family, Host, Kind, Protocol};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// Well under a second: what a caller who waits for a retransmission would exceed.
const AT_ONCE: Duration = Duration::from_millis(900);
/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(250);

/// Sends one request and returns an error if it was not refused at once.
fn refusal(client: &Host, protocol: Protocol, at: (IpAddr, u16)) -> Option<String> {
    let what = format!("{} → {protocol:?} {at:?}", client.name());
    match client.ask(protocol, at.0, at.1) {
        Ok(answer) => Some(format!("{what}: {} answers", answer.name)),
        Err(failure) if failure.kind == Kind::Refused && failure.took < AT_ONCE => None,
        Err(failure) => Some(format!("{what}: {failure}")),
    }
}

/// Sends one request and returns an error if there was any response.
fn silence(client: &Host, protocol: Protocol, at: (IpAddr, u16)) -> Option<String> {
    let what = format!("{} → {protocol:?} {at:?}", client.name());
    match client.caller().timeout(SILENCE).ask(protocol, at.0, at.1) {
        Ok(answer) => Some(format!("{what}: {} answers", answer.name)),
        Err(failure) if failure.kind == Kind::TimedOut => None,
        Err(failure) => Some(format!("{what}: {failure}")),
    }
}

/// What these find wrong, asking all at once: silence takes its time.
fn listen(asking: Vec<(&Host, Protocol, (IpAddr, u16))>) -> Vec<String> {
    std::thread::scope(|scope| {
        let ask = |(client, protocol, at)| scope.spawn(move || silence(client, protocol, at));
        let asked: Vec<_> = asking.into_iter().map(ask).collect();
        asked.into_iter().filter_map(|one| one.join().expect("it is asked")).collect()
    })
}

#[track_caller]
fn nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The errors of all clients with all frontends of a Service.
fn everywhere(
    stage: &Stage,
    clients: &[&Host],
    number: u8,
    judge: impl Fn(&Host, Protocol, (IpAddr, u16)) -> Option<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for client in clients {
        for frontend in Frontend::ALL {
            for (protocol, family) in stage.ways() {
                wrong.extend(judge(client, protocol, frontend.at(number, family, &stage.near)));
            }
        }
    }
    wrong
}

#[test]
fn s28_without_endpoints_every_frontend_refuses_at_once() {
    let stage = Stage::new();
    let pod = stage.near.pod("pod");
    let idle = stage.far.pod("idle");
    idle.echo(TARGET);
    stage.served.put(&stage.published("none", 1).json());
    stage.served.put(&stage.published("not-ready", 2).json());
    stage.endpoints("not-ready", |slice| slice.endpoint(&idle).not_ready());
    stage.served.put(&stage.published("local", 3).policy_local().internal_local().json());
    stage.served.settle();
    let mut wrong = Vec::new();
    for number in 1..=3 {
        wrong.extend(everywhere(&stage, &[&pod, &stage.near, &stage.outside], number, refusal));
    }
    nothing_wrong(&wrong);
}

#[test]
fn s26_policy_local_without_local_endpoints_is_silent_and_the_node_itself_is_served() {
    let stage = Stage::new();
    let (pod, web) = (stage.near.pod("pod"), stage.far.pod("web-far"));
    web.echo(TARGET);
    stage.served.put(&stage.published("outward", 1).policy_local().json());
    stage.served.put(&stage.published("inward", 2).internal_local().json());
    for service in ["outward", "inward"] {
        stage.endpoints(service, |slice| slice.endpoint(&web));
    }
    stage.served.settle();
    let (mut wrong, mut silent) = (Vec::new(), Vec::new());
    for (protocol, family) in stage.ways() {
        for frontend in Frontend::EXTERNAL {
            let at = frontend.at(1, family, &stage.near);
            silent.push((&*stage.outside, protocol, at));
            for client in [&*pod, &*stage.near] {
                let answer = client.ask(protocol, at.0, at.1);
                let fine = answer.as_ref().is_ok_and(|answer| answer.name == "web-far");
                wrong.extend((!fine).then(|| format!("{} → {protocol:?} {at:?}: {answer:?}", client.name())));
            }
        }
        for client in [&*pod, &*stage.near, &*stage.outside] {
            silent.push((client, protocol, Frontend::ClusterIp.at(2, family, &stage.near)));
        }
    }
    wrong.extend(listen(silent));
    nothing_wrong(&wrong);
}

#[test]
fn s28_a_port_that_a_service_lacks_and_an_address_that_no_service_has_are_refused() {
    let stage = Stage::new();
    if !stage.served.mode().refuses_unknown {
        return;
    }
    let (pod, web) = (stage.near.pod("pod"), stage.far.pod("web-far"));
    web.echo(TARGET);
    stage.served.put(&stage.internal("web", 1).json());
    stage.endpoints("web", |slice| slice.endpoint(&web));
    stage.served.settle();
    let mut wrong = Vec::new();
    for client in [&*pod, &*stage.near, &*stage.outside] {
        for (protocol, family) in stage.ways() {
            wrong.extend(refusal(client, protocol, (cluster_ip(1, family), PORT + 1)));
            wrong.extend(refusal(client, protocol, (cluster_ip(77, family), PORT)));
        }
    }
    nothing_wrong(&wrong);
}

#[test]
fn s28_the_first_endpoint_ends_the_refusal_and_the_last_one_brings_it_back() {
    let stage = Stage::new();
    let (pod, web) = (stage.near.pod("pod"), stage.far.pod("web-far"));
    web.echo(TARGET);
    stage.served.put(&stage.published("web", 1).json());
    for _ in 0..2 {
        stage.served.settle();
        nothing_wrong(&everywhere(&stage, &[&pod, &stage.outside], 1, refusal));
        stage.endpoints("web", |slice| slice.endpoint(&web));
        stage.served.settle();
        nothing_wrong(&everywhere(&stage, &[&pod, &stage.outside], 1, |client, protocol, at| {
            client.ask(protocol, at.0, at.1).err().map(|failure| format!("{} → {at:?}: {failure}", client.name()))
        }));
        stage.no_endpoints("web");
    }
}

#[test]
fn s28_between_refusal_and_answer_there_is_no_silence() {
    let stage = Stage::new();
    let (pod, web) = (stage.near.pod("pod"), stage.far.pod("web-far"));
    web.echo(TARGET);
    stage.served.put(&stage.published("web", 1).json());
    stage.served.settle();
    let caller = pod.caller().pace(Duration::from_millis(1));
    let hammers = Family::BOTH.map(|family| caller.hammer(Protocol::Tcp, cluster_ip(1, family), PORT));
    for _ in 0..20 {
        stage.endpoints("web", |slice| slice.endpoint(&web));
        stage.served.settle();
        stage.no_endpoints("web");
        stage.served.settle();
    }
    for hammer in hammers {
        let tally = hammer.stop();
        let silent: Vec<_> = tally.failures.iter().filter(|failure| failure.kind != Kind::Refused).collect();
        assert!(silent.is_empty(), "{silent:#?}");
        assert!(tally.of("web-far") > 0 && !tally.failures.is_empty(), "{tally:?}");
    }
}
