//! Messages of recorded cases of a real API server that are this crate's.

use std::path::Path;
use std::sync::Arc;

use cel::{Compatibility, Environment, ObjectTable, Type, Value, Variables};
use serde_json::Value as Json;

fn cases() -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/access/vap.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the recorded cases")).expect("JSON")
}

/// Every string in a JSON value.
fn strings<'j>(json: &'j Json, found: &mut Vec<&'j str>) {
    match json {
        Json::String(text) => found.push(text),
        Json::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Json::Object(fields) => fields.values().for_each(|value| strings(value, found)),
        _ => {}
    }
}

fn environment() -> Environment {
    let mut types = ObjectTable::default();
    types.add("kubernetes.variables", []);
    types.add("Service", [("metadata", Type::Dyn), ("spec", Type::object("Service.spec"))]);
    types.add("Service.spec", [("type", Type::String), ("ports", Type::list(Type::Dyn))]);
    Environment::new(Compatibility::New)
        .variable("oldObject", Type::Dyn)
        .variable("variables", Type::object("kubernetes.variables"))
        .types(Arc::new(types))
}

#[test]
fn compile_errors_are_those_of_the_server() {
    let environment = environment().variable("object", Type::Dyn);
    let cases = cases();
    let mut found = Vec::new();
    strings(&cases, &mut found);
    let mut count = 0;
    for message in found {
        let Some((quoted, wanted)) = message.split_once(": compilation failed: ") else { continue };
        let Some(quoted) = quoted.split("Invalid value: ").last() else { continue };
        let expression: String = serde_json::from_str(quoted).expect("an expression in quotes");
        let issues = environment.compile(&expression).expect_err("a refusal");
        assert_eq!(issues.to_string(), wanted, "{expression}");
        count += 1;
    }
    assert!(count >= 6, "only {count} messages");
}

#[test]
fn type_checking_warnings_are_those_of_the_server() {
    let environment = environment().variable("object", Type::object("Service"));
    let cases = cases();
    let mut found = Vec::new();
    strings(&cases, &mut found);
    let warnings: Vec<&str> = found.into_iter().filter(|text| text.starts_with("/v1, Kind=Service: ")).collect();
    assert!(!warnings.is_empty(), "no warnings");
    for warning in warnings {
        let line = warning.lines().nth(1).and_then(|line| line.strip_prefix(" | ")).expect("the expression");
        let issues = environment.compile(line).expect_err("a warning");
        assert_eq!(format!("/v1, Kind=Service: {issues}\n"), warning);
    }
}

#[test]
fn message_expressions_give_the_recorded_text() {
    let environment = environment().variable("object", Type::Dyn);
    let cases = cases();
    let mut count = 0;
    for case in cases.get("cases").unwrap_or(&cases).as_array().expect("a list of cases") {
        let id = case["id"].as_str().unwrap_or_default();
        if !matches!(id, "vap.quantity" | "vap.strings") {
            continue;
        }
        let mut found = Vec::new();
        strings(&case["steps"], &mut found);
        let expression = found.iter().find(|text| text.contains(" + ' ' + ")).expect("an expression");
        let wanted = found.iter().find_map(|text| text.split_once("denied request: ")).expect("a message").1;
        let program = environment.compile(expression).expect("it compiles").program().expect("it is prepared");
        let value = program.evaluate(&Variables::new().with("object", Value::Null)).result.expect("a value");
        assert_eq!(value.as_str(), Some(wanted), "{id}");
        count += 1;
    }
    assert_eq!(count, 2);
}
