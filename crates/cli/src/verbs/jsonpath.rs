//! JSONPath of kubectl: templates in, text out. Pure.
//!
//! `{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\n"}{end}`, `[?(@.type=="Ready")]`, `..name`, slices, unions, quoted
//! names, escaped dots. Missing values are empty. Values of one expression are separated by a space; strings are printed without quotes,
//! other values as JSON.

mod parse;

use std::fmt::Write as _;

use serde_json::Value;

pub(super) use parse::{expression, template};

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Text(String),
    Path(Path),
    Range(Path, Vec<Self>),
}

/// Steps from a value to others.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The whole document.
    Root,
    /// These members.
    Members(Vec<String>),
    /// These elements: from, to, how many steps at a time.
    Elements(Vec<Slice>),
    /// Every member or element.
    Every,
    /// The value and all below it.
    Below,
    /// Elements for which this is true.
    Where(Box<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    One(i64),
    Range { from: Option<i64>, to: Option<i64>, step: i64 },
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    left: Operand,
    test: Option<(Test, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// Renders a template.
pub(super) fn render(nodes: &[Node], value: &Value) -> String {
    let mut out = String::new();
    write_nodes(nodes, value, value, &mut out);
    out
}

fn write_nodes(nodes: &[Node], root: &Value, here: &Value, out: &mut String) {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Path(path) => {
                let found: Vec<String> = path.find(root, here).into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Node::Range(path, inner) => {
                for item in path.find(root, here) {
                    write_nodes(inner, root, item, out);
                }
            }
        }
    }
}

/// A value as text.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => {
            let mut out = String::new();
            // Writing to a String does not fail.
            let _ = write!(out, "{other}");
            out
        }
    }
}

impl Path {
    /// The values at the path.
    pub(super) fn of<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        self.find(value, value)
    }

    fn find<'v>(&self, root: &'v Value, here: &'v Value) -> Vec<&'v Value> {
        self.0.iter().fold(vec![here], |found, step| {
            let mut out = Vec::new();
            for value in found {
                step.take(root, value, &mut out);
            }
            out
        })
    }
}

impl Step {
    fn take<'v>(&self, root: &'v Value, value: &'v Value, out: &mut Vec<&'v Value>) {
        match self {
            Self::Root => out.push(root),
            Self::Members(names) => out.extend(names.iter().filter_map(|name| value.get(name))),
            Self::Elements(slices) => {
                let Value::Array(items) = value else { return };
                for slice in slices {
                    slice.take(items, out);
                }
            }
            Self::Every => match value {
                Value::Array(items) => out.extend(items),
                Value::Object(map) => out.extend(map.values()),
                _ => {}
            },
            Self::Below => below(value, out),
            Self::Where(condition) => {
                let items: Vec<&Value> = match value {
                    Value::Array(items) => items.iter().collect(),
                    Value::Object(map) => map.values().collect(),
                    _ => Vec::new(),
                };
                out.extend(items.into_iter().filter(|item| condition.holds(root, item)));
            }
        }
    }
}

fn below<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    out.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| below(item, out)),
        Value::Object(map) => map.values().for_each(|item| below(item, out)),
        _ => {}
    }
}

impl Slice {
    fn take<'v>(self, items: &'v [Value], out: &mut Vec<&'v Value>) {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let absolute = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let get = |at: i64| usize::try_from(at).ok().and_then(|at| items.get(at));
        match self {
            Self::One(at) => out.extend(get(absolute(at))),
            Self::Range { from, to, step } => {
                let (mut at, end) = (absolute(from.unwrap_or(0)).max(0), absolute(to.unwrap_or(length)).min(length));
                while at < end {
                    out.extend(get(at));
                    at = at.saturating_add(step.max(1));
                }
            }
        }
    }
}

impl Condition {
    fn holds(&self, root: &Value, item: &Value) -> bool {
        let left = self.left.values(root, item);
        let Some((test, right)) = &self.test else { return !left.is_empty() };
        let right = right.values(root, item);
        match (left.first(), right.first()) {
            (Some(left), Some(right)) => test.holds(left, right),
            _ => false,
        }
    }
}

impl Operand {
    fn values<'v>(&'v self, root: &'v Value, item: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Path(path) => path.find(root, item),
            Self::Literal(value) => vec![value],
        }
    }
}

impl Test {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Value::String(left), Value::String(right)) => left.partial_cmp(right),
            (Value::Bool(left), Value::Bool(right)) => left.partial_cmp(right),
            _ => None,
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Unequal => !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::More => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::MoreOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        json!({"items": [
            {"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}}, "n": 1, "ok": true,
             "conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
            {"metadata": {"name": "b"}, "n": 2, "ok": false, "ports": [80, 443, 8080]}]})
    }

    #[test]
    fn templates_render_as_in_kubectl() {
        for (given, wanted) in [
            ("{.items[*].metadata.name}", "a b"),
            ("{.items[0].metadata.name}", "a"),
            ("{.items[-1].metadata.name}", "b"),
            ("{range .items[*]}{.metadata.name}={.n}{\"\\n\"}{end}", "a=1\nb=2\n"),
            ("{.items[?(@.n>1)].metadata.name}", "b"),
            ("{.items[?(@.ok==true)].metadata.name}", "a"),
            ("{.items[0].conditions[?(@.type==\"Ready\")].status}", "True"),
            ("{.items[0].conditions[?(@.type!='Ready')].status}", "False"),
            ("{.items[?(@.ports)].metadata.name}", "b"),
            ("{.items[1].ports[0:2]}", "80 443"),
            ("{.items[1].ports[::2]}", "80 8080"),
            ("{.items[1].ports[0,2]}", "80 8080"),
            ("{..name}", "a b"),
            ("{.items[0].metadata.labels.app\\.kubernetes\\.io/name}", "x"),
            ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "x"),
            ("{.items[0].metadata['name','labels']}", "a {\"app.kubernetes.io/name\":\"x\"}"),
            ("{$.items[1].metadata}", "{\"name\":\"b\"}"),
            ("{.nothing.here}", ""),
            ("plain {.items[0].n} text", "plain 1 text"),
            ("{.items[*]['n']}", "1 2"),
        ] {
            let nodes = template(given).unwrap_or_else(|error| panic!("{given}: {error}"));
            assert_eq!(render(&nodes, &sample()), wanted, "{given}");
        }
    }

    #[test]
    fn relaxed_expressions_need_no_braces() {
        for given in ["{.items[0].n}", ".items[0].n", "items[0].n"] {
            assert_eq!(expression(given).expect(given).of(&sample()), [&json!(1)], "{given}");
        }
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for given in ["{.a", "{.a[}", "{range .items[*]}{.n}", "{end}", "{.a[?(@.b==)]}", "{\"open}", "{.a[x]}"] {
            assert!(template(given).is_err(), "{given}");
        }
    }
}
