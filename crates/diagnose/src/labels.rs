//! Labels and selectors as sorted pairs.

use crate::words::shorten;

/// A key and its value.
pub(crate) type Label = (Box<str>, Box<str>);

/// Labels that a Pod must have, or has; sorted by key.
pub type Selector = [(Box<str>, Box<str>)];

/// How long the text of a selector may be.
const LONGEST: usize = 300;

/// `app=web,tier=front`, as kubectl takes it.
pub(crate) fn written(selector: &Selector) -> String {
    let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

/// `app=web,tier=front`, for sentences: of at most 300 bytes.
#[must_use]
pub fn selector_text(selector: &Selector) -> String {
    shorten(written(selector), LONGEST)
}

/// The value of a label.
pub(crate) fn label<'a>(labels: &'a Selector, key: &str) -> Option<&'a str> {
    labels.iter().find(|(have, _)| **have == *key).map(|(_, value)| &**value)
}

/// Whether labels match a selector; an empty selector matches nothing.
pub(crate) fn selects(selector: &Selector, labels: &Selector) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| label(labels, key) == Some(value))
}
