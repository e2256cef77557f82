//! A Corefile becomes our configuration.
//!
//! In: the text of a Corefile, and whoever reads imported files and the environment. Out: a [`Config`], or the first thing that
//! is not understood, with its line and what to do about it. Nothing is skipped in silence: a server that quietly
//! ignores half of its configuration answers wrongly, and nobody sees why.
//!
//! text → [`lex`] tokens → [`expand`] snippets and imports → [`blocks`] keys, directives, their bodies → one reader per directive.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use crate::config::Config;

mod blocks;
mod cache;
mod directives;
mod expand;
mod forward;
mod kubernetes;
mod lex;
mod read;
mod rewrite;
mod rules;
#[cfg(test)]
mod tests;

/// What a Corefile may refer to.
pub trait Surroundings {
    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
    /// The files a pattern of `import` names: path and text of each.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, String>;
}

/// Nothing to refer to: no variables, no files.
#[derive(Clone, Copy, Default, Debug)]
pub struct Alone;

impl Surroundings for Alone {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn files(&self, _: &str) -> Result<Vec<(String, String)>, String> {
        Err("no files can be read here".into())
    }
}

impl Surroundings for HashMap<String, String> {
    /// Variables and files by name, for tests and embedded use.
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }

    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        self.get(pattern).map(|text| vec![(pattern.to_owned(), text.clone())]).ok_or_else(|| "no such file".into())
    }
}

/// Where something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: Rc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something that is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}; {next}")]
pub struct Refused {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// Reads a Corefile; `file` is its name in messages.
///
/// # Errors
/// The first thing that is not understood.
pub fn parse(file: &str, text: &str, surroundings: &dyn Surroundings) -> Result<Config, Refused> {
    let tokens = lex::tokens(file, text, surroundings)?;
    let tokens = expand::expand(tokens, surroundings)?;
    let blocks = blocks::blocks(&tokens)?;
    let blocks = blocks.iter().map(directives::block).collect::<Result<Vec<_>, _>>()?;
    directives::check_together(file, &blocks)?;
    Ok(Config { blocks })
}
