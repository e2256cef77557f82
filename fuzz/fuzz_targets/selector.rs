//! Label and field selectors, and the other options of a list: parsed and evaluated, never a panic.
#![no_main]

use api::{list, selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = common::pick(data) else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (labels, fields) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(selector) = selector::parse(kind, labels, fields) {
        let facts = kind.facts(&common::sample(kind));
        let _ = selector.matches(&facts, "default", "web");
        let _ = selector.with_name("web");
    }
    let query: Vec<(String, String)> =
        text.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if let Ok(options) = list::parse(kind, &query, false) {
        let _ = options.snapshot();
    }
});
