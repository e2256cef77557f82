//! Strings that are borrowed from input or shared.

use std::fmt;
use std::sync::Arc;

use base64::Engine;

/// A string: borrowed or shared.
#[derive(Clone)]
pub enum Str<'a> {
    /// Part of the input.
    Borrowed(&'a str),
    /// Made by the expression.
    Shared(Arc<str>),
}

impl Str<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }

    /// Number of code points.
    #[must_use]
    pub fn len_chars(&self) -> usize {
        self.as_str().chars().count()
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<'a> From<&'a str> for Str<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl From<String> for Str<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl From<Arc<str>> for Str<'_> {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

/// The bytes of a text in base64, with padding.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
