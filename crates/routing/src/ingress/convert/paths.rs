//! Paths and rewrites. Regular expressions that mean a prefix become one, because only prefixes can be replaced.

use serde_json::{Value, json};

use crate::policy::PathRewrite;

/// A condition on the path, and the rewrite of it.
pub(super) struct Converted {
    /// The condition; none when the one of the rule holds.
    pub(super) path: Option<Value>,
    /// The filter; none when the path stays as it is.
    pub(super) filter: Option<Value>,
}

/// A rewrite as a filter; none when there is no equivalent.
pub(super) fn rewrite(rewrite: &PathRewrite) -> Option<Converted> {
    let (pattern, target) = (rewrite.pattern.source(), rewrite.target.source());
    let filter = |modifier: Value| Some(json!({"type": "URLRewrite", "urlRewrite": {"path": modifier}}));
    if let Some((prefix, new)) = prefixes(pattern, target) {
        let path = json!({"type": "PathPrefix", "value": if prefix.is_empty() { "/" } else { prefix }});
        let new = if new.is_empty() { "/" } else { new };
        let modifier = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": new});
        let is_same = prefix.trim_end_matches('/') == new.trim_end_matches('/');
        return Some(Converted { path: Some(path), filter: if is_same { None } else { filter(modifier) } });
    }
    let full = rewrite.target.as_text().filter(|text| text.starts_with('/') && !text.contains('?'))?;
    Some(Converted { path: None, filter: filter(json!({"type": "ReplaceFullPath", "replaceFullPath": full})) })
}

/// The old and the new prefix of a rewrite that keeps the rest: `/a(/|$)(.*)` and `/b/$2`, `/a/(.*)` and `/b/$1`.
fn prefixes<'a>(pattern: &'a str, target: &'a str) -> Option<(&'a str, &'a str)> {
    let forms = [("(/|$)(.*)", "$2"), ("/(.*)", "$1"), ("/?(.*)", "$1"), ("/(.+)", "$1")];
    forms.into_iter().find_map(|(rest, capture)| {
        let prefix = pattern.strip_suffix(rest).filter(|prefix| is_literal(prefix))?;
        let new = target.strip_suffix(capture)?;
        let new = new.strip_suffix('/').unwrap_or(new);
        is_literal(new).then_some((prefix, new))
    })
}

fn is_literal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_~.".contains(&byte))
}
