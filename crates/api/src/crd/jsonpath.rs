//! JSONPath as in kubectl: fields, wildcards, recursive descent, indices, slices, unions and filters.
//!
//! In: a path like `.status.conditions[?(@.type=="Ready")].status`, parsed once ([`JsonPath::parse`]), and an object. Out:
//! the values it leads to. A missing field leads nowhere; an index out of bounds, or a filter that compares what cannot be
//! compared, makes the whole search fail.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPath {
    /// The texts and the expressions in braces, in order.
    parts: Vec<Vec<Node>>,
}

/// One step of a path.
#[derive(Clone, PartialEq, Debug)]
enum Node {
    /// A literal, which replaces the current values.
    Literal(Value),
    /// A text outside of braces or in quotes.
    Text(String),
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Self>>),
    Filter(Filter),
    /// A keyword like `range`, which columns do not use.
    Identifier,
}

/// `[start:end:step]`; `[n]` is the slice from n to the element after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    /// The end was not written, but follows from the start.
    is_index: bool,
    step: Option<i64>,
}

#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Vec<Node>,
    right: Vec<Node>,
    /// `exists`, or a comparison.
    operator: String,
}

/// Values on the way: parts of the object, or literals.
type Values<'v> = Vec<Cow<'v, Value>>;

impl JsonPath {
    /// Parses the inside of a path in braces: `.spec.size`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(path: &str) -> Result<Self, String> {
        parse::template(&format!("{{{path}}}")).map(|parts| Self { parts })
    }

    /// The first value that the path leads to; `None` if there is none, or the search fails.
    #[must_use]
    pub fn first<'v>(&self, object: &'v Value) -> Option<Cow<'v, Value>> {
        let mut first = None;
        for (index, part) in self.parts.iter().enumerate() {
            let found = walk(part, vec![Cow::Borrowed(object)]).ok()?;
            if index == 0 {
                first = found.into_iter().next();
            }
        }
        first
    }
}

/// Follows steps. When one fails, the values are given back that kube-apiserver has at hand then.
fn walk<'v>(nodes: &[Node], mut values: Values<'v>) -> Result<Values<'v>, Values<'v>> {
    for node in nodes {
        values = step(node, values)?;
    }
    Ok(values)
}

fn step<'v>(node: &Node, values: Values<'v>) -> Result<Values<'v>, Values<'v>> {
    match node {
        Node::Text(text) => Ok(vec![Cow::Owned(text.as_str().into())]),
        Node::Literal(value) => Ok(values.iter().map(|_| Cow::Owned(value.clone())).collect()),
        Node::Field(name) => Ok(values.into_iter().filter_map(|value| member(value, name)).collect()),
        Node::Wildcard => Ok(values.into_iter().flat_map(children).collect()),
        Node::Recursive => Ok(values.into_iter().flat_map(descendants).collect()),
        Node::Slice(slice) => {
            let mut out = Vec::new();
            for value in &values {
                match slice.of(value) {
                    Some(Some(mut found)) => out.append(&mut found),
                    Some(None) => return Ok(out),
                    None => return Err(values),
                }
            }
            Ok(out)
        }
        Node::Union(paths) => {
            let mut out = Vec::new();
            for path in paths {
                match walk(path, values.clone()) {
                    Ok(mut found) => out.append(&mut found),
                    Err(_) => return Err(values),
                }
            }
            Ok(out)
        }
        Node::Filter(filter) => filter.apply(values),
        Node::Identifier => Err(values),
    }
}

fn member<'v>(value: Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.as_object()?.get(name).cloned().map(Cow::Owned),
    }
}

/// The members of a map or the elements of a list.
fn children(value: Cow<'_, Value>) -> Values<'_> {
    match value {
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// A value and everything below it, as far as it has parts.
fn descendants(value: Cow<'_, Value>) -> Values<'_> {
    let is_text = value.as_str().is_some_and(|text| !text.is_empty());
    let parts = children(value.clone());
    if parts.is_empty() && !is_text {
        return Vec::new();
    }
    let mut out = vec![value];
    out.extend(parts.into_iter().flat_map(descendants));
    out
}

impl Slice {
    /// The elements of a list; `Some(None)` for a slice of none, which ends the search, and `None` when it fails.
    fn of<'v>(self, value: &Cow<'v, Value>) -> Option<Option<Values<'v>>> {
        if value.is_null() {
            return Some(Some(Vec::new()));
        }
        let length = i64::try_from(value.as_array()?.len()).ok()?;
        let mut start = self.start.unwrap_or(0);
        if start < 0 {
            start += length;
        }
        let mut end = self.end.unwrap_or(length);
        if end < 0 || (end == 0 && self.is_index) {
            end += length;
        }
        if start == end {
            return Some(None);
        }
        let is_inside = (0..length).contains(&start) && (0..=length).contains(&end) && start <= end;
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0);
        if !is_inside {
            return None;
        }
        let (skip, take) = (usize::try_from(start).ok()?, usize::try_from(end - start).ok()?);
        Some(Some(children(value.clone()).into_iter().skip(skip).take(take).step_by(step?).collect()))
    }
}

impl Filter {
    fn apply<'v>(&self, values: Values<'v>) -> Result<Values<'v>, Values<'v>> {
        let mut out: Values<'v> = Vec::new();
        for value in &values {
            if !value.is_array() {
                return Err(values);
            }
            for item in children(value.clone()) {
                match self.takes(&item) {
                    Some(true) => out.push(item),
                    Some(false) => {}
                    None => return Err(values),
                }
            }
        }
        Ok(out)
    }

    /// Whether an element passes; `None` when that is undefined.
    fn takes(&self, item: &Value) -> Option<bool> {
        let left = walk(&self.left, vec![Cow::Borrowed(item)]);
        if self.operator == "exists" {
            return Some(!left.unwrap_or_else(|values| values).is_empty());
        }
        let left = left.ok()?;
        if left.is_empty() {
            return Some(false);
        }
        let right = if left.len() == 1 { walk(&self.right, vec![Cow::Borrowed(item)]).ok()? } else { return None };
        match (left.as_slice(), right.as_slice()) {
            (_, []) => Some(false),
            ([left], [right]) => compare(&self.operator, left, right),
            _ => None,
        }
    }
}

/// Compares two scalars of one type.
fn compare(operator: &str, left: &Value, right: &Value) -> Option<bool> {
    let ordering = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => {
            return match operator {
                "==" => Some(left == right),
                "!=" => Some(left != right),
                _ => None,
            };
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
            }
        }
        _ => return None,
    };
    Some(match operator {
        "==" => ordering == Ordering::Equal,
        "!=" => ordering != Ordering::Equal,
        "<" => ordering == Ordering::Less,
        "<=" => ordering != Ordering::Greater,
        ">" => ordering == Ordering::Greater,
        ">=" => ordering != Ordering::Less,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn first(path: &str) -> Value {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "dotted"}},
            "spec": {"size": 3, "ratio": 1.5, "none": null, "list": ["a", "b", "c"], "on": true,
                "conds": [{"type": "X", "n": 1, "status": "A"}, {"type": "Ready", "n": 2, "status": "True"}, {"n": 3}]},
        });
        match JsonPath::parse(path) {
            Ok(path) => path.first(&object).map_or_else(|| json!("nothing"), Cow::into_owned),
            Err(why) => json!(format!("error: {why}")),
        }
    }

    #[test]
    fn paths_lead_to_values() {
        for (path, wanted) in [
            (".spec.size", json!(3)),
            (".spec.none", json!(null)),
            (".spec.none.x", json!("nothing")),
            (".spec.missing", json!("nothing")),
            (".spec.size.x", json!("nothing")),
            (".spec.list[0]", json!("a")),
            (".spec.list[-1]", json!("c")),
            (".spec.list[1:]", json!("b")),
            (".spec.list[-2:]", json!("b")),
            (".spec.list[:2]", json!("a")),
            (".spec.list[1:3:2]", json!("b")),
            (".spec.list[5]", json!("nothing")),
            (".spec.list[1:1]", json!("nothing")),
            (".spec.list[2,0]", json!("c")),
            (".spec.list[*]", json!("a")),
            (".spec.conds[*].type", json!("X")),
            (".spec.conds[*].n", json!(1)),
            ("..status", json!("A")),
            (".spec['size','on']", json!(3)),
            ("['spec']['size']", json!(3)),
            (".metadata.annotations.a\\.b/c", json!("dotted")),
        ] {
            assert_eq!(first(path), wanted, "{path}");
        }
    }

    #[test]
    fn filters_compare_values_of_one_type() {
        for (path, wanted) in [
            (".spec.conds[?(@.type==\"Ready\")].status", json!("True")),
            (".spec.conds[?(@.type=='Ready')].status", json!("True")),
            (".spec.conds[?(@.type!='X')].status", json!("True")),
            (".spec.conds[?(@.n>1)].type", json!("Ready")),
            (".spec.conds[?(@.n >= 3)].n", json!(3)),
            (".spec.conds[?(@.status)].type", json!("X")),
            (".spec.conds[?(@.missing)].type", json!("nothing")),
            (".spec.conds[?(@.n==\"1\")].type", json!("nothing")),
            (".spec.conds[?(@.n<1.5)].type", json!("nothing")),
            (".spec.list[?(@==\"b\")]", json!("b")),
            (".spec.size[?(@.x)]", json!("nothing")),
        ] {
            assert_eq!(first(path), wanted, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for (path, why) in [
            (".spec[", "unterminated array"),
            (".spec[a]", "invalid array index a"),
            (".spec[?(@.a", "unterminated filter"),
            (".spec#", "nothing"),
            ("....", "invalid multiple recursive descent"),
            (".spec[?(@.a)", "unclosed array expect ]"),
        ] {
            let wanted = if why == "nothing" { json!(why) } else { json!(format!("error: {why}")) };
            assert_eq!(first(path), wanted, "{path}");
        }
    }
}
