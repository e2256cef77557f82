//! Answers of the kernel: nftables, connection tracking, addresses. Read, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kernel::fuzz::replies(data));
