//! JSON patch: a list of operations, applied in order; the first failure fails all.
//!
//! Own code, not the `json-patch` crate: the library behind Kubernetes departs from RFC 6902 in ways clients can see.
//! `replace` of a missing member adds it, `copy` of a missing member adds null, indices may be negative or carry a
//! sign, and what is before the first slash of a path is ignored. The whole document can be replaced or
//! tested, but not added, moved or removed.

use std::borrow::Cow;

use serde_json::Value;

use super::{PatchError, mismatch};

/// More operations are refused.
pub(super) const MAX_OPERATIONS: usize = 10_000;

/// What all `copy` operations of a patch together may add, in bytes of JSON.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// How deep a result may nest: as deep as what a body may bring.
const MAX_DEPTH: usize = 128;

/// How far the estimate of the depth may run before the document is measured again.
const DEPTH_SLACK: usize = 4 * MAX_DEPTH;

/// The object after all operations.
pub(super) fn apply(object: &Value, patch: &Value, checked: bool) -> Result<Value, PatchError> {
    let operations = operations(patch, checked)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let mut document = Document { root: object.clone(), depth: depth(object), copied: 0 };
    for operation in operations {
        document.carry_out(operation).map_err(PatchError::Unprocessable)?;
    }
    if document.depth > MAX_DEPTH && depth(&document.root) > MAX_DEPTH {
        return Err(PatchError::Unprocessable("too deep"));
    }
    Ok(document.root)
}

fn operations(patch: &Value, checked: bool) -> Result<&[Value], PatchError> {
    let (prefix, list, item) = if checked {
        ("error decoding patch: ", "[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    } else {
        ("", "jsonpatch.Patch", "jsonpatch.Operation")
    };
    let malformed =
        |value: &Value, target: String| PatchError::Malformed(format!("{prefix}{}", mismatch(value, &target)));
    let operations = match patch {
        Value::Null => return Ok(&[]),
        Value::Array(operations) => operations,
        other => return Err(malformed(other, format!("value of type {list}"))),
    };
    for operation in operations {
        if !matches!(operation, Value::Object(_) | Value::Null) {
            return Err(malformed(operation, format!("value of type {item}")));
        }
        for name in ["op", "path", "from"] {
            match operation.get(name) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) if checked => {
                    return Err(malformed(other, format!("struct field jsonPatchOp.{name} of type string")));
                }
                Some(_) => {}
            }
        }
    }
    Ok(operations)
}

type Outcome = Result<(), &'static str>;

struct Document {
    root: Value,
    /// No less than the depth of `root`.
    depth: usize,
    copied: usize,
}

impl Document {
    fn carry_out(&mut self, operation: &Value) -> Outcome {
        let text = |name| operation.get(name).and_then(Value::as_str);
        let path = text("path").ok_or("no path");
        let value = operation.get("value");
        match text("op").ok_or("no operation")? {
            "add" => self.add(path?, value.cloned().unwrap_or_default()),
            "remove" => remove(&mut self.root, path?).map(drop),
            "replace" => self.replace(path?, value),
            "move" => {
                let from = text("from").ok_or("no source")?;
                let value = remove(&mut self.root, from)?;
                self.insert(path?, value, self.depth.saturating_sub(segments(from)))
            }
            "copy" => {
                let from = text("from").ok_or("no source")?;
                let value = get(&mut self.root, from)?.map_or(Value::Null, |value| value.clone());
                self.copied += if value.is_null() { 0 } else { json_size(&value) };
                if self.copied > MAX_COPIED {
                    return Err("copies too much");
                }
                self.insert(path?, value, self.depth.saturating_sub(segments(from)))
            }
            "test" => self.test(path?, value.unwrap_or(&Value::Null)),
            _ => Err("unknown operation"),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Outcome {
        let depth = depth(&value);
        self.insert(path, value, depth)
    }

    /// Puts a value of at most this depth at a path.
    fn insert(&mut self, path: &str, value: Value, depth: usize) -> Outcome {
        self.deepen(segments(path), &value, depth)?;
        let (place, key) = parent(&mut self.root, path).ok_or("missing path")?;
        match place {
            Value::Object(map) => {
                map.insert(key.into_owned(), value);
            }
            Value::Array(items) if key == "-" => items.push(value),
            Value::Array(items) => {
                let at = index(&key, items.len() + 1).ok_or("invalid index")?;
                items.insert(at, value);
            }
            _ => return Err("missing path"),
        }
        Ok(())
    }

    fn replace(&mut self, path: &str, value: Option<&Value>) -> Outcome {
        let value = value.cloned().unwrap_or_default();
        let depth = depth(&value);
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("the document must be an object or a list");
            }
            self.root = value;
            self.depth = depth;
            return Ok(());
        }
        self.deepen(segments(path), &value, depth)?;
        let (place, key) = parent(&mut self.root, path).ok_or("missing path")?;
        match place {
            Value::Object(map) => {
                map.insert(key.into_owned(), value);
            }
            Value::Array(items) => {
                let at = index(&key, items.len()).ok_or("invalid index")?;
                items[at] = value;
            }
            _ => return Err("missing path"),
        }
        Ok(())
    }

    fn test(&mut self, path: &str, value: &Value) -> Outcome {
        let have = if path.is_empty() { Some(&mut self.root) } else { get(&mut self.root, path)? };
        if have.as_deref().unwrap_or(&Value::Null) == value { Ok(()) } else { Err("test failed") }
    }

    /// Moves can nest a document without bound. Measuring it each time would be slow, so an upper bound is kept, and
    /// the document is measured only when that has run far.
    fn deepen(&mut self, keys: usize, value: &Value, depth_of_value: usize) -> Outcome {
        self.depth = self.depth.max(keys + depth_of_value);
        if self.depth > DEPTH_SLACK {
            self.depth = depth(&self.root).max(keys + depth(value));
            if self.depth > MAX_DEPTH {
                return Err("too deep");
            }
        }
        Ok(())
    }
}

/// How many keys a path has.
fn segments(path: &str) -> usize {
    path.matches('/').count()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The container that a path's last key belongs to, and that key.
fn parent<'d, 'p>(root: &'d mut Value, path: &'p str) -> Option<(&'d mut Value, Cow<'p, str>)> {
    let (way, last) = path.rsplit_once('/')?;
    let mut here = root;
    for key in way.split('/').skip(1) {
        here = child(here, &unescape(key)).ok().flatten()?;
    }
    (here.is_object() || here.is_array()).then(|| (here, unescape(last)))
}

fn child<'d>(place: &'d mut Value, key: &str) -> Result<Option<&'d mut Value>, &'static str> {
    match place {
        Value::Object(map) => Ok(map.get_mut(key)),
        Value::Array(items) => index(key, items.len()).map(|at| Some(&mut items[at])).ok_or("invalid index"),
        _ => Ok(None),
    }
}

fn get<'d>(root: &'d mut Value, path: &str) -> Result<Option<&'d mut Value>, &'static str> {
    let (place, key) = parent(root, path).ok_or("missing path")?;
    child(place, &key)
}

fn remove(root: &mut Value, path: &str) -> Result<Value, &'static str> {
    let (place, key) = parent(root, path).ok_or("missing path")?;
    match place {
        Value::Object(map) => map.remove(key.as_ref()).ok_or("missing key"),
        Value::Array(items) => index(&key, items.len()).map(|at| items.remove(at)).ok_or("invalid index"),
        _ => Err("missing path"),
    }
}

/// The position of an index in a list of this length; negative ones count from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    let number: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let at = if number < 0 { number.checked_add(length)? } else { number };
    usize::try_from(at).ok().filter(|_| at < length)
}

/// `~1` is a slash and `~0` a tilde, in one pass.
fn unescape(key: &str) -> Cow<'_, str> {
    if !key.contains('~') {
        return Cow::Borrowed(key);
    }
    let mut out = String::with_capacity(key.len());
    let mut rest = key;
    while let Some((before, after)) = rest.split_once('~') {
        out.push_str(before);
        let (mark, tail) = match after.as_bytes().first() {
            Some(b'1') => ('/', &after[1..]),
            Some(b'0') => ('~', &after[1..]),
            _ => ('~', after),
        };
        out.push(mark);
        rest = tail;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The bytes a value takes as JSON.
fn json_size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and a value is always JSON.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
