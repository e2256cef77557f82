//! A Corefile: parsed or rejected with a line number, never a panic; and parsing it again gives the same result.
#![no_main]

use dns::corefile::{EmptyEnvironment, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let first = parse("Corefile", text, &EmptyEnvironment);
    if let Err(error) = &first {
        assert!(error.position.line >= 1 && error.position.line <= text.lines().count().max(1) + 1, "{error}");
    }
    let again = parse("Corefile", text, &EmptyEnvironment);
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
});
