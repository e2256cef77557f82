//! Corefile parser.
//!
//! In: the text of a Corefile and an [`Environment`] for imports and variables. Out: a [`Config`], or the first error
//! with its line and a hint. Nothing unsupported is ignored silently, because a partly ignored configuration gives
//! wrong answers.
//!
//! text → [`lex`] tokens → [`expand`] snippets and imports → [`blocks`] → one parser per directive.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::config::Config;

mod blocks;
mod cache;
mod directives;
mod expand;
mod forward;
mod kubernetes;
mod lex;
mod rewrite;
mod rules;
#[cfg(test)]
mod tests;
mod values;

/// External values a Corefile refers to.
pub trait Environment {
    /// Environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Files that an `import` pattern matches: path and text of each.
    ///
    /// # Errors
    /// When they cannot be read.
    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, ImportError>;
}

/// Why the files of an `import` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The environment has no files.
    #[error("files are not available")]
    Unavailable,
    /// The environment has no file of this name.
    #[error("no such file")]
    NotFound,
    /// The name is a pattern.
    #[error("glob patterns are not supported; name each file")]
    Glob,
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// No variables and no files.
#[derive(Clone, Copy, Default, Debug)]
pub struct EmptyEnvironment;

impl Environment for EmptyEnvironment {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn files(&self, _: &str) -> Result<Vec<(String, String)>, ImportError> {
        Err(ImportError::Unavailable)
    }
}

impl Environment for HashMap<String, String> {
    /// Variables and files by name, for tests.
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }

    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, ImportError> {
        self.get(pattern).map(|text| vec![(pattern.to_owned(), text.clone())]).ok_or(ImportError::NotFound)
    }
}

/// Position in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// File name.
    pub file: Arc<str>,
    /// Line, starting at 1.
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Parse error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{position}: {problem}; {hint}")]
pub struct ParseError {
    /// Position.
    pub position: Position,
    /// What is wrong.
    pub problem: String,
    /// How to fix it.
    pub hint: String,
}

/// Parses a Corefile; `file` is its name in errors.
///
/// # Errors
/// The first error found.
pub fn parse(file: &str, text: &str, environment: &dyn Environment) -> Result<Config, ParseError> {
    let tokens = lex::tokens(file, text, environment)?;
    let tokens = expand::expand(tokens, environment)?;
    let blocks = blocks::blocks(&tokens)?;
    let blocks = blocks.iter().map(directives::block).collect::<Result<Vec<_>, _>>()?;
    directives::check_together(file, &blocks)?;
    Ok(Config { blocks })
}
