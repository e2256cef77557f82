//! Continue tokens: an accepted token survives a round trip.
#![no_main]

use api::list::Continue;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(token) = Continue::decode(text) {
            assert_eq!(Continue::decode(&token.encode()).as_ref(), Ok(&token));
        }
        // Tokens of kube-apiserver may begin with a slash; ours do not.
        let token = Continue { version: 7, start: text.trim_start_matches('/').to_owned() };
        if let Ok(read) = Continue::decode(&token.encode()) {
            assert_eq!(read, token);
        }
    }
});
