use serde_json::json;

use super::*;
use crate::{Compatibility, Environment, Variables};

fn simple(shape: Shape) -> Arc<Declared> {
    Arc::new(Declared::new(shape, false, 9))
}

fn object(name: &str, fields: &[(&str, Option<Arc<Declared>>)]) -> Arc<Declared> {
    let fields = fields.iter().map(|(name, declared)| ((*name).into(), declared.clone())).collect();
    simple(Shape::Object(Properties { name: name.into(), fields, min_size: 2 }))
}

/// What an expression about a declared value gives.
fn evaluate(declared: &Arc<Declared>, json: &Json, expression: &str) -> Result<bool, String> {
    let environment = Environment::new(Compatibility::New)
        .variable("self", declared.kind().clone())
        .types(Arc::new(DeclaredTypes::new(declared)));
    let program = environment.compile(expression).map_err(|issues| issues.to_string())?.program()?;
    let evaluation = program.evaluate(&Variables::new().with("self", Value::declared(json, declared)));
    let value = evaluation.result.map_err(|error| error.to_string())?;
    value.as_bool().ok_or_else(|| value.to_string())
}

#[test]
fn fields_are_reached_by_their_escaped_names() {
    let text = || Some(simple(Shape::String));
    let fields =
        object("T", &[("namespace", text()), ("a-b", text()), ("x__y", text()), ("free", None), ("plain", text())]);
    let json = json!({"namespace": "n", "a-b": "d", "x__y": "u", "free": 1, "plain": null, "unknown": 2});
    for expression in [
        "self.__namespace__ == 'n' && self.namespace == 'n'",
        "self.a__dash__b == 'd' && self.x__underscores__y == 'u'",
        "!has(self.plain)",
        "dyn(self).size() == 6",
        "self == self",
    ] {
        assert_eq!(evaluate(&fields, &json, expression), Ok(true), "{expression}");
    }
    for field in ["free", "unknown", "a", "__frob__"] {
        let error = evaluate(&fields, &json, &format!("self.{field} == 'x'")).expect_err("no such field");
        assert!(error.contains(&format!("undefined field '{field}'")), "{error}");
    }
    assert_eq!(evaluate(&fields, &json, "self.plain == ''"), Err("no such key: plain".to_owned()));
}

#[test]
fn values_of_other_types_fail_when_they_are_used() {
    let number = object("T", &[("n", Some(simple(Shape::Int))), ("t", Some(simple(Shape::DateTime)))]);
    let json = json!({"n": "x", "t": "2026-13-01T00:00:00Z"});
    assert_eq!(evaluate(&number, &json, "has(self.n)"), Ok(true));
    assert_eq!(evaluate(&number, &json, "self.n == 1"), Err("invalid data, expected int, got string".to_owned()));
    assert_eq!(evaluate(&number, &json, "self.n == 1 || true"), Ok(true));
    let refused = "Invalid date-time formatted string 2026-13-01T00:00:00Z: parsing time \"2026-13-01T00:00:00Z\": month out of range";
    assert_eq!(evaluate(&number, &json, "self.t == self.t"), Err(refused.to_owned()));
    let list = simple(Shape::List(simple(Shape::Int), Items::Ordered));
    assert_eq!(
        evaluate(&list, &json!([1, null]), "self.all(x, x == 1)"),
        Err("invalid data, got null for schema with nullable=false".to_owned())
    );
}

#[test]
fn sets_and_keyed_lists_are_compared_by_their_elements() {
    let set = simple(Shape::List(simple(Shape::String), Items::Set));
    for (expression, wanted) in [
        ("self == ['b', 'a']", true),
        ("['b', 'a'] == self", false),
        ("self == ['a']", false),
        ("self == ['a', 'a']", false),
        ("self + ['c', 'a'] == ['c', 'b', 'a']", true),
        ("(self + ['c', 'a', 'c']).size() == 3", true),
    ] {
        assert_eq!(evaluate(&set, &json!(["a", "b"]), expression), Ok(wanted), "{expression}");
    }
    let item = object("T", &[("k", Some(simple(Shape::String))), ("v", Some(simple(Shape::Int)))]);
    let keyed = simple(Shape::List(item, Items::Keyed(["k".into()].into())));
    let pair = object("P", &[("l", Some(keyed.clone())), ("r", Some(keyed))]);
    let json = json!({"l": [{"k": "a", "v": 1}, {"k": "b"}], "r": [{"k": "b"}, {"k": "a", "v": 1}]});
    assert_eq!(evaluate(&pair, &json, "self.l == self.r && (self.l + self.r).size() == 2"), Ok(true));
    let json = json!({"l": [{"k": "a", "v": 1}], "r": [{"k": "a", "v": 2}]});
    assert_eq!(evaluate(&pair, &json, "self.l == self.r"), Ok(false));
    assert_eq!(evaluate(&pair, &json, "(self.l + self.r)[0].v == 2"), Ok(true));
}

#[test]
fn durations_may_have_words() {
    let duration = simple(Shape::Duration);
    for (text, seconds) in [("90s", 90), ("2 days", 172_800), ("1w2d", 777_600), ("1 hour 5 min", 3_900), ("0", 0)] {
        let expression = format!("self == duration('{seconds}s')");
        assert_eq!(evaluate(&duration, &json!(text), &expression), Ok(true), "{text}");
    }
    assert!(evaluate(&duration, &json!("x"), "self == self").is_err());
}
