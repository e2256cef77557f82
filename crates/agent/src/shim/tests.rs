//! Logs and frames; complete shims are covered by black-box tests, because they need a process of their own.

use super::attach::take_frame;
use super::log::{Log, NUMBER, Stream, rotated};
use super::*;

#[test]
fn log_lines_have_timestamp_and_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut log = Log::open(&path).expect("opened");
    log.write(Stream::Out, b"one\ntw");
    log.write(Stream::Err, b"oh\n\n");
    log.write(Stream::Out, b"o\nrest");
    log.flush();
    let text = std::fs::read_to_string(&path).expect("written");
    let lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
    assert_eq!(lines, ["stdout F one", "stderr F oh", "stderr F ", "stdout F two", "stdout F rest"]);
    let time = text.split(' ').next().expect("a time");
    assert!(time.len() == "2026-01-01T00:00:00.000000000Z".len() && time.parse::<Timestamp>().is_ok(), "{time}");
}

#[test]
fn long_lines_are_written_in_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut log = Log::open(&path).expect("opened");
    let long = vec![b'x'; 40_000];
    log.write(Stream::Out, &long);
    log.write(Stream::Out, b"y\n");
    let text = std::fs::read_to_string(&path).expect("written");
    let pieces: Vec<&str> = text.lines().map(|line| line.split(' ').nth(2).expect("a mark")).collect();
    assert_eq!((pieces.first(), pieces.last()), (Some(&"P"), Some(&"F")));
    let whole: String = text.lines().map(|line| line.splitn(4, ' ').nth(3).expect("text")).collect();
    assert_eq!(whole.len(), 40_001);
}

#[test]
fn logs_are_rotated() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut log = Log::with_limit(&path, 100).expect("opened");
    for number in 0..40 {
        log.write(Stream::Out, format!("line {number}\n").as_bytes());
    }
    let files = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, NUMBER);
    let last = std::fs::read_to_string(&path).expect("the youngest");
    assert!(last.contains("line 39") && rotated(&path, 4).exists() && !rotated(&path, 5).exists());
}

#[test]
fn frames_are_decoded_when_complete() {
    let mut read = frame(INPUT, b"hello");
    read.extend(frame(END_OF_INPUT, b""));
    let rest = read.split_off(7);
    assert_eq!(take_frame(&mut read), None);
    read.extend(rest);
    assert_eq!(take_frame(&mut read), Some((INPUT, b"hello".to_vec())));
    assert_eq!(take_frame(&mut read), Some((END_OF_INPUT, Vec::new())));
    assert_eq!((take_frame(&mut read), read.len()), (None, 0));
}
