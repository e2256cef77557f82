//! A temporary folder for one test.

use std::path::{Path, PathBuf};

/// Removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("waypost-test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&dir).expect("a folder for the test");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
