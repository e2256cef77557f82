//! What a proxy costs the machine: its memory and processor time, those of the programs it runs included.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;

use crate::subject::{Memory, parse_stat, parse_status};

/// The interval at which memory is sampled.
const LOOK: Duration = Duration::from_millis(50);

/// The memory of one process.
///
/// # Errors
/// When it has ended.
pub fn memory(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse_status(&text).with_context(|| format!("{path} does not tell the memory"))
}

/// The processor time of a process and of its children that have ended.
///
/// # Errors
/// When it has ended.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse_stat(&text, 4).with_context(|| format!("{path} does not tell the processor time"))
}

/// Whether a process runs other programs.
#[must_use]
pub fn has_children(pid: u32) -> bool {
    !children(pid).is_empty()
}

/// Samples the memory of a process and its children continuously.
pub struct Peak {
    most: Arc<AtomicU64>,
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peak {
    /// Starts sampling.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(pid: u32) -> anyhow::Result<Self> {
        let (most, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("memory".to_owned()).spawn({
            let (most, enough) = (Arc::clone(&most), Arc::clone(&enough));
            move || {
                while !enough.load(Ordering::Relaxed) {
                    most.fetch_max(together(pid), Ordering::Relaxed);
                    std::thread::park_timeout(LOOK);
                }
            }
        })?;
        Ok(Self { most, enough, thread: Some(thread) })
    }

    /// The most so far, in bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Children come and go; one that has just gone counts as nothing.
fn together(pid: u32) -> u64 {
    let resident = |pid| memory(pid).map_or(0, |memory| memory.resident);
    resident(pid) + children(pid).into_iter().map(resident).sum::<u64>()
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_each = threads.flatten().map(|thread| thread.path().join("children"));
    let lists = of_each.filter_map(|path| std::fs::read_to_string(path).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_no_unknown_children() {
        let pid = std::process::id();
        assert!(memory(pid).expect("its memory").resident > 0);
        assert!(together(pid) >= memory(pid).expect("its memory").resident / 2);
        assert!(cpu(pid).is_ok() && cpu(u32::MAX).is_err());
    }
}
