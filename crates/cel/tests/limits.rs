//! Whatever the expression and the input are: no panic, no overflow of the stack, and an end soon.

use std::thread;

use cel::{Compatibility, Environment, EvalError, Evaluation, Type, Value, Variables};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Less than half of what the threads of the server have.
const STACK: usize = 768 * 1024;

fn environment() -> Environment {
    Environment::new(Compatibility::Stored).variable("object", Type::Dyn).variable("s", Type::String).with_bind()
}

fn input() -> Json {
    json!({"name": "web", "list": [1, 2.5, "three", null, true, {"a": [1]}], "labels": {"app": "web", "tier": "front"}, "text": "a".repeat(10_000)})
}

/// Compiles and evaluates; the message of what fails first.
fn run(text: &str) -> Result<String, String> {
    let program = environment().compile(text).map_err(|issues| issues.to_string())?.program()?;
    let (object, long) = (input(), "ab".repeat(50_000));
    let variables = Variables::new().with("object", Value::from_json(&object)).with("s", Value::string(long.as_str()));
    let Evaluation { result, .. } = program.evaluate(&variables);
    result.map(|value| value.type_name().to_owned()).map_err(|error| error.to_string())
}

/// Runs with little stack.
fn on_small_stack(text: String) -> Result<String, String> {
    let thread = thread::Builder::new().stack_size(STACK).spawn(move || run(&text)).expect("a thread");
    thread.join().expect("no panic")
}

fn nested(depth: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    for depth in [100, 240, 249, 250, 400] {
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{1:", "1", "}"),
            ("-(", "1", ")"),
            ("!(", "true", ")"),
            ("[1].map(x, ", "1", ")"),
            ("[1].map(x, true, ", "1", ")"),
            ("[1].all(x, ", "true", ")"),
            ("optional.of(1).optMap(x, ", "1", ")"),
            ("[1].sortBy(x, ", "1", ""),
            ("true ? 1 : ", "1", ""),
            ("true ? (", "1", ") : 2"),
            ("dyn(", "1", ")"),
            ("object[", "'a'", "]"),
            ("[1, 2].transformMap(i, v, ", "1", ")"),
            ("cel.bind(x, 1, ", "x", ")"),
            ("a.b(", "1", ")"),
            ("'%s'.format([", "1", "])"),
            ("(", "", ""),
            ("[", "", ""),
            ("!", "true", ""),
            ("-", "1", ""),
        ] {
            let text = nested(depth, open, inner, close);
            let _ = on_small_stack(text);
        }
        for (first, more) in [
            ("1", "+1"),
            ("object", ".a"),
            ("object", "[0]"),
            ("object", ".?a"),
            ("true", "&&true"),
            ("s", ".trim()"),
            ("object", "==1"),
            ("[1]", ".map(x, x)"),
            ("1", " ? 1 : 1"),
        ] {
            let _ = on_small_stack(format!("{first}{}", more.repeat(depth)));
        }
    }
}

#[test]
fn deep_values_do_not_overflow_the_stack() {
    let deep = nested(120, "[", "1", "]");
    for text in [
        format!("{deep} == {deep}"),
        format!("'%s'.format([{deep}])"),
        format!("[{deep}, {deep}].distinct()"),
        format!("{deep}.flatten(1000)"),
        format!("dyn([{deep}]).max()"),
    ] {
        assert!(on_small_stack(text.clone()).is_ok() || text.contains("max"), "{text}");
    }
}

#[test]
fn programs_and_values_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<cel::Program>();
    shared::<Environment>();
    shared::<Value<'_>>();
    assert!(size_of::<Value<'_>>() <= 48, "{}", size_of::<Value<'_>>());
}

#[test]
fn growth_is_limited() {
    let double =
        |first: &str, count: usize| format!("{}{first}{}", "cel.bind(x, ".repeat(count), ", x + x)".repeat(count));
    let cancelled = EvalError::CostLimitExceeded.to_string();
    for text in [
        double("s", 60),
        double("[1]", 60) + " == " + &double("[1]", 60),
        double("[1]", 40) + ".all(x, x == 1)",
        format!("'%s'.format([{}])", double("[1]", 40)),
        "lists.range(1000).all(x, s.replace('', s) != 'a')".to_owned(),
        "lists.range(1000).map(x, s).join(s)".to_owned(),
        "lists.range(100000).all(x, size(s) > x - 100001)".to_owned(),
        "lists.range(100000).all(x, s == s + '')".to_owned(),
        "lists.range(100000).all(x, s.matches('^(ab)*$'))".to_owned(),
        "lists.range(100000).all(x, 'a'.matches(string(x) + '[[:word:]]{1000}') || true)".to_owned(),
        "'%.4000000000f'.format([1.0])".to_owned(),
        "lists.range(1000000).distinct()".to_owned(),
        "lists.range(1000000) + lists.range(1000000)".to_owned(),
    ] {
        assert_eq!(run(&text), Err(cancelled.clone()), "{text}");
    }
}

/// Pieces of expressions, joined at random.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("object"),
        Just("s"),
        Just("x"),
        Just("1"),
        Just("2.5"),
        Just("3u"),
        Just("'a'"),
        Just("b'b'"),
        Just("true"),
        Just("null"),
        Just("."),
        Just(".?"),
        Just("["),
        Just("[?"),
        Just("]"),
        Just("("),
        Just(")"),
        Just("{"),
        Just("}"),
        Just(","),
        Just(":"),
        Just("?"),
        Just("+"),
        Just("-"),
        Just("*"),
        Just("/"),
        Just("%"),
        Just("!"),
        Just("=="),
        Just("!="),
        Just("<"),
        Just(">="),
        Just(" in "),
        Just("&&"),
        Just("||"),
        Just(".map(x, "),
        Just(".all(x, "),
        Just(".filter(x, "),
        Just(".exists_one(x, "),
        Just("has("),
        Just("size("),
        Just("dyn("),
        Just("cel.bind(x, "),
        Just(".optMap(x, "),
        Just(".transformMap(x, y, "),
        Just(".name"),
        Just(".list"),
        Just(".matches("),
        Just("string("),
        Just("int("),
        Just(".split("),
        Just(".join("),
        Just("'%s'.format(["),
        Just("\n"),
        Just(" "),
        Just("`a`"),
        Just("@"),
        Just("timestamp("),
        Just("quantity("),
        Just(".sum()"),
        Just(".sort()"),
        Just("lists.range("),
        Just("optional.of("),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Expressions that are likely to compile.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("object".to_owned()),
        Just("object.list".to_owned()),
        Just("object.labels".to_owned()),
        Just("s".to_owned()),
        Just("dyn(1)".to_owned()),
        Just("dyn('a')".to_owned()),
        Just("dyn(1.5)".to_owned()),
        Just("dyn(true)".to_owned()),
        Just("dyn([1, 2])".to_owned()),
        Just("dyn({'a': 1})".to_owned()),
        Just("object.none".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        prop_oneof![
            (
                inner.clone(),
                prop_oneof![
                    Just("+"),
                    Just("-"),
                    Just("*"),
                    Just("/"),
                    Just("%"),
                    Just("=="),
                    Just("<"),
                    Just("&&"),
                    Just("||"),
                    Just("in")
                ],
                inner.clone()
            )
                .prop_map(|(left, op, right)| format!("dyn({left} {op} {right})")),
            (
                inner.clone(),
                prop_oneof![Just("all"), Just("exists"), Just("map"), Just("filter"), Just("exists_one")],
                inner.clone()
            )
                .prop_map(|(range, function, body)| format!("dyn({range}.{function}(x, {body}))")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("dyn({a} ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(list, index)| format!("dyn({list}[{index}])")),
            (
                inner.clone(),
                prop_oneof![Just("size"), Just("sum"), Just("max"), Just("distinct"), Just("trim"), Just("flatten")]
            )
                .prop_map(|(target, function)| format!("dyn({target}.{function}())")),
            (
                inner.clone(),
                prop_oneof![
                    Just("contains"),
                    Just("matches"),
                    Just("split"),
                    Just("indexOf"),
                    Just("find"),
                    Just("join")
                ],
                inner.clone()
            )
                .prop_map(|(target, function, arg)| format!("dyn({target}.{function}({arg}))")),
            (inner.clone(), prop_oneof![Just("int"), Just("string"), Just("double"), Just("type"), Just("timestamp")])
                .prop_map(|(arg, function)| format!("dyn({function}({arg}))")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("'%s %d'.format([{a}, {b}])")),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,60}") {
        let _ = run(&text);
    }

    #[test]
    fn arbitrary_pieces_do_not_panic(text in pieces()) {
        let _ = run(&text);
    }

    #[test]
    fn arbitrary_expressions_do_not_panic(text in expressions()) {
        let first = run(&text);
        prop_assert_eq!(run(&text), first, "not the same twice: {}", text);
    }
}
