use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::field::Errors;
use crate::kind::{Rules, Selectable};
use crate::table::Table;
use crate::value::ValueExt as _;

struct NoRules;

impl Rules for NoRules {
    fn validate_create(&self, _object: &Value, _errors: &mut Errors) {}
    fn validate_update(&self, _new: &Value, _old: &Value, _errors: &mut Errors) {}
}

static NO_TABLE: Table = Table { columns: &[], row: |_, _| Vec::new(), conditions: |_| Vec::new() };

/// A kind with nothing but names and fields.
pub(crate) const fn kind(group: &'static str, kind: &'static str, selectable: &'static [Selectable]) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        schema: "core.Service",
        table: "",
        verbs: &[],
        subresources: &[],
        create_on_update: false,
        unconditional_update: false,
        delete_returns_object: false,
        generation: false,
        ttl: None,
        selectable,
        table_view: &NO_TABLE,
        rules: &NoRules,
    }
}

pub(crate) static SERVICE: Kind = kind(
    "",
    "Service",
    &[
        Selectable { label: "spec.clusterIP", value: |object| object.text("spec.clusterIP").to_owned() },
        Selectable { label: "spec.type", value: |object| object.text("spec.type").to_owned() },
    ],
);
static SLICE: Kind = kind("discovery.k8s.io", "EndpointSlice", &[]);
static NODE: Kind = kind("", "Node", &[]);
static POD: Kind =
    kind("", "Pod", &[Selectable { label: "spec.nodeName", value: |object| object.text("spec.nodeName").to_owned() }]);

fn facts(labels: &[(&str, &str)], fields: &[&str]) -> Facts {
    Facts {
        labels: labels.iter().map(|(key, value)| (Box::from(*key), Box::from(*value))).collect(),
        fields: fields.iter().map(|value| Box::from(*value)).collect(),
    }
}

fn by_label(selector: &str, labels: &[(&str, &str)]) -> bool {
    parse(&SERVICE, selector, "").expect("parses").matches(&facts(labels, &[]), "", "")
}

fn by_field(selector: &str) -> bool {
    let facts = facts(&[], &["10.0.0.1", "ClusterIP"]);
    parse(&SERVICE, "", selector).expect("parses").matches(&facts, "ns", "web")
}

fn words(kind: &Kind, label: &str, field: &str) -> String {
    let status = parse(kind, label, field).expect_err("fails");
    assert_eq!((status.code, status.reason), (400, Some("BadRequest")));
    status.message
}

#[test]
fn labels_are_compared() {
    let labels = &[("app", "x"), ("tier", "5")];
    for yes in [
        "",
        "app=x",
        "app==x",
        "app = x",
        "app!=y",
        "none!=x",
        "app in (x, z)",
        "app notin (y)",
        "none notin (y)",
        "app",
        "!none",
        "tier>4",
        "tier<6",
        "app=x,tier=5",
        "tier in (5,),!none",
        "app,tier",
        " app ",
    ] {
        assert!(by_label(yes, labels), "{yes}");
    }
    for no in [
        "app=y",
        "app=",
        "app!=x",
        "none=x",
        "app in (y)",
        "app in ()",
        "app notin (x)",
        "none",
        "!app",
        "tier>5",
        "app>1",
        "none<1",
    ] {
        assert!(!by_label(no, labels), "{no}");
    }
    assert!(by_label("e in (,a)", &[("e", "")]));
    assert!(by_label("in in (in,notin)", &[("in", "notin")]));
    assert!(by_label("a=", &[("a", "")]));
}

#[test]
fn label_selectors_fail_in_the_words_of_the_original() {
    let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    assert!(
        words(&SERVICE, "-a=b", "")
            .starts_with(&format!("unable to parse requirement: <nil>: Invalid value: \"-a\": name part {name}"))
    );
    assert!(words(&SERVICE, "a=-b", "").starts_with(
        "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty string or consist"
    ));
    for (selector, message) in [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("a=!", "unable to parse requirement: found '!', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(words(&SERVICE, selector, ""), message, "{selector}");
    }
}

#[test]
fn fields_are_compared() {
    for yes in [
        "",
        "metadata.name=web",
        "metadata.name==web,metadata.namespace=ns",
        "spec.type!=NodePort",
        "spec.clusterIP=10.0.0.1",
        ",spec.type=ClusterIP,",
    ] {
        assert!(by_field(yes), "{yes}");
    }
    for no in ["metadata.name=", "metadata.name!=web", "spec.type=", "spec.type=ClusterIP,metadata.name=x"] {
        assert!(!by_field(no), "{no}");
    }
    let escaped = parse(&SERVICE, "", r"spec.type=a\,b\=c\\").expect("parses");
    assert!(escaped.matches(&facts(&[], &["", r"a,b=c\"]), "", ""));
}

#[test]
fn field_selectors_fail_in_the_words_of_the_original() {
    assert_eq!(words(&SERVICE, "", "x"), "invalid selector: 'x'; can't understand 'x'");
    assert_eq!(words(&SERVICE, "", "b=1,a"), "invalid selector: 'b=1,a'; can't understand 'a'");
    assert_eq!(words(&SERVICE, "", "a=b=c"), "invalid field selector: unescaped character in value: 61");
    assert_eq!(words(&SERVICE, "", r"a=\x"), r"invalid field selector: invalid escape sequence: \x");
    assert_eq!(words(&SERVICE, "", r"a=b\"), r"invalid field selector: invalid escape sequence: \");
    assert_eq!(words(&SERVICE, "", "spec.foo=x"), "field label not supported: spec.foo");
    assert_eq!(words(&NODE, "", "metadata.namespace=x"), "field label not supported: metadata.namespace");
    assert_eq!(
        words(&SLICE, "", "addressType=IPv4"),
        "\"addressType\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert!(parse(&SLICE, "", "metadata.namespace=x").is_ok());
    assert_eq!(parse(&POD, "", "spec.host=n1"), parse(&POD, "", "spec.nodeName=n1"));
}

#[test]
fn names_can_be_looked_up() {
    let selector = parse(&SERVICE, "", "metadata.name=web,spec.type!=x").expect("parses");
    assert_eq!(selector.name_requirement(), Some("web"));
    assert_eq!(selector.clone().with_name("web"), Ok(selector.clone()));
    let other = selector.with_name("other").expect_err("fails").message;
    assert_eq!(other, "fieldSelector metadata.name doesn't match requested name");
    let everything = Selector::default();
    assert!(everything.is_everything() && everything.name_requirement().is_none());
    assert_eq!(everything.with_name("a"), parse(&SERVICE, "", "metadata.name=a"));
    assert_eq!(parse(&SERVICE, "", "metadata.name!=a").expect("parses").name_requirement(), None);
}

proptest! {
    #[test]
    fn no_selector_panics(label in ".*", field in ".*") {
        let _ = parse(&SERVICE, &label, &field);
    }

    #[test]
    fn no_pile_of_tokens_panics(parts in prop::collection::vec("a|in|notin|=|==|!|!=|\\(|\\)|,|<|>|1| |\\\\", 0..12)) {
        let text = parts.concat();
        if let Ok(selector) = parse(&SERVICE, &text, "") {
            let _ = selector.matches(&facts(&[("a", "1")], &["", ""]), "ns", "n");
        }
        let _ = parse(&SERVICE, "", &text);
    }
}
