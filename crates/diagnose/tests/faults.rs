//! Faults and healthy shapes of Services, each in its own cluster: their findings, by code and message.
//!
//! `faults.json` is read by the tests of everything that renders findings (conditions, Events, doctor, explain, page), so that all of them
//! report the same. `BLESS=1` regenerates its messages.

use std::collections::BTreeSet;

use diagnose::{CODES, Diagnosis, Object, Objects, Snapshot};
use serde_json::{Value, json};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults.json");

fn cases() -> Value {
    let text = std::fs::read_to_string(PATH).expect("the table");
    serde_json::from_str(&text).expect("JSON")
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().expect("a list")
}

fn found(case: &Value) -> Diagnosis {
    let ranges = [json!({"spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}})];
    let [services, slices, pods, nodes] = ["services", "slices", "pods", "nodes"].map(|member| list(case, member));
    let lists = [services, slices, pods, nodes, &ranges].map(Object::listed);
    Snapshot::new(Objects::new(lists, "cluster.local")).diagnosis("default/web").expect("the Service")
}

#[test]
fn b13_every_fault_has_one_code_and_one_sentence() {
    let mut table = cases();
    let bless = std::env::var_os("BLESS").is_some();
    let mut seen = BTreeSet::new();
    for case in table["faults"].as_array_mut().expect("faults") {
        let verdict = found(case).verdict().unwrap_or_else(|| panic!("{}: nothing was found", case["name"]));
        let said = json!([verdict.code, verdict.level.as_str()]);
        assert_eq!(said, json!([case["code"], case["level"]]), "{}: {}", case["name"], verdict.message);
        assert!(!verdict.fix.is_empty(), "{}: no command", case["name"]);
        if bless {
            case["message"] = Value::from(verdict.message.clone());
        }
        assert_eq!(case["message"], *verdict.message, "{}", case["name"]);
        seen.insert(verdict.code.into_owned());
    }
    assert!(list(&table, "faults").len() >= 30);
    let missing: Vec<&&str> = CODES.iter().filter(|code| !seen.contains(**code)).collect();
    assert!(missing.is_empty(), "no fault shows {missing:?}");
    if bless {
        let block = |member: &str| {
            let lines: Vec<String> = list(&table, member).iter().map(Value::to_string).collect();
            format!("{:?}:[\n{}\n]", member, lines.join(",\n"))
        };
        std::fs::write(PATH, format!("{{{},{}}}\n", block("faults"), block("healthy"))).expect("written");
    }
}

#[test]
fn b13_healthy_services_have_no_finding() {
    let table = cases();
    for case in list(&table, "healthy") {
        assert_eq!(found(case).findings(), [], "{}", case["name"]);
    }
    assert!(list(&table, "healthy").len() >= 20);
}
