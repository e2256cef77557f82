//! Selectors in objects: `matchLabels` and `matchExpressions`, or a plain map of labels.
//!
//! In: the JSON of a LabelSelector. Out: the same [`Selector`] that texts give, and the text by which people know it.

use serde_json::Value;

use super::Selector;
use super::labels::Requirement;
use crate::value::ValueExt as _;

/// The selector of an object; none when one of its expressions means nothing.
#[must_use]
pub fn from_object(selector: &Value) -> Option<Selector> {
    let mut all = equalities(selector.at("matchLabels"));
    all.extend(requirements(selector.items("matchExpressions"))?);
    Some(Selector { labels: all, fields: Vec::new() })
}

/// The selector that a plain map of labels is.
#[must_use]
pub fn from_map(map: &Value) -> Selector {
    Selector { labels: equalities(map), fields: Vec::new() }
}

/// The selector of a list of `{key, operator, values}`; none when one of them means nothing.
#[must_use]
pub fn from_requirements(list: &[Value]) -> Option<Selector> {
    Some(Selector { labels: requirements(list)?, fields: Vec::new() })
}

fn requirements(list: &[Value]) -> Option<Vec<Requirement>> {
    let read = |one: &Value| {
        let values = one.texts("values").into_iter().map(Box::from).collect();
        Requirement::new(one.text("key"), one.text("operator"), values)
    };
    list.iter().map(read).collect()
}

fn equalities(map: &Value) -> Vec<Requirement> {
    let pairs = map.as_object().into_iter().flatten();
    let equal =
        |(key, value): (&String, &Value)| Requirement::new(key, "In", vec![value.as_str().unwrap_or_default().into()]);
    pairs.filter_map(equal).collect()
}

/// The selector of an object as a text that [`super::parse`] reads, sorted by key.
#[must_use]
pub fn text(selector: &Value) -> String {
    let labels = selector.map("matchLabels").into_iter().flatten();
    let mut all: Vec<(&str, String)> = labels
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .chain(selector.items("matchExpressions").iter().map(|one| (one.text("key"), expression(one))))
        .collect();
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

fn expression(one: &Value) -> String {
    let key = one.text("key");
    let mut values = one.texts("values");
    values.sort_unstable();
    match one.text("operator") {
        "In" => format!("{key} in ({})", values.join(",")),
        "NotIn" => format!("{key} notin ({})", values.join(",")),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::Facts;

    fn facts(labels: &[(&str, &str)]) -> Facts {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Facts { labels, fields: Box::default() }
    }

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let object = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "old", "operator": "DoesNotExist"},
            ],
        });
        let selector = from_object(&object).expect("a selector");
        assert!(selector.matches(&facts(&[("app", "web"), ("tier", "a")]), "", ""));
        assert!(!selector.matches(&facts(&[("app", "web"), ("tier", "c")]), "", ""));
        assert!(!selector.matches(&facts(&[("app", "web"), ("old", ""), ("tier", "a")]), "", ""));
        assert_eq!(text(&object), "app=web,!old,tier in (a,b)");
    }

    #[test]
    fn what_means_nothing_selects_nothing() {
        for bad in [json!({"key": "a", "operator": "In"}), json!({"key": "a", "operator": "Like", "values": ["b"]})] {
            assert_eq!(from_object(&json!({"matchExpressions": [bad]})), None);
        }
        assert!(from_object(&json!({})).is_some_and(|selector| selector.is_everything()));
        assert_eq!(text(&json!({})), "");
    }
}
