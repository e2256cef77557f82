//! An image layer: unpacked or rejected, and no content makes it write outside of its directory.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Makes the sums of headers right: chance does not, and then nothing would be read.
fn with_sums(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    let mut place = 0;
    while place + 512 <= out.len() {
        let block = &mut out[place..place + 512];
        if block.iter().all(|byte| *byte == 0) {
            break;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        block[154] = 0;
        let digits = std::str::from_utf8(&block[124..135]).unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 8).unwrap_or(0);
        place += 512 + size.div_ceil(512) * 512;
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let home = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let root = home.path().join("a/root");
    std::fs::create_dir_all(&root).expect("made");
    let _ = agent::images::unpack_layer(&with_sums(data)[..], &root);
    let names = |path: &std::path::Path| std::fs::read_dir(path).expect("a folder").count();
    assert_eq!((names(home.path()), names(&home.path().join("a"))), (1, 1), "nothing beside the root");
});
