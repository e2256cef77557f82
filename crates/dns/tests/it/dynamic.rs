//! Objects that change during queries: after each step every answer is the new one, and there is no intermediate
//! answer.

use std::collections::HashMap;
use std::time::Duration;

use dns::zone::Quirks;
use serde_json::{Value, json};

use crate::corpus::{config, file};
use crate::fixture::Fixture;
use crate::golden::Subject;

/// Deadline for a change to be visible; only reached on failure.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

async fn play(subject: &Subject, fixture: &Fixture, case: &Value) {
    let mut before: HashMap<String, Value> = HashMap::new();
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let mut updates = fixture.snapshot.updates();
        let changes = step["do"].as_array().map(Vec::as_slice).unwrap_or_default();
        for change in changes {
            fixture.apply(change);
        }
        let asks = step["ask"].as_array().expect("questions");
        let wait = async {
            loop {
                updates.borrow_and_update();
                let wrong: Vec<_> =
                    asks.iter().filter_map(|ask| differs(subject, ask, changes.len() == 1, &before)).collect();
                if wrong.is_empty() {
                    return;
                }
                if let Err(stale) = tokio::time::timeout(READ_TIMEOUT, updates.changed()).await {
                    panic!("{} step {number} ({stale}): {}", case["id"], wrong.join("\n"));
                }
            }
        };
        wait.await;
        before.extend(asks.iter().map(|ask| (question(ask), ask["expect"].clone())));
    }
    for change in case["steps"].as_array().expect("steps").iter().flat_map(|step| step["do"].as_array()).flatten() {
        if change["op"] == json!("create") {
            let gone = json!({"op": "delete", "kind": change["kind"], "namespace": change["namespace"], "name": change["name"]});
            fixture.apply(&gone);
        }
    }
}

fn question(ask: &Value) -> String {
    format!("{} {} {}", ask["qname"], ask["qtype"], ask["proto"])
}

/// Difference of an answer. With a single change, an answer that is not the new one must be the old one.
fn differs(subject: &Subject, ask: &Value, single: bool, before: &HashMap<String, Value>) -> Option<String> {
    let problems = subject.play(ask, &ask["expect"]);
    if problems.is_empty() {
        return None;
    }
    if let Some(old) = before.get(&question(ask)).filter(|_| single) {
        let still = subject.play(ask, old);
        // It may have changed meanwhile.
        let is_new = subject.play(ask, &ask["expect"]).is_empty();
        assert!(still.is_empty() || is_new, "{} shows a state that never was: {problems:?}", question(ask));
    }
    Some(format!("{}: {}", question(ask), problems.join(" | ")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_object_changes_update_records() {
    let cases = file("cases.json");
    let mut played = 0;
    for profile in ["base", "verified"] {
        let value = &cases["profiles"][profile];
        let fixture = Fixture::new(config(profile, value, Quirks::None)).await;
        assert!(fixture.informers.out_of_sync().is_empty(), "{:?}", fixture.informers.out_of_sync());
        let subject = Subject::of(fixture.snapshot.clone());
        for case in cases["dynamic"].as_array().expect("cases") {
            // Cases that need controllers are not run here.
            if case["profile"].as_str().unwrap_or("base") == profile && case.get("needs").is_none() {
                let text = case.to_string().replace("{run}", "x1");
                play(&subject, &fixture, &serde_json::from_str(&text).expect("JSON")).await;
                played += 1;
            }
        }
        let text = fixture.metrics.text(&fixture.snapshot);
        assert!(text.contains("waypost_dns_watch_in_sync{watch=\"services\"} 1"), "{text}");
    }
    assert!(played > 20, "{played} cases");
}
