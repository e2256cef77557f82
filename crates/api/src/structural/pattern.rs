//! The regular expression of `pattern`, compiled when a value is first compared with it.

use std::sync::{Arc, OnceLock};

use regex::bytes::Regex;

/// A regular expression, or Go's error message for its text, once one of them is known.
type Compiled = OnceLock<Result<Arc<Regex>, String>>;

/// A regular expression with Go's syntax. Two are equal if their texts are.
#[derive(Clone, Default)]
pub struct Pattern {
    text: String,
    /// Shared by clones; none if it is not kept.
    compiled: Option<Arc<Compiled>>,
}

impl Pattern {
    /// A pattern that is compiled once, or (`keep` is false) for every comparison, which bounds the memory that a
    /// schema with very many patterns takes.
    #[must_use]
    pub fn new(text: &str, keep: bool) -> Self {
        Self { text: text.to_owned(), compiled: keep.then(Arc::default) }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text from the schema.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a part of a text matches.
    ///
    /// # Errors
    /// Go's error message for the pattern.
    pub fn is_match(&self, text: &str) -> Result<bool, String> {
        let regex = match &self.compiled {
            Some(kept) => kept.get_or_init(|| cel::compile_regex(&self.text)).clone()?,
            None => cel::compile_regex(&self.text)?,
        };
        Ok(regex.is_match(text.as_bytes()))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_meaning_that_go_gives_them() {
        for keep in [true, false] {
            let digits = Pattern::new(r"^\d+$", keep);
            assert_eq!(digits.is_match("12"), Ok(true));
            assert_eq!(digits.is_match("١"), Ok(false), "\\d is ASCII");
            assert!(Pattern::new("(", keep).is_match("").is_err());
            assert!(Pattern::new(r"\pL{1000}", keep).is_match("").is_err(), "the size is limited");
        }
    }

    #[test]
    fn patterns_are_compared_by_text() {
        assert_eq!(Pattern::new("a", true), Pattern::new("a", false));
        assert_ne!(Pattern::new("a", true), Pattern::new("b", true));
    }
}
