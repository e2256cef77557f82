//! Measures the ephemeral storage of a Pod: emptyDir volumes on disk, and the writable layer and logs of each container.
//!
//! In: the Pod directory. Out: allocated bytes. Containers control these trees, so a measurement is bounded in entries, follows no links, and does
//! not leave the file system. Files below paths that are longer than the kernel accepts are not counted.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde_json::Value;

use crate::data_dir::PodDir;
use crate::decide::eviction;
use crate::facts::StorageUsage;

/// The most entries of one tree that are counted.
const MAX_ENTRIES: usize = 1_000_000;
/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// Measures a Pod; reads from disk.
#[must_use]
pub fn measure(pod: &Value, dir: &PodDir) -> StorageUsage {
    let volumes = eviction::measured_volumes(pod).map(|volume| volume.text("name"));
    let containers = pod.items("spec.initContainers").iter().chain(pod.items("spec.containers"));
    let containers = containers.map(|container| container.text("name"));
    StorageUsage {
        volumes: volumes.map(|name| (name.to_owned(), tree(&dir.volume(name)))).collect(),
        containers: containers.map(|name| (name.to_owned(), container(dir, name))).collect(),
    }
}

/// The logs of a container, and the writable layer of its last instance.
fn container(dir: &PodDir, name: &str) -> u64 {
    let mut bytes = 0u64;
    let mut last: Option<u32> = None;
    for entry in fs::read_dir(dir.container(name)).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(found) if found.is_file() => bytes = bytes.saturating_add(found.blocks() * BLOCK),
            Ok(found) if found.is_dir() => {
                last = last.max(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
            }
            _ => {}
        }
    }
    let layer = last.map_or(0, |number| tree(&dir.writable_layer(name, number)));
    bytes.saturating_add(layer)
}

/// The allocated bytes below a directory; a file with several hard links is counted once.
fn tree(root: &Path) -> u64 {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, root, OFlags::PATH | OFlags::NOFOLLOW | flags, Mode::empty()) else { return 0 };
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut pending = vec![PathBuf::from(".")];
    let mut linked = HashSet::new();
    let (mut bytes, mut entries) = (0u64, 0);
    while let Some(folder) = pending.pop() {
        // By path from the root, not from the parent: the depth of the tree needs no descriptors.
        let Ok(opened) = openat2(&top, folder.as_path(), OFlags::RDONLY | flags, Mode::empty(), beneath) else {
            continue;
        };
        let Ok(list) = fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd())) else { continue };
        for entry in list.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                tracing::debug!(path = %root.display(), limit = MAX_ENTRIES, "measured only part of a directory");
                return bytes;
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                pending.push(folder.join(entry.file_name()));
            } else if found.nlink() > 1 && !linked.insert((found.dev(), found.ino())) {
                continue;
            }
            bytes = bytes.saturating_add(found.blocks() * BLOCK);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::data_dir::AgentDir;

    const MIB: u64 = 1 << 20;

    /// Writes 1 MiB that file systems do not compress to nothing.
    fn fill(path: &Path) {
        let bytes: Vec<u8> = (0..1u32 << 20).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, bytes).expect("written");
        fs::File::open(path).and_then(|file| file.sync_all()).expect("synced");
    }

    #[test]
    fn volumes_layers_and_logs_are_measured() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = AgentDir::new(home.path()).pod("u");
        fill(&home.path().join("outside/file"));
        let (cache, layer) = (dir.volume("cache"), dir.writable_layer("a", 1));
        fill(&cache.join("deep/er/file"));
        fs::hard_link(cache.join("deep/er/file"), cache.join("again")).expect("linked");
        symlink(home.path().join("outside"), cache.join("link")).expect("linked");
        fill(&layer.join("tmp/file"));
        fill(&dir.writable_layer("a", 0).join("old"));
        fill(&dir.log("a", 1));
        let pod = json!({"spec": {
            "containers": [{"name": "a"}, {"name": "b"}],
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "map", "configMap": {}}],
        }});
        let usage = measure(&pod, &dir);
        let about = |bytes: u64, mib: u64| bytes >= mib * MIB && bytes < mib * MIB + MIB / 2;
        assert!(about(usage.volumes["cache"], 1) && usage.volumes.len() == 1, "{usage:?}");
        assert!(about(usage.containers["a"], 2) && usage.containers["b"] == 0, "{usage:?}");
        assert!(about(usage.total(), 3), "{usage:?}");
    }
}
