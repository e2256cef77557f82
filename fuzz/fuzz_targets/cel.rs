//! An expression and JSON for its variables: compiled or refused, evaluated or failed, the same each time, and in the end
//! soon. Kubernetes' limit for one evaluation holds up to the part that exceeds it.
#![no_main]

use cel::{Compatibility, Environment, Type, Value, Variables};
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

const NAMES: [&str; 4] = ["object", "oldObject", "params", "self"];

fn run(text: &str, input: &Json) -> Result<String, String> {
    let environment = NAMES.iter().fold(Environment::new(Compatibility::Stored).with_bind(), |environment, name| {
        environment.variable(name, Type::Dyn)
    });
    let program = environment.compile(text).map_err(|issues| issues.to_string())?.program()?;
    let variables = NAMES
        .iter()
        .fold(Variables::new(), |variables, name| variables.with(name, input.get(name).map_or(Value::Null, Value::from_json)));
    let evaluation = program.evaluate(&variables);
    evaluation.result.map(|value| format!("{} {value}", evaluation.cost)).map_err(|error| error.to_string())
}

fuzz_target!(|data: &[u8]| {
    let (text, input) = common::halves(data);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let input = serde_json::from_slice(input).unwrap_or(Json::Null);
    assert_eq!(run(text, &input), run(text, &input));
});
