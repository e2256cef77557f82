//! The access log: a line for each request, and for each connection whose bytes are forwarded.
//!
//! In: requests as they are answered. Out: lines of JSON or of the combined log format (NCSA), in a file or on standard
//! output. Whatever takes part in a request shares its [`Trail`]; the line is made when the last of them drops it: when
//! the response is complete, when the client went away, when an upgraded connection is closed.
//!
//! ```text
//! request ─▶ Trail ─▶ Record ─▶ format ─▶ queue (bounded) ─▶ writer (a thread) ─▶ file
//! ```
//! No request waits: what the queue has no room for is dropped and counted. Values of clients are escaped and limited in
//! length, so that a client can neither forge lines nor send control sequences to a terminal. Header fields with
//! credentials are never read.

mod body;
mod escape;
mod format;
mod queue;
mod trail;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use body::LoggedBody;
pub(crate) use trail::{LoggedConnection, RulePlace, Trail};

use format::Record;
use queue::Queue;
use writer::Writer;

/// Bytes of lines that wait to be written.
const QUEUE: usize = 8 << 20;
/// How long the log may take to write what is in the queue when the gateway stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The form of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessLogFormat {
    /// An object of JSON.
    Json,
    /// The combined log format of NCSA: the Common Log Format, then referer and user agent.
    Common,
}

/// Settings of the access log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLogOptions {
    /// The form of lines.
    pub format: AccessLogFormat,
    /// The file, which is created with mode 0600; none is standard output.
    pub path: Option<PathBuf>,
}

/// An access log.
pub struct AccessLog {
    format: AccessLogFormat,
    queue: Arc<Queue>,
    /// Lines that were not written.
    dropped: Arc<AtomicU64>,
    /// True once the writer has ended.
    ended: watch::Receiver<bool>,
}

impl AccessLog {
    /// Opens the log.
    ///
    /// # Errors
    /// When the file cannot be opened, or no thread be started.
    pub fn open(options: &AccessLogOptions) -> io::Result<Self> {
        let path = options.path.clone();
        Self::start(options.format, move || open(path.as_deref()), QUEUE)
    }

    fn start<W: io::Write + Send + 'static>(
        format: AccessLogFormat,
        mut open: impl FnMut() -> io::Result<W> + Send + 'static,
        limit: usize,
    ) -> io::Result<Self> {
        let (queue, dropped) = (Arc::new(Queue::new(limit)), Arc::<AtomicU64>::default());
        let writer = Writer::new(open()?, open, Arc::clone(&dropped));
        let (end, ended) = watch::channel(false);
        let lines = Arc::clone(&queue);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer.run(&lines);
            end.send_replace(true);
        })?;
        Ok(Self { format, queue, dropped, ended })
    }

    /// Queues a line, or drops it.
    fn write(&self, record: &Record<'_>) {
        thread_local! {
            /// A line, used again and again.
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let is_queued = LINE.with_borrow_mut(|line| {
            line.clear();
            match self.format {
                AccessLogFormat::Json => format::json(record, line),
                AccessLogFormat::Common => format::common(record, line),
            }
            self.queue.push(line)
        });
        if !is_queued {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Opens the file again, after it was renamed.
    pub fn reopen(&self) {
        self.queue.reopen();
    }

    /// The number of lines that were not written.
    pub(crate) const fn dropped(&self) -> &Arc<AtomicU64> {
        &self.dropped
    }

    /// Writes what is in the queue, and accepts nothing more.
    pub(crate) async fn close(&self) {
        self.queue.close();
        let mut ended = self.ended.clone();
        if timeout(CLOSE_TIMEOUT, ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::error!("failed to close access log in time");
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Opens the file; standard output without the buffer that the standard library has in front of it.
fn open(path: Option<&Path>) -> io::Result<File> {
    match path {
        Some(path) => OpenOptions::new().append(true).create(true).mode(0o600).open(path),
        None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
    }
}
