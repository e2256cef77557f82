//! The thread that writes lines: batches of the queue in, bytes in the file out.
//!
//! Lines that cannot be written (a full disk) are dropped and counted. A line of which only a part was written is ended
//! before the next, so that it cannot be read together with another.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::queue::{Batch, Queue};

/// The writer.
pub(super) struct Writer<W, F> {
    output: W,
    /// Opens the output again.
    open: F,
    dropped: Arc<AtomicU64>,
    /// Whether the last line is incomplete.
    is_torn: bool,
    /// Whether the last batch could not be written.
    is_failing: bool,
}

impl<W: Write, F: FnMut() -> io::Result<W>> Writer<W, F> {
    pub(super) const fn new(output: W, open: F, dropped: Arc<AtomicU64>) -> Self {
        Self { output, open, dropped, is_torn: false, is_failing: false }
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self, queue: &Queue) {
        let mut spare = Vec::new();
        while let Some(Batch { lines, must_reopen }) = queue.take(spare) {
            if must_reopen {
                self.reopen();
            }
            self.write(&lines);
            spare = lines;
        }
    }

    fn reopen(&mut self) {
        match (self.open)() {
            Ok(output) => (self.output, self.is_torn) = (output, false),
            Err(error) => tracing::error!(%error, "failed to reopen access log; the file before stays in use"),
        }
    }

    /// Writes lines, or drops those that cannot be written.
    fn write(&mut self, lines: &[u8]) {
        let mut written = 0;
        let result = self.attempt(lines, &mut written);
        let (done, rest) = lines.split_at_checked(written).unwrap_or_default();
        if !done.is_empty() {
            self.is_torn = !done.ends_with(b"\n");
        }
        match result {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!("access log is writable again");
            }
            Ok(()) => {}
            Err(error) => {
                let lost = rest.iter().filter(|byte| **byte == b'\n').count();
                self.dropped.fetch_add(lost as u64, Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%error, "failed to write access log: dropping lines");
                }
            }
        }
    }

    fn attempt(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        if self.is_torn {
            self.output.write_all(b"\n")?;
            self.is_torn = false;
        }
        while let Some(rest @ [_, ..]) = lines.get(*written..) {
            match self.output.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        room: Arc<Mutex<usize>>,
        file: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock();
            let count = bytes.len().min(*room);
            *room -= count;
            self.file.lock().extend_from_slice(&bytes[..count]);
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_has_no_room_for_are_dropped_and_counted() {
        let (room, file) = (Arc::new(Mutex::new(6)), Arc::<Mutex<Vec<u8>>>::default());
        let disk = Disk { room: Arc::clone(&room), file: Arc::clone(&file) };
        let dropped = Arc::<AtomicU64>::default();
        let refuses = || Err(io::ErrorKind::NotFound.into());
        let mut writer = Writer::new(disk, refuses, Arc::clone(&dropped));
        writer.write(b"one\ntwo\nthree\n");
        assert_eq!((&file.lock()[..], dropped.load(Relaxed)), (&b"one\ntw"[..], 2));
        writer.write(b"four\n");
        assert_eq!(dropped.load(Relaxed), 3);
        *room.lock() = 100;
        writer.write(b"five\n");
        writer.reopen();
        writer.write(b"six\n");
        assert_eq!((&file.lock()[..], dropped.load(Relaxed)), (&b"one\ntw\nfive\nsix\n"[..], 3));
    }
}
