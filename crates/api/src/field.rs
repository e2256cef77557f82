//! Field errors: a path, what is wrong with the value there, and the message of Kubernetes for it.
//!
//! In: checks of the kinds. Out: an [`Errors`] list that [`crate::status`] turns into a 422 Status.
//! A [`Path`] is a chain on the stack, written out only when there is something to complain about.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use serde_json::Value;

/// The path of a value: `spec.ports[0].name`, `metadata.annotations[key]`.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The first element.
    Root(&'a str),
    /// A member.
    Child(&'a Self, &'a str),
    /// An element of a list.
    Index(&'a Self, usize),
    /// An entry of a map.
    Key(&'a Self, &'a str),
}

impl<'a> Path<'a> {
    /// The member `name` of this.
    #[must_use]
    pub fn child(&'a self, name: &'a str) -> Self {
        Path::Child(self, name)
    }

    /// The element `index` of this list.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Path::Index(self, index)
    }

    /// The entry `key` of this map.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Path::Key(self, key)
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(name) => f.write_str(name),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldError {
    /// `FieldValueInvalid` and its like.
    pub reason: &'static str,
    /// The path, written out.
    pub field: String,
    /// Everything after the path: `Invalid value: 80: …`.
    pub body: String,
}

impl Display for FieldError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

/// Field errors in the order they were found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Errors(pub Vec<FieldError>);

impl Errors {
    /// Whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, reason: &'static str, path: &Path<'_>, body: String) {
        self.0.push(FieldError { reason, field: path.to_string(), body });
    }

    /// A value must be given.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        let body = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.push("FieldValueRequired", path, body);
    }

    /// A value is not acceptable.
    pub fn invalid<'v>(&mut self, path: &Path<'_>, value: impl Into<Bad<'v>>, detail: &str) {
        self.push("FieldValueInvalid", path, format!("Invalid value: {}: {detail}", value.into()));
    }

    /// A duplicate value.
    pub fn duplicate<'v>(&mut self, path: &Path<'_>, value: impl Into<Bad<'v>>) {
        self.push("FieldValueDuplicate", path, format!("Duplicate value: {}", value.into()));
    }

    /// A value is not one of the known ones.
    pub fn not_supported<'v>(&mut self, path: &Path<'_>, value: impl Into<Bad<'v>>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|word| quote(word)).collect();
        let body = format!("Unsupported value: {}: supported values: {}", value.into(), list.join(", "));
        self.push("FieldValueNotSupported", path, body);
    }

    /// A value may not be given here.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push("FieldValueForbidden", path, format!("Forbidden: {detail}"));
    }

    /// A value has too many bytes.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        self.push("FieldValueTooLong", path, format!("Too long: may not be more than {max} bytes"));
    }

    /// A list has too many items.
    pub fn too_many(&mut self, path: &Path<'_>, have: usize, max: usize) {
        self.push("FieldValueTooMany", path, format!("Too many: {have}: must have at most {max} items"));
    }

    /// `e1`, or `[e1, e2]` with repetitions left out.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut lines: Vec<String> = Vec::with_capacity(self.0.len());
        for error in &self.0 {
            let line = error.to_string();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        if lines.len() == 1 { lines.remove(0) } else { format!("[{}]", lines.join(", ")) }
    }
}

/// An offending value, printed as Kubernetes prints it: numbers bare, strings quoted, the rest as JSON.
#[derive(Clone, Debug)]
pub enum Bad<'v> {
    /// A number.
    Int(i64),
    /// A string.
    Text(Cow<'v, str>),
    /// Anything else.
    Json(Cow<'v, Value>),
}

impl Display for Bad<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Int(number) => write!(f, "{number}"),
            Bad::Text(text) => f.write_str(&quote(text)),
            Bad::Json(value) => match value.as_ref() {
                Value::String(text) => f.write_str(&quote(text)),
                other => write!(f, "{other}"),
            },
        }
    }
}

impl From<i64> for Bad<'_> {
    fn from(number: i64) -> Self {
        Bad::Int(number)
    }
}

impl<'v> From<&'v str> for Bad<'v> {
    fn from(text: &'v str) -> Self {
        Bad::Text(text.into())
    }
}

impl From<String> for Bad<'_> {
    fn from(text: String) -> Self {
        Bad::Text(text.into())
    }
}

impl<'v> From<&'v Value> for Bad<'v> {
    fn from(value: &'v Value) -> Self {
        Bad::Json(Cow::Borrowed(value))
    }
}

impl From<Value> for Bad<'_> {
    fn from(value: Value) -> Self {
        Bad::Json(Cow::Owned(value))
    }
}

/// A string as Go's `%q` writes it.
#[must_use]
pub fn quote(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_errors_are_said_once() {
        let spec = Path::Root("spec");
        let ports = spec.child("ports");
        let first = ports.index(0);
        let mut errors = Errors::default();
        errors.invalid(&first.child("port"), 0, "must be between 1 and 65535, inclusive");
        errors.invalid(&first.child("port"), 0, "must be between 1 and 65535, inclusive");
        assert_eq!(errors.summary(), "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive");
        assert_eq!(errors.0.len(), 2);
    }

    #[test]
    fn strings_are_quoted_as_go_does() {
        assert_eq!(quote("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\n\\x01é\"");
    }
}
