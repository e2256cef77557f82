//! The archive that a kernel unpacks into its memory: `cpio`, in the form called "newc".

use std::collections::BTreeSet;
use std::io::{Result, Write};
use std::path::Path;

/// What kind of thing an entry is, in its mode.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// The name of the entry that ends an archive.
const END: &str = "TRAILER!!!";

/// An archive that is being written. Everything in it belongs to root.
pub(super) struct Archive<W> {
    out: W,
    names: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, names: BTreeSet::new() }
    }

    /// Adds a folder and those above it.
    pub(super) fn folder(&mut self, path: &str) -> Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || !self.names.insert(path.to_owned()) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, FOLDER, &[])
    }

    /// Adds a file with this content; the first of a name counts.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let path = path.trim_matches('/');
        if !self.names.insert(path.to_owned()) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, PROGRAM, content)
    }

    /// Adds a copy of a file.
    pub(super) fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        self.file(path, &std::fs::read(from)?)
    }

    /// Writes the end.
    pub(super) fn finish(mut self) -> Result<()> {
        self.entry(END, 0, &[])?;
        self.out.flush()
    }

    fn parent(&mut self, path: &str) -> Result<()> {
        path.rsplit_once('/').map_or(Ok(()), |(parent, _)| self.folder(parent))
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let [size, length] = [content.len(), name.len() + 1].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        // Number, mode, owner, group, links, time, size, four numbers of devices, length of the name, sum.
        let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        let mut header = "070701".to_owned();
        fields.iter().for_each(|field| header += &format!("{field:08x}"));
        header = header + name + "\0";
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    fn padded(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_begins_at_a_multiple_of_four() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("/a/b", b"hello").expect("written");
        archive.file("/a/b", b"again").expect("passed over");
        archive.finish().expect("written");
        let text = String::from_utf8(bytes).expect("text");
        let heads: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!((heads.len(), text.matches("hello").count(), text.contains("again")), (3, 1, false));
        assert!(heads.iter().all(|at| at % 4 == 0) && text.len().is_multiple_of(4), "{heads:?}");
    }
}
