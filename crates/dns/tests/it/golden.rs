//! Every recorded query, through the function that listeners call.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dns::answer::{Outcome, Scratch};
use dns::forward::{BoxFuture, Forwarder, NoForwarder, Request, Transport};
use dns::snapshot::ZoneSnapshot;
use dns::zone::Quirks;
use serde_json::{Value, json};

use crate::compare::{Sent, compare, summary};
use crate::corpus::{config, each, file, message, size_limit, snapshot};
use crate::stub::Stub;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Server of a profile without sockets.
pub(crate) struct Subject {
    pub(crate) snapshot: Arc<ZoneSnapshot>,
    forwarder: Box<dyn Forwarder>,
}

impl Subject {
    pub(crate) fn new(profile: &str, value: &Value, quirks: Quirks) -> Self {
        Self::of(snapshot(config(profile, value, quirks)))
    }

    /// Uses an existing snapshot.
    pub(crate) fn of(snapshot: Arc<ZoneSnapshot>) -> Self {
        let forwarder: Box<dyn Forwarder> =
            if snapshot.config.recursion { Box::new(Stub::new(&file("upstream.json"))) } else { Box::new(NoForwarder) };
        Self { snapshot, forwarder }
    }

    pub(crate) fn query(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let (mut scratch, mut out) = (Scratch::new(1), Vec::new());
        match self.snapshot.answer(message, transport, &mut scratch, &mut out) {
            Outcome::Reply | Outcome::NotReady => Some(out),
            Outcome::Drop => None,
            Outcome::Forward => {
                Some(query_now(self.forwarder.resolve(Request { message, from: CLIENT.into(), transport })))
            }
            Outcome::FollowCname(chain) => {
                let found = query_now(self.forwarder.lookup(chain.target(), chain.qtype, CLIENT.into()));
                self.snapshot.finish_cname(message, transport, &chain, &found, &mut out);
                Some(out)
            }
        }
    }

    /// Differences of the best accepted form.
    pub(crate) fn play(&self, case: &Value, expect: &Value) -> Vec<String> {
        let (message, question) = message(case, 4711);
        let udp = case["proto"].as_str().unwrap_or("udp") == "udp";
        let reply = self.query(&message, if udp { Transport::Udp } else { Transport::Tcp });
        let udp_limit = udp.then(|| size_limit(case));
        let sent = Sent { message: &message, question: question.as_deref(), udp_limit };
        let forms = each(expect).into_iter().map(|form| compare(form, reply.as_deref(), &sent));
        let mut best = forms.min_by_key(Vec::len).expect("a form");
        if !best.is_empty() {
            best.extend(reply.map(|reply| summary(&reply)));
        }
        best
    }
}

/// Reply of the stub forwarder, which never waits.
fn query_now<T>(mut future: BoxFuture<'_, T>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn replay(quirks: Quirks, expect: impl Fn(&Value) -> Option<Value>) {
    let cases = file("cases.json");
    let profiles = cases["profiles"].as_object().expect("profiles");
    let subjects: BTreeMap<&String, Subject> =
        profiles.iter().map(|(name, value)| (name, Subject::new(name, value, quirks))).collect();
    let (mut score, mut failures): (BTreeMap<&String, (u32, u32)>, _) = (BTreeMap::new(), Vec::new());
    let base = "base".to_owned();
    for case in cases["cases"].as_array().expect("cases").iter().filter(|case| case.get("stream").is_none()) {
        let profile = case["profile"].as_str().unwrap_or(&base).to_owned();
        let (profile, subject) = subjects.get_key_value(&profile).expect("a profile");
        let Some(expect) = expect(case) else { continue };
        let problems = subject.play(case, &expect);
        let score = score.entry(profile).or_default();
        score.1 += 1;
        if problems.is_empty() {
            score.0 += 1;
        } else {
            failures.push(format!("{} {} [{profile}]: {}", case["id"], case["title"], problems.join(" | ")));
        }
    }
    assert!(failures.is_empty(), "{}\n{} failed; passed of all: {score:?}", failures.join("\n"), failures.len());
    let all: u32 = score.values().map(|(_, all)| all).sum();
    assert!(all > 40, "only {all} cases were played");
}

#[test]
fn s34_every_recorded_query_is_answered() {
    replay(Quirks::None, |case| Some(case["expect"].clone()));
}

/// With CoreDNS compatibility, names are answered as by CoreDNS. EDNS, other opcodes and malformed messages follow the
/// standards.
#[test]
fn with_quirks_names_are_answered_as_coredns_does() {
    let below = ["edns-", "opcode-", "raw-058", "raw-064"];
    replay(Quirks::CoreDns, |case| {
        let id = case["id"].as_str().expect("an id");
        let expect = if case["deviation"] == json!(true) { &case["coredns"] } else { &case["expect"] };
        (!below.iter().any(|prefix| id.starts_with(prefix))).then(|| expect.clone())
    });
}
