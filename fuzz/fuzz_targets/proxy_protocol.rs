//! The start of a connection from a proxy: a PROXY header is found at the same place however the bytes are divided, and it
//! is limited in length.
#![no_main]

use gateway::proxy_protocol::{Parsed, parse};
use libfuzzer_sys::fuzz_target;

/// The longest header in bytes.
const LONGEST: usize = 16 + 4096;

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    assert!(data.len() < LONGEST || whole != Ok(Parsed::Incomplete), "no end");
    // What is certain after some bytes stays so.
    let certain = (0..=data.len().min(LONGEST)).map(|end| (end, parse(&data[..end])));
    let first = certain.into_iter().find(|(_, parsed)| *parsed != Ok(Parsed::Incomplete));
    match first {
        Some((end, parsed)) => {
            assert_eq!(parsed, whole);
            if let Ok(Parsed::Complete { length, .. }) = parsed {
                assert_eq!(length, end, "a header is complete with its last byte");
            }
        }
        None => assert_eq!(whole, Ok(Parsed::Incomplete)),
    }
});
