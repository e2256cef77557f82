//! The log as a whole: what its reader gets, and what happens when that is slow.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::tests::eventually;

/// What a log has written.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    written: Arc<Mutex<Vec<u8>>>,
    read: Arc<AtomicUsize>,
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// A log, and what it writes.
    pub(crate) fn log(format: AccessLogFormat) -> (Arc<AccessLog>, Self) {
        let lines = Self::default();
        let output = lines.clone();
        let log = AccessLog::start(format, move || Ok(output.clone()), QUEUE).expect("a thread");
        (Arc::new(log), lines)
    }

    /// All lines, once there are so many.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> Vec<String> {
        let all = || String::from_utf8(self.written.lock().clone()).expect("text");
        eventually("the lines are written", || all().lines().count() >= count);
        assert_eq!(all().lines().count(), count, "{}", all());
        all().lines().map(str::to_owned).collect()
    }

    /// The next line of a log in JSON.
    #[track_caller]
    pub(crate) fn next_json(&self) -> Value {
        let count = self.read.fetch_add(1, Relaxed) + 1;
        self.wait_json(count).remove(count - 1)
    }

    /// The lines of a log in JSON.
    #[track_caller]
    pub(crate) fn wait_json(&self, count: usize) -> Vec<Value> {
        self.wait(count).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

fn record(sent: u64) -> Record<'static> {
    Record {
        time: Timestamp::UNIX_EPOCH,
        duration: Duration::ZERO,
        client: ([192, 0, 2, 7], 5000).into(),
        port: 80,
        protocol: "TCP",
        request: None,
        status: 200,
        received: 0,
        sent,
        gateway: None,
        parent_service: None,
        client_pod: None,
        listener: None,
        place: None,
        service: None,
        endpoint: None,
        user: None,
        request_id: None,
        tls_version: None,
        server_name: None,
        grpc_status: None,
        reason: None,
        is_aborted: false,
    }
}

const LINE: &str = "192.0.2.7 - - [01/Jan/1970:00:00:00 +0000] \"- - TCP\" 200 0 \"-\" \"-\"\n";

/// A disk that takes a write for each message.
struct SlowDisk(mpsc::Receiver<()>, Lines);

impl io::Write for SlowDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().map_err(io::Error::other)?;
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_slow_disk_delays_nobody_and_what_it_cannot_take_is_counted() {
    let (turn, turns) = mpsc::channel();
    let lines = Lines::default();
    let mut disk = Some(SlowDisk(turns, lines.clone()));
    let opens = move || disk.take().ok_or_else(|| io::ErrorKind::NotFound.into());
    let log = AccessLog::start(AccessLogFormat::Common, opens, 3 * LINE.len()).expect("a thread");
    // The disk has at most three lines, and the queue as many: of so many lines most are dropped.
    for _ in 0..100 {
        log.write(&record(0));
    }
    let dropped = log.dropped().load(Relaxed);
    assert!((94..=97).contains(&dropped), "{dropped}");
    let _ = turn.send(());
    let _ = turn.send(());
    log.close().await;
    assert_eq!(lines.wait(100 - usize::try_from(dropped).expect("few")).len() as u64 + dropped, 100);
    log.write(&record(0));
    assert_eq!(log.dropped().load(Relaxed), dropped + 1, "the log is closed");
}

#[tokio::test]
async fn a_file_that_was_renamed_is_opened_again() {
    let folder = tempfile::tempdir().expect("a directory");
    let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
    let options = AccessLogOptions { format: AccessLogFormat::Common, path: Some(path.clone()) };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(&path, "before\n").expect("written");
    let log = AccessLog::open(&options).expect("a log");
    log.write(&record(0));
    eventually("the first line is written", || read(&path) == format!("before\n{LINE}"));
    std::fs::rename(&path, &old).expect("renamed");
    log.reopen();
    eventually("there is a new file", || path.exists());
    log.write(&record(0));
    log.close().await;
    assert_eq!((read(&old), read(&path)), (format!("before\n{LINE}"), LINE.to_owned()));
    assert_eq!(log.dropped().load(Relaxed), 0);
    let missing = AccessLogOptions { path: Some(folder.path().join("no/log")), ..options };
    assert!(AccessLog::open(&missing).is_err(), "the directory does not exist");
}
