//! A Corefile: understood or refused with a line of the file, never a panic; and reading it again says the same.
#![no_main]

use dns::corefile::{Alone, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let first = parse("Corefile", text, &Alone);
    if let Err(refused) = &first {
        assert!(refused.place.line >= 1 && refused.place.line <= text.lines().count().max(1) + 1, "{refused}");
    }
    let again = parse("Corefile", text, &Alone);
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
});
