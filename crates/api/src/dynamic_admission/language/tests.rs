use serde_json::json;

use super::*;
use crate::dynamic_admission::fake::OneVerb;

const ALL: Environment = Environment { params: true, authorizer: true, stored: true };

fn evaluate(variables: &[(&str, &str)], expressions: &[&str]) -> Result<Results, OutOfBudget> {
    let mut set = Cel.expressions(true);
    for (name, text) in variables {
        let _ = set.declare(name, text, ALL);
    }
    let indexes: Vec<usize> = expressions
        .iter()
        .map(|text| set.compile(text, ALL).unwrap_or_else(|why| panic!("{text}: {why}")).index)
        .collect();
    let object = json!({"metadata": {"name": "x"}, "spec": {"replicas": 3}});
    let request = json!({"operation": "CREATE", "namespace": "n", "userInfo": {"username": "u"}});
    let null = serde_json::Value::Null;
    let input = Input {
        object: &object,
        old_object: &null,
        request: &request,
        namespace: &null,
        params: &null,
        authorizer: Some(&OneVerb("get")),
    };
    set.evaluate(input, &indexes, &mut { BUDGET })
}

fn one(variables: &[(&str, &str)], expression: &str) -> Result<Outcome, String> {
    evaluate(variables, &[expression]).expect("within the budget").pop().expect("one result")
}

#[test]
fn names_have_their_values() {
    let holds = "object.spec.replicas == 3 && oldObject == null && request.operation == 'CREATE' \
                 && request.namespace == 'n' && namespaceObject == null && params == null";
    assert_eq!(one(&[], holds), Ok(Outcome::Bool(true)));
    assert_eq!(one(&[], "request.userInfo.username"), Ok(Outcome::Text("u".to_owned())));
    assert_eq!(one(&[], "[1]"), Ok(Outcome::Other { type_name: "list".to_owned() }));
    assert_eq!(one(&[], "object.spec.size == 1"), Err("no such key: size".to_owned()));
    let pods = "authorizer.group('').resource('pods')";
    assert_eq!(one(&[], &format!("{pods}.check('get').allowed()")), Ok(Outcome::Bool(true)));
    assert_eq!(one(&[], &format!("{pods}.check('list').allowed()")), Ok(Outcome::Bool(false)));
    assert_eq!(one(&[], "authorizer.requestResource.check('get').allowed()"), Ok(Outcome::Bool(true)));
}

#[test]
fn names_are_declared_as_asked() {
    let mut set = Cel.expressions(false);
    let none = Environment { params: false, authorizer: false, stored: false };
    for name in ["params", "authorizer", "variables"] {
        let why = set.compile(&format!("{name} == null"), none).map(|compiled| compiled.index);
        let want = format!("compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}'");
        assert!(why.as_ref().is_err_and(|why| why.starts_with(&want)), "{name}: {why:?}");
    }
    assert_eq!(set.compile("object.spec.x", none).map(|compiled| compiled.result_type), Ok("dyn".to_owned()));
}

#[test]
fn variables_are_evaluated_when_they_are_named() {
    let variables = [("a", "object.spec.replicas"), ("b", "variables.a + 1"), ("bad", "object.none"), ("frob", "frob")];
    assert_eq!(one(&variables, "variables.b == 4 && variables.a == 3"), Ok(Outcome::Bool(true)));
    assert_eq!(one(&variables, "variables.a == 3 || variables.bad == 1"), Ok(Outcome::Bool(true)));
    let why = "composited variable \"bad\" fails to evaluate: no such key: none";
    assert_eq!(one(&variables, "variables.bad == 1"), Err(why.to_owned()));
    let why = one(&variables, "variables.frob == 1").expect_err("it does not compile");
    assert!(why.starts_with("composited variable \"frob\" fails to compile: compilation failed: ERROR"), "{why}");
}

#[test]
fn variables_that_refer_to_each_other_come_to_an_end() {
    let variables = [("a", "dyn(variables).b"), ("b", "variables.a")];
    let why = one(&variables, "variables.b == 1").expect_err("there is no value");
    assert!(why.contains("refers to itself"), "{why}");
}

#[test]
fn long_chains_of_variables_need_no_deep_stack() {
    let names: Vec<String> = (0..2_000).map(|number| format!("v{number}")).collect();
    let mut texts = vec!["1".to_owned()];
    texts.extend(names.iter().map(|name| format!("variables.{name} + 1")));
    let variables: Vec<(&str, &str)> =
        names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let run = move |variables: &[(&str, &str)]| one(variables, "variables.v1999");
    let outcome = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn_scoped(scope, || run(&variables));
        thread.expect("a thread").join().expect("no overflow")
    });
    assert_eq!(outcome, Ok(Outcome::Other { type_name: "int".to_owned() }));
}

#[test]
fn what_is_spent_is_limited() {
    // Each evaluates 64 000 combinations, and costs some hundred
    // thousand.
    let many = format!("[{}]", vec!["0"; 40].join(","));
    let costly = "variables.many.all(a, variables.many.all(b, variables.many.all(c, a + b + c >= 0)))";
    let all = vec![costly; 60];
    assert_eq!(evaluate(&[("many", &many)], &all), Err(OutOfBudget));
    assert_eq!(evaluate(&[("many", &many)], &all[..2]), Ok(vec![Ok(Outcome::Bool(true)), Ok(Outcome::Bool(true))]));
}
