//! Memory that the allocator keeps, released to the kernel when the program no longer needs it.
//!
//! In: the resident set size of this process, read at intervals. Out: calls of the allocator, which keeps freed memory for later and releases it only while it
//! is used: after the lists of many clients, a server that becomes idle would stay at several times the memory of its objects.

use std::time::Duration;

/// How often the size is read.
const INTERVAL: Duration = Duration::from_secs(3);
/// Growth since the last release that is worth another, in bytes …
const GROWTH: u64 = 8 << 20;
/// … and as a part of the size after the last release: a fifth.
const PART: u64 = 5;
/// A size that grew by less than this since it was last read no longer grows.
const STEADY: u64 = 1 << 20;

/// Decides when memory is released. Sizes are in bytes.
#[derive(Default)]
struct Policy {
    /// The size after the last release.
    floor: u64,
    /// The size when it was last read.
    last: u64,
}

impl Policy {
    /// Whether memory is to be released now: it grew much since the last release, and no longer grows. Under constant load: every second time.
    fn wants_release(&mut self, size: u64) -> bool {
        let is_steady = size < self.last + STEADY;
        self.last = size;
        is_steady && size >= self.floor + GROWTH.max(self.floor / PART)
    }

    fn released(&mut self, size: u64) {
        *self = Self { floor: size, last: size };
    }
}

/// Releases memory for as long as the future is polled; ends where the size cannot be read.
pub(super) async fn follow() {
    let mut policy = Policy::default();
    while let Some(size) = resident() {
        if policy.wants_release(size) {
            // It takes milliseconds. A panic in it is impossible, and would not end the program.
            let _ = tokio::task::spawn_blocking(kernel::memory::release).await;
            let after = resident().unwrap_or(size);
            tracing::debug!(before = size, after, "released memory");
            policy.released(after);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The resident set size of this process in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// When memory is released, by the sizes that are read; after a release it is the second of a pair.
    fn releases(sizes: &[(u64, u64)]) -> Vec<usize> {
        let mut policy = Policy::default();
        let mut out = Vec::new();
        for (at, (size, after)) in sizes.iter().enumerate() {
            if policy.wants_release(size * MIB) {
                policy.released(after * MIB);
                out.push(at);
            }
        }
        out
    }

    #[test]
    fn memory_is_released_when_growth_has_ended() {
        let same = |size: u64| (size, size);
        // A start, an idle time, large lists, and an idle time again.
        let day =
            [same(30), (34, 30), same(30), same(30), same(33), same(90), same(175), (175, 120), same(120), same(120)];
        assert_eq!(releases(&day), [2, 7]);
        let start = [same(0), same(30), (30, 24), same(24), same(24)];
        assert_eq!(releases(&start), [2]);
        // Objects that stay: once for each fifth.
        let growth: Vec<(u64, u64)> = (100..200).map(same).flat_map(|size| [size, size]).collect();
        assert!((3..=6).contains(&releases(&growth).len()), "{:?}", releases(&growth));
        // Load that needs the same memory again and again.
        let load: Vec<(u64, u64)> = (0..10).flat_map(|_| [(200, 100), (200, 100)]).collect();
        assert_eq!(releases(&load).len(), 10);
    }

    #[test]
    fn the_size_of_this_process_can_be_read() {
        let size = resident().expect("/proc");
        assert!((MIB..64 << 30).contains(&size), "{size}");
    }
}
