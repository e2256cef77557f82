//! Bytes cut anywhere become the same lines, items and objects.

use serde_json::{Value, json};

use super::super::slim::slim;
use super::super::split::{Items, Lines, SplitError};

#[test]
fn lines_are_whole_wherever_they_are_cut() {
    let text = b"{\"a\":1}\n\n  \r\n{\"b\":\"\\n\"}\r\nhalf";
    for size in 1..=text.len() {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in text.chunks(size) {
            lines.push(piece);
            while let Some(line) = lines.next().expect("lines") {
                out.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
        }
        assert_eq!(out, ["{\"a\":1}", "{\"b\":\"\\n\"}"], "cut at {size}");
        assert!(lines.is_within());
    }
}

#[test]
fn a_line_without_end_is_refused() {
    let mut lines = Lines::default();
    let piece = vec![b'x'; 1 << 20];
    let refused = (0..40).find_map(|_| {
        lines.push(&piece);
        lines.next().err()
    });
    assert_eq!(refused, Some(SplitError::TooLarge));
}

fn items_of(text: &[u8], size: usize) -> (Vec<Value>, Value) {
    let (mut items, mut out) = (Items::default(), Vec::new());
    for piece in text.chunks(size) {
        for item in items.push(piece).expect("a list") {
            out.push(serde_json::from_slice(&item).expect("an item"));
        }
    }
    (out, serde_json::from_slice(&items.rest()).expect("the rest"))
}

#[test]
fn items_are_whole_wherever_they_are_cut() {
    let list = json!({
        "apiVersion": "v1", "items-of": ["not", {"these": []}], "kind": "items", "x": {"items": [{"nor": "these"}]},
        "items": [{"metadata": {"name": "}]{[\"\\"}}, {}, {"items": [{"items": []}]}],
        "metadata": {"resourceVersion": "7", "continue": "]\\\"["},
    });
    let mut rest = list.clone();
    rest["items"] = json!([]);
    for text in [list.to_string(), serde_json::to_string_pretty(&list).expect("text")] {
        for size in [1, 2, 3, 7, 64, text.len()] {
            let (items, left) = items_of(text.as_bytes(), size);
            assert_eq!(Value::Array(items), list["items"], "cut at {size}");
            assert_eq!(left, rest, "cut at {size}");
        }
    }
}

#[test]
fn lists_without_items_are_lists() {
    for list in [json!({"items": null, "metadata": {}}), json!({"metadata": {}}), json!({"items": []})] {
        assert_eq!(items_of(list.to_string().as_bytes(), 5), (Vec::new(), list));
    }
    assert_eq!(Items::default().push(b"{\"items\":[1]}"), Err(SplitError::NotObjects));
    assert_eq!(Items::default().push(b"{\"items\":[\"{}\"]}"), Err(SplitError::NotObjects));
}

#[test]
fn an_object_becomes_its_stored_form() {
    let sent = json!({
        "kind": "Service", "apiVersion": "v1", "spec": {"b": [1, 2.50, "\u{e9}\"\\"], "a": null},
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": "12", "uid": "u",
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}], "labels": {"managedFields": "kept"}},
        "status": {"managedFields": "kept", "resourceVersion": "kept"},
    });
    let slim = slim(sent.to_string().as_bytes()).expect("JSON").expect("an object");
    assert_eq!((&*slim.object.namespace, &*slim.object.name, &*slim.revision), ("n", "a", "12"));
    let mut wanted = sent;
    let metadata = wanted["metadata"].as_object_mut().expect("metadata");
    metadata.remove("managedFields");
    assert_eq!(api::object::encode(&wanted), slim.object.value);
}

#[test]
fn numbers_and_order_are_left_alone() {
    let sent = br#"{"spec":{"z":1e400,"a":10000000000000000000000}, "metadata": {"name":"x"} ,"kind":"K"}"#;
    let slim = slim(sent).expect("JSON").expect("an object");
    let wanted = r#"{"metadata":{"name":"x"},"spec":{"z":1e400,"a":10000000000000000000000}}"#;
    assert_eq!(slim.object.value, wanted);
    assert_eq!(slim.revision, "");
}

#[test]
fn what_is_no_object_is_not_taken_for_one() {
    for text in ["", "[]", "{\"metadata\":[]}", "{\"metadata\":{\"name\":1}}", "{\"metadata\":{\"name\":\"a\"}", "null"]
    {
        assert!(slim(text.as_bytes()).is_err(), "{text}");
    }
    for text in ["{}", "{\"metadata\":{}}", "{\"metadata\":{\"name\":\"\"}}"] {
        assert!(slim(text.as_bytes()).expect("JSON").is_none(), "{text}");
    }
}
