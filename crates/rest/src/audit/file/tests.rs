use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::pki::scratch::Scratch;

fn options(path: &Path) -> LogOptions {
    LogOptions { path: Some(path.to_owned()), max_size: 1, max_backups: 0, max_age_days: 0, compress: false }
}

/// A log that is rotated at so many bytes.
fn small(path: &Path, max_size: u64) -> LogFile {
    let mut log = LogFile::open(&options(path)).unwrap();
    (log.max_size, log.limit) = (max_size, max_size);
    log
}

/// All files of a folder, by name: the rotated ones first, in the order of their times.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    out.sort();
    out
}

#[test]
fn files_and_folders_are_private() {
    let scratch = Scratch::new();
    let path = scratch.path().join("log/audit/audit.log");
    let mut log = LogFile::open(&options(&path)).unwrap();
    log.append(b"one\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "", "lines are gathered");
    log.flush().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn lines_are_never_split_between_files() {
    let scratch = Scratch::new();
    let path = scratch.path().join("audit.log");
    let mut log = small(&path, 10);
    for line in ["aaaa\n", "bbbb\n", "cccc\n", "a line that is longer than a file\n", "dddd\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    log.flush().unwrap();
    let texts: Vec<String> = files(scratch.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["aaaa\nbbbb\n", "cccc\n", "a line that is longer than a file\n", "dddd\n"]);
    assert_eq!(files(scratch.path()).last().map(|(name, _)| name.as_str()), Some("audit.log"));
}

#[test]
fn a_log_is_continued_and_rotated_when_it_is_full() {
    let scratch = Scratch::new();
    let path = scratch.path().join("audit.log");
    std::fs::write(&path, "12345\n").unwrap();
    let mut log = small(&path, 10);
    log.append(b"67\n").unwrap();
    log.append(b"8\n").unwrap();
    log.flush().unwrap();
    let texts: Vec<String> = files(scratch.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["12345\n67\n", "8\n"]);
}

#[test]
fn without_a_size_nothing_is_rotated() {
    let scratch = Scratch::new();
    let path = scratch.path().join("audit.log");
    let mut log = LogFile::open(&LogOptions { max_size: 0, ..options(&path) }).unwrap();
    let line = vec![b'x'; 1 << 20];
    for _ in 0..3 {
        log.append(&line).unwrap();
    }
    log.flush().unwrap();
    assert_eq!(files(scratch.path()).len(), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 << 20);
}

#[test]
fn a_log_that_was_removed_is_created_again() {
    let scratch = Scratch::new();
    let path = scratch.path().join("audit.log");
    let mut log = small(&path, 4);
    log.append(b"one\n").unwrap();
    log.flush().unwrap();
    std::fs::remove_file(&path).unwrap();
    log.append(b"two\n").unwrap();
    log.flush().unwrap();
    assert_eq!(files(scratch.path()), [("audit.log".to_owned(), "two\n".to_owned())]);
}

#[test]
fn devices_are_not_rotated() {
    let scratch = Scratch::new();
    // By a link, so that a mistake would rename the link alone.
    let path = scratch.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    let mut log = small(&path, 4);
    log.file = None;
    for _ in 0..3 {
        log.append(b"line\n").unwrap();
    }
    log.flush().unwrap();
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

/// Accepts so many bytes and then fails, until it has room again.
struct Disk {
    room: usize,
    text: Vec<u8>,
}

impl io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = bytes.len().min(self.room).min(3);
        self.room -= count;
        self.text.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_write_that_failed_is_continued() {
    let mut disk = Disk { room: 7, text: Vec::new() };
    let mut pending = Pending { bytes: b"one\ntwo\nthree\n".to_vec(), written: 0 };
    assert_eq!(pending.write_to(&mut disk).unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.room = 100;
    pending.write_to(&mut disk).unwrap();
    assert_eq!(disk.text, b"one\ntwo\nthree\n");
    assert!(pending.bytes.is_empty() && pending.written == 0);
}
