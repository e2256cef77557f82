//! What clients of exec, attach and port-forward send: however it is cut, it means the same, and little of it is held.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| agent::streams::cut::fuzz(data));
