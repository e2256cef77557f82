//! Lists and watches: query parameters flow in, checked [`ListOptions`] flow out.
//!
//! The checks run in the order of kube-apiserver, because a request may be wrong in several ways: numbers, selectors,
//! the options among each other (422), the fields of the kind, and last the continue token and the resource version.

#[cfg(test)]
mod tests;
mod token;

pub use self::token::Continue;

use crate::field::{Errors, Path, quote};
use crate::kind::Kind;
use crate::options::{Query, first, parse_int, parse_uint, refuse, truth};
use crate::selector::{self, Selector};
use crate::status::Status;

/// The options of a list, a watch or a delete of a collection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListOptions {
    /// Which objects.
    pub selector: Selector,
    /// A watch, not a list.
    pub watch: bool,
    /// The watch may send bookmarks.
    pub bookmarks: bool,
    /// `resourceVersion`; `None` when it is not given, and also `Some(0)` means "any".
    pub version: Option<u64>,
    /// How the version is meant.
    pub version_match: VersionMatch,
    /// When the watch ends, in seconds.
    pub timeout_seconds: Option<i64>,
    /// Maximum number of items; 0 is no limit.
    pub limit: usize,
    /// Where to go on.
    pub start: Option<Continue>,
    /// The watch starts with the objects there are. Watches from version 0 or none do so even when it is not requested.
    pub initial_events: Option<bool>,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VersionMatch {
    /// Not given.
    #[default]
    Unset,
    /// This version.
    Exact,
    /// This version or a later one.
    NotOlderThan,
}

/// The state of the store that a list shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Snapshot {
    /// The latest.
    Latest,
    /// Any; the latest will do.
    Any,
    /// This version or a later one; wait for it if it has not happened.
    NotOlderThan(u64),
    /// Exactly this version.
    Exact(u64),
}

/// Parses the options of a list or a watch of `kind`. `watch_path` is set for the deprecated paths below `/watch/`,
/// which watch regardless of the query.
///
/// # Errors
/// 400, 422, or 500 for the version of a watch, with the messages of kube-apiserver.
pub fn parse(kind: &Kind, query: &Query, watch_path: bool) -> Result<ListOptions, Status> {
    let number = |name| first(query, name).map(parse_int).transpose().map_err(Status::bad_request);
    let text = |name| first(query, name).unwrap_or_default();
    let timeout_seconds = number("timeoutSeconds")?;
    let limit = number("limit")?.unwrap_or_default();
    let selectors = selector::read(text("labelSelector"), text("fieldSelector"))?;

    let watch = first(query, "watch").is_some_and(truth);
    let version = text("resourceVersion");
    let mut word = text("resourceVersionMatch");
    let mut initial_events = first(query, "sendInitialEvents").map(truth);
    if watch && initial_events.is_none() && word.is_empty() && matches!(version, "" | "0") {
        initial_events = Some(true);
        word = "NotOlderThan";
    }
    let start = text("continue");
    let check = if watch { check_watch } else { check_list };
    let mut errors = Errors::default();
    check(word, version, !start.is_empty(), initial_events.is_some(), &mut errors);
    refuse("ListOptions", &errors)?;
    let selector = selectors.resolve(kind)?;

    let watch = watch || watch_path;
    let start = if watch || start.is_empty() { None } else { Some(Continue::decode(start)?) };
    if start.is_some() && !matches!(version, "" | "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(ListOptions {
        selector,
        watch,
        bookmarks: first(query, "allowWatchBookmarks").is_some_and(truth),
        version: parse_version(version).map_err(|words| {
            if watch { Status::raw(words) } else { Status::bad_request(format!("invalid resource version: {words}")) }
        })?,
        version_match: match word {
            "Exact" => VersionMatch::Exact,
            "NotOlderThan" => VersionMatch::NotOlderThan,
            _ => VersionMatch::Unset,
        },
        timeout_seconds,
        limit: usize::try_from(limit).unwrap_or_default(),
        start,
        initial_events,
    })
}

/// The version in the query of a GET.
///
/// # Errors
/// 500 with the message of kube-apiserver, when it is not a number.
pub fn get_version(query: &Query) -> Result<Option<u64>, Status> {
    parse_version(first(query, "resourceVersion").unwrap_or_default()).map_err(Status::raw)
}

fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why| format!("resourceVersion: Invalid value: {}: {why}", quote(text));
    parse_uint(text).map(Some).map_err(wrong)
}

const MATCH: Path<'static> = Path::Root("resourceVersionMatch");

fn check_list(word: &str, version: &str, continued: bool, initial: bool, errors: &mut Errors) {
    if !word.is_empty() {
        if version.is_empty() {
            errors.forbidden(&MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if continued {
            errors.forbidden(&MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(word, "Exact" | "NotOlderThan") {
            errors.not_supported(&MATCH, word, &["Exact", "NotOlderThan", ""]);
        }
        if word == "Exact" && version == "0" {
            errors.forbidden(&MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if initial {
        errors.forbidden(&Path::Root("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
}

fn check_watch(word: &str, _version: &str, continued: bool, initial: bool, errors: &mut Errors) {
    if initial && word != "NotOlderThan" {
        errors.forbidden(&MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if word.is_empty() {
        return;
    }
    if !initial {
        errors.forbidden(&MATCH, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if word != "NotOlderThan" {
        errors.not_supported(&MATCH, word, &["NotOlderThan"]);
    }
    if continued {
        errors.forbidden(&MATCH, "resourceVersionMatch is forbidden when continue is provided");
    }
}

impl ListOptions {
    /// Which state a list shows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        if let Some(start) = &self.start {
            return u64::try_from(start.version).map_or(Snapshot::Latest, Snapshot::Exact);
        }
        match (self.version, self.version_match) {
            (None, _) => Snapshot::Latest,
            (Some(version), VersionMatch::Exact) => Snapshot::Exact(version),
            (Some(0), _) => Snapshot::Any,
            (Some(version), VersionMatch::Unset) if self.limit > 0 => Snapshot::Exact(version),
            (Some(version), _) => Snapshot::NotOlderThan(version),
        }
    }
}
