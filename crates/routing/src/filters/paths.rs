//! Changes of the path, for redirects and rewrites.

use std::borrow::Cow;

use api::view::gateway_api::{PathModifier, PathModifierKind};

use super::BadValue;

/// A change of the path. Replacements are encoded: they have no characters that end a path.
#[derive(Debug)]
pub(super) enum PathChange {
    Full(Box<str>),
    /// Without `/` at its end.
    Prefix(Box<str>),
}

impl PathChange {
    pub(super) fn new(given: &PathModifier) -> Result<Self, BadValue> {
        match given.kind {
            PathModifierKind::ReplaceFullPath => {
                Ok(Self::Full(encode(given.replace_full_path.as_deref().unwrap_or("/"))))
            }
            PathModifierKind::ReplacePrefixMatch => {
                let prefix = encode(given.replace_prefix_match.as_deref().unwrap_or("/"));
                Ok(Self::Prefix(prefix.trim_end_matches('/').into()))
            }
            PathModifierKind::Unknown => Err(BadValue {
                field: "path.type",
                value: "".into(),
                reason: "use ReplaceFullPath or ReplacePrefixMatch",
            }),
        }
    }

    /// The new path; `prefix` is the one that matched. It is never empty.
    pub(super) fn apply<'a>(&'a self, path: &'a str, prefix: Option<&str>) -> Cow<'a, str> {
        match self {
            Self::Full(path) => Cow::Borrowed(path),
            Self::Prefix(replacement) => {
                let prefix = prefix.unwrap_or("/").trim_end_matches('/');
                let rest = path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                match (rest, &**replacement) {
                    // `*` of OPTIONS, or a path that another filter has replaced: there is no such prefix.
                    (None, _) => Cow::Borrowed(path),
                    (Some(""), "") => Cow::Borrowed("/"),
                    (Some(rest), "") => Cow::Borrowed(rest),
                    (Some(""), replacement) => Cow::Borrowed(replacement),
                    (Some(rest), replacement) => Cow::Owned(format!("{replacement}{rest}")),
                }
            }
        }
    }
}

/// A path that begins with `/`, with all characters percent-encoded that cannot be in a path.
fn encode(path: &str) -> Box<str> {
    let mut encoded = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        encoded.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~'
                if !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'?' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') =>
            {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded.into()
}
