//! YAML text becomes a value.
//!
//! Only the first document is read, as Kubernetes does. Aliases are copied, and what they copy is bounded, so a small
//! text cannot become a large value. Duplicate keys are reported with their line; the last one wins.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Tag};

use super::resolve::{Plain, resolve};
use crate::decode::MAX_DEPTH;
use crate::field::quote;

/// How many values and bytes anchors and aliases may copy.
const MAX_COPIED: usize = 16 << 20;

/// The text is not valid YAML, or cannot be represented in JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

/// Parses the first document. The second part reports duplicate keys, with the message of kube-apiserver: one text for
/// the whole document, or none.
///
/// # Errors
/// When the text is no YAML that JSON could say, or is built to exhaust memory.
pub fn from_yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| error("yaml: invalid UTF-8"))?;
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut tree = Tree::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            event.map_err(|broken| error(format!("yaml: line {}: {}", broken.marker().line(), broken.info())))?;
        if tree.take(event, span.start.line())? {
            break;
        }
    }
    let strict = match tree.duplicates.as_slice() {
        [] => Vec::new(),
        lines => vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))],
    };
    Ok((tree.root, strict))
}

fn error(message: impl Into<String>) -> YamlError {
    YamlError(message.into())
}

/// The values under construction.
#[derive(Default)]
struct Tree {
    root: Value,
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    copied: usize,
    duplicates: Vec<String>,
}

/// A list or mapping that is not complete.
struct Open {
    anchor: usize,
    line: usize,
    node: Node,
}

enum Node {
    List(Vec<Value>),
    /// The mapping, and the key that waits for its value.
    Mapping(Map<String, Value>, Option<Key>),
}

enum Key {
    /// The name, and how a message shows it.
    Name(String, String),
    Merge,
}

impl Tree {
    /// Takes one event; true when the document is complete.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<bool, YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_key() {
                    let key = key(&text, style, tag.as_deref())?;
                    self.set_key(key);
                } else {
                    let value = scalar(text, style, tag.as_deref())?;
                    self.anchor(anchor, &value)?;
                    self.add(value, line)?;
                }
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or_else(|| error("yaml: anchor value contains itself"))?;
                let value = value.clone();
                self.count(&value)?;
                if self.wants_key() {
                    let name = value.as_str().ok_or_else(|| error("yaml: invalid map key"))?.to_owned();
                    let shown = quote(&name);
                    self.set_key(Key::Name(name, shown));
                } else {
                    self.add(value, line)?;
                }
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, line, Node::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _) => self.begin(anchor, line, Node::Mapping(Map::new(), None))?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::DocumentEnd | Event::StreamEnd => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { node: Node::Mapping(_, None), .. }))
    }

    fn set_key(&mut self, key: Key) {
        if let Some(Open { node: Node::Mapping(_, slot), .. }) = self.open.last_mut() {
            *slot = Some(key);
        }
    }

    fn begin(&mut self, anchor: usize, line: usize, node: Node) -> Result<(), YamlError> {
        if self.wants_key() {
            return Err(error("yaml: invalid map key"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(error("yaml: exceeded max depth"));
        }
        self.open.push(Open { anchor, line, node });
        Ok(())
    }

    fn end(&mut self) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.node {
            Node::List(items) => items.into(),
            Node::Mapping(map, _) => map.into(),
        };
        self.anchor(open.anchor, &value)?;
        self.add(value, open.line)
    }

    fn add(&mut self, value: Value, line: usize) -> Result<(), YamlError> {
        match self.open.last_mut() {
            None => self.root = value,
            Some(Open { node: Node::List(items), .. }) => items.push(value),
            Some(Open { node: Node::Mapping(map, key), .. }) => match key.take() {
                Some(Key::Name(name, shown)) => {
                    if map.insert(name, value).is_some() {
                        self.duplicates.push(format!("line {line}: key {shown} already set in map"));
                    }
                }
                _ => merge(map, value)?,
            },
        }
        Ok(())
    }

    fn anchor(&mut self, anchor: usize, value: &Value) -> Result<(), YamlError> {
        if anchor != 0 {
            self.count(value)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(())
    }

    fn count(&mut self, value: &Value) -> Result<(), YamlError> {
        self.copied += weight(value);
        if self.copied > MAX_COPIED {
            return Err(error("yaml: document contains excessive aliasing"));
        }
        if self.open.len() + height(value) > MAX_DEPTH {
            return Err(error("yaml: exceeded max depth"));
        }
        Ok(())
    }
}

/// `<<: *base`, or a list of such; the first of a list wins.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), YamlError> {
    let layers = match value {
        Value::Object(layer) => vec![layer],
        Value::Array(items) => items
            .into_iter()
            .map(|item| if let Value::Object(layer) = item { Some(layer) } else { None })
            .collect::<Option<Vec<_>>>()
            .ok_or_else(want_map)?,
        _ => return Err(want_map()),
    };
    for layer in layers.into_iter().rev() {
        map.extend(layer);
    }
    Ok(())
}

fn want_map() -> YamlError {
    error("yaml: map merge requires map or sequence of maps as the value")
}

fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => 16 + text.len(),
        Value::Array(items) => 16 + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => 16 + map.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>(),
        _ => 16,
    }
}

fn height(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

/// Keys that are no strings become strings.
fn key(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Key, YamlError> {
    if style == ScalarStyle::Plain && text == "<<" && tag.is_none() {
        return Ok(Key::Merge);
    }
    Ok(match scalar(Cow::Borrowed(text), style, tag)? {
        Value::String(name) => {
            let shown = quote(&name);
            Key::Name(name, shown)
        }
        value @ (Value::Bool(_) | Value::Number(_)) => Key::Name(value.to_string(), value.to_string()),
        _ => return Err(error("unsupported map key of type: %!s(<nil>), key: <nil>, value: <nil>")),
    })
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, YamlError> {
    let unsupported = || error(format!("json: unsupported value: {text}"));
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => resolve(&text).into_value(&text).ok_or_else(unsupported),
            _ => Ok(text.into_owned().into()),
        };
    };
    let wanted = tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or(Cow::Borrowed("str"));
    let found = resolve(&text);
    let fits = match (wanted.as_ref(), &found) {
        ("binary", _) => return binary(&text),
        ("null", Plain::Null) | ("bool", Plain::Bool(_)) | ("timestamp", Plain::Timestamp) => true,
        ("int", Plain::Number(number)) => !number.is_f64(),
        ("float", Plain::Number(_)) => true,
        ("null" | "bool" | "int" | "float" | "timestamp", _) => false,
        _ => return Ok(text.into_owned().into()),
    };
    if fits {
        found.into_value(&text).ok_or_else(unsupported)
    } else {
        Err(error(format!("yaml: cannot decode !!str `{text}` as a !!{wanted}")))
    }
}

fn binary(text: &str) -> Result<Value, YamlError> {
    let compact: String = text.split_ascii_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(compact)
        .map_err(|_| error("yaml: !!binary value contains invalid base64 data"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}
