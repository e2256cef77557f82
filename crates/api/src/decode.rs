//! Decodes JSON into typed values.
//!
//! In: the bytes of a request, or a value that a patch or YAML made. Out: a value that has exactly the fields and types
//! of its schema, and the warnings of strict decoding (unknown and duplicate fields, in the order of the document). The
//! schema is applied while the bytes are parsed: only then are order and duplicates known, and nothing is built that is
//! dropped later.
//!
//! Two kinds of errors are distinguished as in kube-apiserver: text that is no JSON ([`JsonError`]), and JSON of the
//! wrong shape ([`TypeError`]).

mod gotype;
mod prune;
pub(crate) mod scalar;
mod syntax;
mod untyped;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::{DeserializeSeed as _, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::field::FieldError;
use crate::schema::TypeId;

pub(crate) use gotype::alternative;
pub use prune::prune;

/// How deep values may nest; as deep as the JSON parser goes.
pub const MAX_DEPTH: usize = 127;

/// How deep values that are skipped may nest, as in kube-apiserver.
const SKIPPED_DEPTH: usize = 10_000;

/// The text is no JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

/// The JSON has the wrong shape.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(String);

impl From<FieldError> for TypeError {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}

/// Why bytes did not become an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// No JSON.
    #[error(transparent)]
    Syntax(#[from] JsonError),
    /// JSON of the wrong shape.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// An object and the warnings of strict decoding.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// The object, without unknown fields and nulls.
    pub value: Value,
    /// `unknown field "spec.foo"`, `duplicate field "spec.type"`, in the order of the document.
    pub strict: Vec<String>,
}

/// The `apiVersion` and `kind` of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeMeta {
    /// `discovery.k8s.io/v1`; empty when absent.
    pub api_version: String,
    /// `EndpointSlice`; empty when absent.
    pub kind: String,
}

/// Reads which kind a document claims to be; the whole document is checked for syntax.
///
/// # Errors
/// The text behind `couldn't get version/kind; json parse error: `.
pub fn find_kind(bytes: &[u8]) -> Result<TypeMeta, JsonError> {
    check_depth(bytes)?;
    let text = text(bytes);
    let mut parser = serde_json::Deserializer::from_str(&text);
    let header = parser.deserialize_any(HeaderVisitor).and_then(|header| parser.end().map(|()| header));
    header.map_err(|error| syntax_error(&text, &error))?.map_err(JsonError)
}

/// Decodes a document as this type.
///
/// # Errors
/// When the document is no JSON, or does not fit the type.
pub fn decode_json(ty: TypeId, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = text(bytes);
    let mut walk = walk::Walk::default();
    let mut parser = serde_json::Deserializer::from_str(&text);
    let value = walk.root(ty).deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    match (walk.finish(), value) {
        (Err(error), _) => Err(TypeError(error).into()),
        (Ok(_), Err(error)) => Err(syntax_error(&text, &error).into()),
        (Ok(strict), Ok(value)) => Ok(Decoded { value, strict }),
    }
}

/// Checks a value against this type: drops unknown fields and nulls, brings scalars into their canonical form and
/// returns the unknown fields (`unknown field "spec.foo"`). After an error the value is null.
///
/// # Errors
/// When the value does not fit the type.
pub fn check(ty: TypeId, value: &mut Value) -> Result<Vec<String>, TypeError> {
    let mut walk = walk::Walk::default();
    let checked = walk.root(ty).deserialize(value.take());
    let strict = walk.finish().map_err(TypeError)?;
    *value = checked.map_err(|error| TypeError(error.to_string()))?;
    Ok(strict)
}

/// Parses any JSON, such as a patch. The second part lists fields that were given more than once (`duplicate field
/// "spec.type"`); the last one wins.
///
/// # Errors
/// When the text is no JSON.
pub fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), JsonError> {
    let text = text(bytes);
    let mut state = untyped::State::default();
    let mut parser = serde_json::Deserializer::from_str(&text);
    let value = untyped::Seed(&mut state).deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    Ok((value.map_err(|error| syntax_error(&text, &error))?, state.duplicates))
}

/// Values that are skipped are never built, so the parser's own limit does not see how deep they go.
fn check_depth(bytes: &[u8]) -> Result<(), JsonError> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > SKIPPED_DEPTH {
            return Err(JsonError("exceeded max depth".to_owned()));
        }
    }
    Ok(())
}

/// kube-apiserver decodes invalid UTF-8 as replacement characters.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn syntax_error(text: &str, error: &serde_json::Error) -> JsonError {
    if error.to_string().starts_with("recursion limit") {
        return JsonError("exceeded max depth".to_owned());
    }
    // The parsers disagree only about lone surrogates and numbers beyond float64.
    JsonError(syntax::explain(text).unwrap_or_else(|| error.to_string()))
}

/// Reads `kind` and `apiVersion` and skips the rest; the inner error is one of shape.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Result<TypeMeta, String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut meta = TypeMeta::default();
        let mut wrong = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let slot = match key.as_ref() {
                "kind" => &mut meta.kind,
                "apiVersion" => &mut meta.api_version,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            match map.next_value::<Value>()? {
                Value::String(text) => *slot = text,
                Value::Null => {}
                other => {
                    let what = scalar::kind_of(&other);
                    wrong.get_or_insert(format!(
                        "json: cannot unmarshal {what} into Go struct field .{key} of type string"
                    ));
                }
            }
        }
        Ok(wrong.map_or(Ok(meta), Err))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Ok(TypeMeta::default()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(no_header("array"))
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(no_header("bool"))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(no_header("number"))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(no_header("number"))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(no_header("number"))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(no_header("string"))
    }
}

fn no_header(what: &str) -> Result<TypeMeta, String> {
    Err(format!(
        "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    ))
}

/// What stops a walk early; the reason is stored separately.
fn stop<E: serde::de::Error>() -> E {
    E::custom("stopped")
}
