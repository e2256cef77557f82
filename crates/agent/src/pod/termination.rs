//! The termination message of a container, within the limits of Kubernetes.
//!
//! In: the file at `terminationMessagePath` and the log. Out: the message for the status. The container controls the file, so it is read as
//! untrusted input ([`files::read_untrusted`]).

use std::path::Path;

use api::value::ValueExt as _;
use serde_json::Value;

use crate::files;

/// The longest message of one container, in bytes.
const ONE: usize = 4096;
/// The limit of all messages of a Pod, in bytes.
const ALL: usize = 12 * 1024;
/// The limits, in lines and bytes, of a message taken from the log.
const LINES: usize = 80;
const LOG: usize = 2048;
/// How much of the end of the log is read, in bytes: each record has a timestamp and a stream besides its text.
const TAIL: usize = 64 * 1024;

/// The longest message of each container of a Pod, in bytes.
pub(super) fn limit(pod: &Value) -> usize {
    let lists = ["spec.initContainers", "spec.containers"];
    let containers: usize = lists.iter().map(|list| pod.items(list).len()).sum();
    ONE.min(ALL / containers.max(1))
}

/// The message in the file; if it is empty and a log is given, the end of the log.
pub(super) fn message(file: &Path, log: Option<&Path>, limit: usize) -> String {
    // An unreadable file means no message: the exit must be reported anyway.
    let said = files::read_untrusted(file, limit).unwrap_or_default();
    let mut said = String::from_utf8_lossy(&said).into_owned();
    if let Some(log) = log.filter(|_| said.is_empty()) {
        return end_of(&files::read_tail(log, TAIL).unwrap_or_default(), limit.min(LOG));
    }
    // Replacement characters may have made it longer.
    said.truncate(said.floor_char_boundary(limit));
    said
}

/// The last lines of a log, without timestamp and stream.
fn end_of(log: &[u8], limit: usize) -> String {
    let log = String::from_utf8_lossy(log);
    let lines: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let end = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n");
    let from = end.ceil_char_boundary(end.len().saturating_sub(limit));
    end.get(from..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use serde_json::json;

    use super::*;

    #[test]
    fn messages_have_the_limits_of_kubernetes() {
        let pod = |many: usize| json!({"spec": {"containers": vec![json!({}); many], "initContainers": [{}]}});
        assert_eq!((limit(&pod(1)), limit(&pod(2)), limit(&pod(5))), (4096, 4096, 2048));
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("message");
        fs::write(&file, vec![0xff; 100_000]).expect("written");
        let said = message(&file, None, 4096);
        assert!(said.len() <= 4096 && said.starts_with('\u{fffd}'), "{} bytes", said.len());
        File::create(&file).and_then(|file| file.set_len(10_000_000_000)).expect("made");
        assert_eq!(message(&file, None, 4096).len(), 4096);
    }

    #[test]
    fn a_symlink_is_no_message_and_the_log_is_the_fallback() {
        let dir = tempfile::tempdir().expect("a folder");
        let (link, log) = (dir.path().join("link"), dir.path().join("log"));
        std::os::unix::fs::symlink("/etc/passwd", &link).expect("linked");
        assert_eq!(message(&link, None, 4096), "");
        let line = |number: usize| format!("2026-01-01T00:00:01.000000000Z stdout F line {number}\n");
        fs::write(&log, (0..9000).map(line).collect::<String>()).expect("written");
        let said = message(&link, Some(&log), 4096);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[79]), (80, "line 8920", "line 8999"));
        fs::write(&log, [&b"2026-01-01T00:00:01.0Z stdout F "[..], &[b'x'; 9000], b"\xff\n"].concat())
            .expect("written");
        assert_eq!(message(&link, Some(&log), 4096).len(), 2048);
    }
}
