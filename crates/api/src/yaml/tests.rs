//! What people write, what attackers write, and the way back.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(text: &str) -> Value {
    from_yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")).0
}

fn refused(text: &str) -> String {
    from_yaml(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn a_manifest_is_read() {
    let text = "# a Service\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: {a: 'b', \"c\": d}\n\
                spec:\n  ports:\n  - port: 80\n    name: http\n  - port: 0x50\n---\nkind: Other\n";
    assert_eq!(
        read(text),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations": {"a": "b", "c": "d"}},
            "spec": {"ports": [{"port": 80, "name": "http"}, {"port": 80}]}})
    );
    assert_eq!(read(""), Value::Null);
    assert_eq!(read("{\"a\": [1, 2.5, null]}"), json!({"a": [1, 2.5, null]}));
}

#[test]
fn words_mean_what_they_meant_in_yaml_1_1() {
    for (text, value) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("~", json!(null)),
        ("0777", json!(511)),
        ("0o17", json!(15)),
        ("0b11", json!(3)),
        ("-0x1F", json!(-31)),
        ("1_000", json!(1000)),
        ("08", json!(8)),
        ("80.0", json!(80)),
        ("1e3", json!(1000)),
        (".5", json!(0.5)),
        ("18446744073709551615", json!(u64::MAX)),
        ("2024-01-01", json!("2024-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("12:30", json!("12:30")),
        ("'yes'", json!("yes")),
        ("!!str 12", json!("12")),
        ("!!binary aGk=", json!("hi")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
    ] {
        assert_eq!(read(text), value, "{text}");
    }
    assert_eq!(refused(".inf"), "json: unsupported value: .inf");
    assert_eq!(refused("!!int x"), "yaml: cannot decode !!str `x` as a !!int");
}

#[test]
fn keys_become_strings_and_duplicates_are_told() {
    let (value, strict) = from_yaml(b"1: a\nyes: b\nspec:\n  type: A\n  type: B\n").expect("reads");
    assert_eq!(value, json!({"1": "a", "true": "b", "spec": {"type": "B"}}));
    assert_eq!(strict, ["yaml: unmarshal errors:\n  line 5: key \"type\" already set in map"]);
    assert!(refused("~: a").starts_with("unsupported map key"));
    assert_eq!(refused("? [a]\n: b"), "yaml: invalid map key");
}

#[test]
fn anchors_are_copied_and_merged() {
    assert_eq!(
        read("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  l: 3\nc: *x\n"),
        json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}, "c": {"k": 1, "l": 2}})
    );
    assert_eq!(refused("a: &a [*a]"), "yaml: anchor value contains itself");
    assert_eq!(refused("a:\n  <<: 1"), "yaml: map merge requires map or sequence of maps as the value");
}

#[test]
fn bombs_do_not_go_off() {
    let mut bomb = String::from("a0: &a0 lol\n");
    for level in 1..30 {
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(","));
    }
    assert_eq!(refused(&bomb), "yaml: document contains excessive aliasing");
    let mut tower = String::from("a0: &a0 {}\n");
    for level in 1..300 {
        tower += &format!("a{level}: &a{level} {{x: *a{}}}\n", level - 1);
    }
    assert_eq!(refused(&tower), "yaml: exceeded max depth");
    assert!(from_yaml("[".repeat(100_000).as_bytes()).is_err());
    assert!(from_yaml("- ".repeat(100_000).as_bytes()).is_err());
    assert!(from_yaml(b"a: \xff").is_err());
}

#[test]
fn objects_are_printed_as_kubectl_shows_them() {
    let object = json!({
        "apiVersion": "v1",
        "items": [{"a": 1, "b": [[1, 2], []], "c": {}}, "x"],
        "metadata": {"annotations": {"note": "a\nb\n", "cut": "a\nb", "keep": "\na\n\n"},
            "creationTimestamp": "2024-01-01T00:00:00Z", "labels": null, "name": "yes"},
    });
    let expected = r#"apiVersion: v1
items:
- a: 1
  b:
  - - 1
    - 2
  - []
  c: {}
- x
metadata:
  annotations:
    cut: |-
      a
      b
    keep: |2+

      a

    note: |
      a
      b
  creationTimestamp: "2024-01-01T00:00:00Z"
  labels: null
  name: "yes"
"#;
    assert_eq!(to_yaml(&object), expected);
    assert_eq!(read(expected), object);
}

#[test]
fn strings_are_quoted_when_they_must_be() {
    for (string, printed) in [
        ("", "\"\""),
        ("a b", "a b"),
        ("80", "\"80\""),
        ("1.5", "\"1.5\""),
        ("null", "\"null\""),
        ("12:30", "\"12:30\""),
        ("a: b", "'a: b'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("- a", "'- a'"),
        ("-a", "-a"),
        ("*", "'*'"),
        ("it's", "it's"),
        ("'", "''''"),
        (" a", "' a'"),
        ("a\tb", "\"a\\tb\""),
        ("{\"a\":1}", "'{\"a\":1}'"),
        ("10.96.0.1", "10.96.0.1"),
        ("::1", "::1"),
        ("😀", "\"\\U0001F600\""),
        ("é", "é"),
        ("a \nb", "\"a \\nb\""),
    ] {
        assert_eq!(to_yaml(&json!(string)), format!("{printed}\n"), "{string:?}");
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[-a-z0-9:# .\\n'\"{}\\[\\]|>!&*%@`,?~_é\\t\\r]{0,12}".prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[-a-z0-9: .#\\n]{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(value in tree()) {
        let text = to_yaml(&value);
        let back = from_yaml(text.as_bytes());
        prop_assert_eq!(back, Ok((value, Vec::new())), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[-a-z0-9:# \\n'\"{}\\[\\]|>!&*%?,]{0,60}") {
        let _ = from_yaml(text.as_bytes());
    }
}
