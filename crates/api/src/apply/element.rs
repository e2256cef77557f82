//! One step of a field path: a member, an item of a keyed list, an item of a set.
//!
//! In: names and values of an object, or the keys of a `FieldsV1` object (`f:spec`, `k:{"port":80}`, `v:"a"`, `i:0`).
//! Out: the same keys, the notation that conflicts show (`.spec`, `[port=80]`, `[="a"]`, `[0]`), and an order. Steps
//! borrow from what they were parsed from: a write makes hundreds of them and keeps none.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

use serde_json::{Map, Number, Value};

use crate::field::quote;

/// How a container is left towards one of its parts.
#[derive(Clone, Debug)]
pub(super) enum Element<'a> {
    /// A member of a message or map.
    Field(Cow<'a, str>),
    /// The item of a list with these values in its key fields, sorted by name.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The item of a set with this value.
    Item(Cow<'a, Value>),
    /// The item at this place.
    Index(i64),
}

/// The error for an invalid key of a `FieldsV1` object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unreadable(pub(super) String);

impl<'a> Element<'a> {
    /// A member.
    pub(super) fn field(name: &'a str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    /// The step that a key of a `FieldsV1` object denotes; `None` for unknown kinds of steps.
    pub(super) fn decode(key: &'a str) -> Result<Option<Self>, Unreadable> {
        let unreadable = |why: &str| Unreadable(why.to_owned());
        let (kind, rest) = match (key.get(..1), key.get(1..2), key.get(2..)) {
            (Some(kind), Some(":"), Some(rest)) => (kind, rest),
            _ if key.len() < 2 => return Err(unreadable("key must be 2 characters long:")),
            _ => return Err(Unreadable(format!("missing colon: {key}"))),
        };
        Ok(Some(match kind {
            "f" => Self::field(rest),
            "v" => Self::Item(Cow::Owned(serde_json::from_str(rest).map_err(|error| unreadable(&error.to_string()))?)),
            "k" => {
                let keys: Map<String, Value> =
                    serde_json::from_str(rest).map_err(|error| unreadable(&error.to_string()))?;
                Self::Key(keys.into_iter().map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect())
            }
            "i" => Self::Index(rest.parse().map_err(|_| unreadable("not an index"))?),
            _ => return Ok(None),
        }))
    }

    /// The key in a `FieldsV1` object.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut out = String::with_capacity(name.len() + 2);
                out.push_str("f:");
                out.push_str(name);
                out
            }
            Self::Key(keys) => {
                let mut out = String::from("k:{");
                for (index, (name, value)) in keys.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&json(&Value::from(name.as_ref())));
                    out.push(':');
                    out.push_str(&json(value));
                }
                out.push('}');
                out
            }
            Self::Item(value) => format!("v:{}", json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Item(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Display for Element<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", show(value))?;
                }
                f.write_str("]")
            }
            Self::Item(value) => write!(f, "[={}]", show(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for Element<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => order_members(
                a.iter().map(|(name, value)| (name.as_ref(), value.as_ref())),
                b.iter().map(|(name, value)| (name.as_ref(), value.as_ref())),
            ),
            (Self::Item(a), Self::Item(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element<'_> {}

/// Numbers first, then strings, booleans, lists, objects, null; `80` and `80.0` are the same.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            order_members(a.iter().map(|(k, v)| (k.as_str(), v)), b.iter().map(|(k, v)| (k.as_str(), v)))
        }
        _ => class(a).cmp(&class(b)),
    }
}

/// Whether two values are the same, `80` and `80.0` being so.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    a == b || order(a, b) == Ordering::Equal
}

fn class(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn order_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
    }
}

fn order_members<'v>(
    mut a: impl Iterator<Item = (&'v str, &'v Value)>,
    mut b: impl Iterator<Item = (&'v str, &'v Value)>,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some((a_name, a_value)), Some((b_name, b_value))) => {
                let first = a_name.cmp(b_name).then_with(|| order(a_value, b_value));
                if first.is_ne() {
                    return first;
                }
            }
        }
    }
}

/// JSON as kube-apiserver writes it: `<`, `>` and `&` escaped, whole numbers without a fraction.
pub(super) fn json(value: &Value) -> String {
    let whole = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15);
    if let Some(number) = whole {
        return format!("{number:.0}");
    }
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// A value inside a path.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(key, value)| format!("{key}={}", show(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => json(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_written_and_read_back() {
        for key in
            ["f:spec", "k:{\"port\":80,\"protocol\":\"TCP\"}", "v:\"example.com/a\"", "v:3", "i:4", "f:a:b", "f:"]
        {
            let element = Element::decode(key).expect("readable").expect("known");
            assert_eq!(element.encode(), key);
        }
        assert_eq!(Element::decode("x:new"), Ok(None));
        assert!(Element::decode("f").is_err());
        assert!(Element::decode("spec").is_err());
        assert!(Element::decode("é:a").is_err());
        assert!(Element::decode("k:{\"a\"").is_err());
    }

    #[test]
    fn paths_read_as_in_conflicts() {
        let key = Element::decode("k:{\"port\":80,\"protocol\":\"TCP\"}").expect("readable").expect("known");
        assert_eq!(key.to_string(), "[port=80,protocol=\"TCP\"]");
        assert_eq!(Element::Item(Cow::Owned(json!("a"))).to_string(), "[=\"a\"]");
        assert_eq!(Element::field("spec").to_string(), ".spec");
        assert_eq!(Element::Index(2).to_string(), "[2]");
    }

    #[test]
    fn whole_floats_are_integers() {
        assert!(same(&json!({"a": [80.0]}), &json!({"a": [80]})));
        assert!(!same(&json!(80.5), &json!(80)));
        assert_eq!(Element::Item(Cow::Owned(json!(80.0))).encode(), "v:80");
        assert_eq!(Element::Item(Cow::Owned(json!("<&>"))).encode(), "v:\"\\u003c\\u0026\\u003e\"");
    }
}
