//! Every recorded question, through the function that the listeners call.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dns::answer::{Outcome, Scratch};
use dns::beyond::{Beyond, Later, Nobody, Question, Transport};
use dns::book::Book;
use dns::zone::Quirks;
use serde_json::{Value, json};

use crate::compare::{Sent, compare, summary};
use crate::corpus::{book, config, each, file, message, size_limit};
use crate::stub::Stub;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A server of a profile, without its sockets.
pub(crate) struct Subject {
    pub(crate) book: Arc<Book>,
    beyond: Box<dyn Beyond>,
}

impl Subject {
    pub(crate) fn new(profile: &str, value: &Value, quirks: Quirks) -> Self {
        Self::of(book(config(profile, value, quirks)))
    }

    /// Over a book that somebody else fills.
    pub(crate) fn of(book: Arc<Book>) -> Self {
        let beyond: Box<dyn Beyond> =
            if book.config.recursion { Box::new(Stub::new(&file("upstream.json"))) } else { Box::new(Nobody) };
        Self { book, beyond }
    }

    pub(crate) fn ask(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let (mut scratch, mut out) = (Scratch::new(1), Vec::new());
        match self.book.answer(message, transport, &mut scratch, &mut out) {
            Outcome::Reply | Outcome::Unready => Some(out),
            Outcome::Silent => None,
            Outcome::Beyond => Some(at_once(self.beyond.resolve(Question { message, ends: CLIENT.into(), transport }))),
            Outcome::Chase(chase) => {
                let found = at_once(self.beyond.lookup(chase.target(), chase.qtype, CLIENT.into()));
                self.book.chased(message, transport, &chase, &found, &mut out);
                Some(out)
            }
        }
    }

    /// The differences of the best accepted form.
    pub(crate) fn play(&self, case: &Value, expect: &Value) -> Vec<String> {
        let (message, question) = message(case, 4711);
        let udp = case["proto"].as_str().unwrap_or("udp") == "udp";
        let reply = self.ask(&message, if udp { Transport::Udp } else { Transport::Tcp });
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

/// What the stand-in for others says, which never waits.
fn at_once<T>(mut later: Later<'_, T>) -> T {
    match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
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
fn s34_every_recorded_question_is_answered() {
    replay(Quirks::None, |case| Some(case["expect"].clone()));
}

/// With its habits switched on, names are answered as CoreDNS answers them. Below the level of names we stay with the
/// standards: what EDNS echoes, other operations, messages that are cut.
#[test]
fn with_quirks_names_are_answered_as_coredns_does() {
    let below = ["edns-", "opcode-", "raw-058", "raw-064"];
    replay(Quirks::CoreDns, |case| {
        let id = case["id"].as_str().expect("an id");
        let expect = if case["deviation"] == json!(true) { &case["coredns"] } else { &case["expect"] };
        (!below.iter().any(|prefix| id.starts_with(prefix))).then(|| expect.clone())
    });
}
