//! Rewrites of the Host header and the path.

use std::borrow::Cow;

use api::view::gateway_api::UrlRewrite;

use super::BadValue;
use super::paths::PathChange;
use super::redirect::hostname;

/// Changes of the Host header and the path.
#[derive(Debug)]
pub struct Rewrite {
    /// The new Host header.
    pub hostname: Option<Box<str>>,
    path: Option<PathChange>,
}

impl Rewrite {
    pub(super) fn new(given: &UrlRewrite) -> Result<Self, BadValue> {
        Ok(Self {
            hostname: given.hostname.as_deref().map(|host| hostname("urlRewrite.hostname", host)).transpose()?,
            path: given.path.as_ref().map(PathChange::new).transpose()?,
        })
    }

    /// The path for the backend, without query; `prefix` is the one that matched. It is never empty.
    #[must_use]
    pub fn path<'a>(&'a self, path: &'a str, prefix: Option<&str>) -> Cow<'a, str> {
        match &self.path {
            Some(change) => change.apply(path, prefix),
            None if path.is_empty() => Cow::Borrowed("/"),
            None => Cow::Borrowed(path),
        }
    }
}
