//! FNV-1a hashes: the same value in every process and version, for names and tags that outlive a process. They do not
//! resist collisions on purpose.

use std::hash::Hasher;

/// The 32-bit hash of the bytes written to it.
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a32(pub u32);

impl Default for Fnv1a32 {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Hasher for Fnv1a32 {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }

    fn finish(&self) -> u64 {
        self.0.into()
    }
}

/// The 32-bit hash of bytes.
#[must_use]
pub fn fnv1a32(bytes: &[u8]) -> u32 {
    let mut hasher = Fnv1a32::default();
    hasher.write(bytes);
    hasher.0
}

/// The 64-bit hash of bytes.
#[must_use]
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A well-mixed 64-bit hash of bytes: FNV-1a, whose high bits are weak, and [`mix`]. The same on all nodes and in all releases.
#[must_use]
pub fn mixed64(bytes: &[u8]) -> u64 {
    mix(fnv1a64(bytes))
}

/// The finalizer of `SplitMix64`: each bit of the result depends on all bits.
#[must_use]
pub const fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_published_test_vectors() {
        for (text, short, long) in [
            ("", 0x811c_9dc5, 0xcbf2_9ce4_8422_2325),
            ("a", 0xe40c_292c, 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0xbf9c_f968, 0x8594_4171_f739_67e8),
        ] {
            assert_eq!((fnv1a32(text.as_bytes()), fnv1a64(text.as_bytes())), (short, long), "{text}");
        }
    }

    #[test]
    fn mixed_hashes_never_change() {
        // Nodes of different releases must agree.
        let hashes = [&b""[..], b"a", b"10.0.0.1:8080"].map(mixed64);
        assert_eq!(hashes, [0xf52a_15e9_a9b5_e89b, 0x02c0_bdbf_4814_20f8, 0xe6be_330c_3d44_a2e2]);
    }
}
