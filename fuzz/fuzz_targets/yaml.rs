//! YAML text: what can be read can be written, and reads as the same again.
#![no_main]

use api::yaml::{from_yaml, to_yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((value, _)) = from_yaml(data) else { return };
    let text = to_yaml(&value);
    let (again, repeated) = from_yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!(again, value, "{text}");
    assert!(repeated.is_empty(), "{repeated:?}");
});
