//! Reads the log of an instance: rotated files first, then new lines as they are written.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::inotify;
use tokio::io::{AsyncWriteExt as _, DuplexStream, Interest};

use crate::ready;
use crate::shim::{EXIT_FILE, LOG_NUMBER, rotated};
use crate::workloads::{LogOptions, LogReader, Refusal};

/// The buffer for a slow reader, in bytes.
const BUFFER: usize = 64 * 1024;

/// Opens a log.
pub(super) fn open(log: PathBuf, instance: PathBuf, options: &LogOptions) -> Result<LogReader, Refusal> {
    let (writer, reader) = tokio::io::duplex(BUFFER);
    let options = options.clone();
    tokio::spawn(async move {
        // A closed reader is no error.
        let _ = send(log, instance, options, writer).await;
    });
    Ok(Box::new(reader))
}

async fn send(log: PathBuf, instance: PathBuf, options: LogOptions, mut to: DuplexStream) -> std::io::Result<()> {
    // Watch before reading, so that no line is missed.
    let changes = if options.follow { Some(watch(&log, &instance)?) } else { None };
    let (path, wanted) = (log.clone(), options.clone());
    let (mut text, mut at) =
        tokio::task::spawn_blocking(move || existing(&path, &wanted)).await.map_err(std::io::Error::other)?;
    to.write_all(&text).await?;
    let Some(changes) = changes else { return Ok(()) };
    let mut open = LineState { partial: false };
    loop {
        let over = instance.join(EXIT_FILE).exists();
        (text, at) = new_lines(&log, at, &options, &mut open)?;
        to.write_all(&text).await?;
        if over {
            return Ok(());
        }
        let mut ready = changes.readable().await?;
        let mut buffer = [0u8; 4096];
        while matches!(rustix::io::read(changes.get_ref(), &mut buffer), Ok(1..)) {}
        ready.clear_ready();
    }
}

fn watch(log: &Path, instance: &Path) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    let changes = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    let flags = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    for folder in log.parent().into_iter().chain([instance]) {
        inotify::add_watch(&changes, folder, flags)?;
    }
    ready::register(changes, Interest::READABLE)
}

/// Whether the last line is a partial one (`P`).
struct LineState {
    partial: bool,
}

/// The existing log, and the read position in the current file.
fn existing(log: &Path, options: &LogOptions) -> (Vec<u8>, u64) {
    let mut files: Vec<Vec<u8>> = Vec::new();
    let (mut lines, mut at) = (0, 0);
    let names = std::iter::once(log.to_owned()).chain((1..LOG_NUMBER).map(|number| rotated(log, number)));
    for (place, name) in names.enumerate() {
        let Ok(bytes) = std::fs::read(name) else { break };
        // Skip a line that is still being written.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if place == 0 {
            at = end as u64;
        }
        let bytes = bytes.get(..end).unwrap_or_default().to_vec();
        lines += bytes.split(|byte| *byte == b'\n').count() as u64;
        files.push(bytes);
        if options.tail_lines.is_some_and(|wanted| lines > wanted) {
            break;
        }
    }
    let mut shown: Vec<Vec<u8>> = Vec::new();
    let mut open = LineState { partial: false };
    for line in files.iter().rev().flat_map(|bytes| bytes.split(|byte| *byte == b'\n')).filter(|line| !line.is_empty())
    {
        let goes_on = open.partial;
        let mut out = Vec::new();
        format_line(line, options, &mut open, &mut out);
        match shown.last_mut().filter(|_| goes_on) {
            Some(last) => last.extend(out),
            None if !out.is_empty() => shown.push(out),
            None => {}
        }
    }
    let skip = options
        .tail_lines
        .and_then(|wanted| usize::try_from(wanted).ok())
        .map_or(0, |wanted| shown.len().saturating_sub(wanted));
    (shown.into_iter().skip(skip).flatten().collect(), at)
}

/// Lines written since the position; a shorter file means that it was rotated.
fn new_lines(log: &Path, at: u64, options: &LogOptions, open: &mut LineState) -> std::io::Result<(Vec<u8>, u64)> {
    let mut out = Vec::new();
    let Ok(mut file) = File::open(log) else { return Ok((out, at)) };
    let mut at = at;
    if file.metadata()?.len() < at {
        if let Ok(mut older) = File::open(rotated(log, 1)) {
            older.seek(SeekFrom::Start(at))?;
            for line in BufReader::new(older).split(b'\n') {
                format_line(&line?, options, open, &mut out);
            }
        }
        at = 0;
    }
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in bytes.get(..end).unwrap_or_default().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        format_line(line, options, open, &mut out);
    }
    Ok((out, at + end as u64))
}

/// Formats one line `TIME stream F text`.
fn format_line(line: &[u8], options: &LogOptions, open: &mut LineState, out: &mut Vec<u8>) {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (Some(time), Some(_), Some(mark), text) = (fields.next(), fields.next(), fields.next(), fields.next()) else {
        return;
    };
    if let Some(since) = options.since {
        let at = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
        if at.is_some_and(|at| at < since) {
            return;
        }
    }
    if options.timestamps && !open.partial {
        out.extend_from_slice(time);
        out.push(b' ');
    }
    out.extend_from_slice(text.unwrap_or_default());
    open.partial = mark == b"P";
    if !open.partial {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    const TEXT: &str = "2026-01-01T00:00:01.000000000Z stdout F one\n2026-01-01T00:00:02.000000000Z stderr P tw\n\
                        2026-01-01T00:00:02.000000001Z stderr F o\n2026-01-01T00:00:03.000000000Z stdout F \n";

    async fn read(folder: &Path, options: LogOptions) -> String {
        let mut out = String::new();
        let mut reader = open(folder.join("0.log"), folder.join("0"), &options).expect("opened");
        reader.read_to_string(&mut out).await.expect("text");
        out
    }

    #[tokio::test]
    async fn tail_since_and_timestamps() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("0.log.1"), "2026-01-01T00:00:00.000000000Z stdout F zero\n").expect("written");
        std::fs::write(home.path().join("0.log"), TEXT).expect("written");
        let all = LogOptions::default();
        assert_eq!(read(home.path(), all.clone()).await, "zero\none\ntwo\n\n");
        assert_eq!(read(home.path(), LogOptions { tail_lines: Some(2), ..all.clone() }).await, "two\n\n");
        assert_eq!(read(home.path(), LogOptions { tail_lines: Some(0), ..all.clone() }).await, "");
        let since = Some("2026-01-01T00:00:03Z".parse().expect("a time"));
        let late = LogOptions { since, timestamps: true, ..all };
        assert_eq!(read(home.path(), late).await, "2026-01-01T00:00:03.000000000Z \n");
    }

    #[tokio::test]
    async fn follow_ends_when_the_container_exits() {
        let home = tempfile::tempdir().expect("a folder");
        let (log, instance) = (home.path().join("0.log"), home.path().join("0"));
        std::fs::create_dir(&instance).expect("made");
        std::fs::write(&log, "2026-01-01T00:00:01.0Z stdout F one\n").expect("written");
        let mut reader =
            open(log.clone(), instance.clone(), &LogOptions { follow: true, ..LogOptions::default() }).expect("opened");
        let mut buffer = [0; 4];
        reader.read_exact(&mut buffer).await.expect("the first line");
        assert_eq!(&buffer, b"one\n");
        std::fs::write(&log, "2026-01-01T00:00:01.0Z stdout F one\n2026-01-01T00:00:02.0Z stdout F two\n")
            .expect("written");
        reader.read_exact(&mut buffer).await.expect("the second line");
        assert_eq!(&buffer, b"two\n");
        std::fs::write(instance.join(EXIT_FILE), "{}").expect("written");
        assert_eq!(reader.read(&mut buffer).await.expect("the end"), 0);
    }
}
