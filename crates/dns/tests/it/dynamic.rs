//! Objects that change while names are asked for: after each step every answer is the new one, and between two states
//! there is none.

use std::collections::HashMap;
use std::time::Duration;

use dns::zone::Quirks;
use serde_json::{Value, json};

use crate::corpus::{config, file};
use crate::golden::Subject;
use crate::place::Place;

/// How long a change may take to be seen. A failure takes this long; nothing else does.
const PATIENCE: Duration = Duration::from_secs(20);

async fn play(subject: &Subject, place: &Place, case: &Value) {
    let mut before: HashMap<String, Value> = HashMap::new();
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let mut updates = place.book.updates();
        let changes = step["do"].as_array().map(Vec::as_slice).unwrap_or_default();
        for change in changes {
            place.apply(change);
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
                if let Err(stale) = tokio::time::timeout(PATIENCE, updates.changed()).await {
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
            place.apply(&gone);
        }
    }
}

fn question(ask: &Value) -> String {
    format!("{} {} {}", ask["qname"], ask["qtype"], ask["proto"])
}

/// What is wrong with an answer. When one thing was changed, an answer that is not the new one must be the old one.
fn differs(subject: &Subject, ask: &Value, single: bool, before: &HashMap<String, Value>) -> Option<String> {
    let problems = subject.play(ask, &ask["expect"]);
    if problems.is_empty() {
        return None;
    }
    if let Some(old) = before.get(&question(ask)).filter(|_| single) {
        let still = subject.play(ask, old);
        // It may have become the new one meanwhile.
        let is_new = subject.play(ask, &ask["expect"]).is_empty();
        assert!(still.is_empty() || is_new, "{} shows a state that never was: {problems:?}", question(ask));
    }
    Some(format!("{}: {}", question(ask), problems.join(" | ")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_changes_of_objects_are_changes_of_names() {
    let cases = file("cases.json");
    let mut played = 0;
    for profile in ["base", "verified"] {
        let value = &cases["profiles"][profile];
        let place = Place::new(config(profile, value, Quirks::None)).await;
        assert!(place.inputs.lost().is_empty(), "{:?}", place.inputs.lost());
        let subject = Subject::of(place.book.clone());
        for case in cases["dynamic"].as_array().expect("cases") {
            // Those that need controllers make slices from Pods, which is not ours to do.
            if case["profile"].as_str().unwrap_or("base") == profile && case.get("needs").is_none() {
                let text = case.to_string().replace("{run}", "x1");
                play(&subject, &place, &serde_json::from_str(&text).expect("JSON")).await;
                played += 1;
            }
        }
        let text = place.metrics.text(&place.book);
        assert!(text.contains("waypost_dns_watch_in_sync{watch=\"services\"} 1"), "{text}");
    }
    assert!(played > 20, "{played} cases");
}
