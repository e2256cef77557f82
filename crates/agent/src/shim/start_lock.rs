//! Starts each instance of a container at most once, even if the agent is killed during the start.
//!
//! In: the directory of a container. Out: a lock (flock) on a file beside its instances, which the kernel releases with its holder. A shim starts an
//! instance only while it holds the lock, a spec exists and no start record does. A restarted agent that does not know whether an instance was
//! started takes the lock: then the start record exists, or the agent removes the spec and the instance will not be started.
//!
//! ```text
//! shim:  lock ─▶ order.json exists, begun.json does not ─▶ start container ─▶ write begun.json ─▶ unlock
//! agent: lock ─▶ begun.json exists ─yes─▶ watch the container   ─no─▶ remove order.json ─▶ start again
//! ```
//! The lock file is beside the instance directories, which are recreated: a lock on a deleted file would exclude nothing.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::process::Signal;
use rustix::event::Timespec;
use rustix::fs::{FlockOperation, flock};

use super::{EXIT_FILE, SPEC_FILE, START_FILE, ShimSpec, StartRecord};
use crate::files;

/// The lock file.
const FILE: &str = "claim";
/// The poll interval for a lock whose holder cannot be determined.
const CGROUP_RETRY_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The right to start instances of a container. Dropping it releases the lock.
#[derive(Debug)]
pub struct StartLock(File);

impl Drop for StartLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a forked process may share the open file description.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whether an instance was started.
#[derive(Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// It was started: the start record and the image ID.
    StartRecord(StartRecord, String),
    /// It was not started and will not be.
    Nobody,
}

impl StartLock {
    /// Takes the lock; blocks while another process holds it.
    ///
    /// # Errors
    /// When the container directory does not exist.
    pub fn take(container: &Path) -> io::Result<Self> {
        let file = open(container)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(Self(file))
    }

    /// Takes the lock unless another process holds it.
    ///
    /// # Errors
    /// When the container directory does not exist.
    pub fn try_take(container: &Path) -> io::Result<Option<Self>> {
        let file = open(container)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the lock and kills a shim that holds it. Nothing when the container directory does not exist, or when an unknown process holds
    /// the lock until the timeout.
    #[must_use]
    pub fn take_from_holder(container: &Path, timeout: Duration) -> Option<Self> {
        let started = Instant::now();
        loop {
            if let Some(lock) = Self::try_take(container).ok()? {
                return Some(lock);
            }
            if started.elapsed() >= timeout {
                return None;
            }
            let holder = open(container).ok().and_then(|file| kernel::process::holder(&file));
            // Other threads of this process hold it briefly.
            let others = holder.filter(|identity| identity.pid != std::process::id().cast_signed());
            if let Some(handle) = others.and_then(|identity| identity.open().ok().flatten()) {
                handle.signal(Signal::KILL);
                let _ = handle.ends_within(timeout);
            } else {
                // The holder may have exited while a child still has the file open; flock has no timeout, so poll.
                let _ = rustix::event::poll(&mut [], Some(&CGROUP_RETRY_DELAY));
            }
        }
    }

    /// The spec of an instance that was not started yet.
    pub(super) fn spec(&self, instance: &Path) -> Option<ShimSpec> {
        if instance.join(START_FILE).exists() || instance.join(EXIT_FILE).exists() {
            return None;
        }
        files::get(&instance.join(SPEC_FILE))
    }

    /// Whether an instance was started; if not, removes its spec so that it never will be.
    ///
    /// # Errors
    /// When the spec cannot be removed.
    pub fn resolve(&self, instance: &Path) -> io::Result<StartOutcome> {
        if let Some(started) = files::get(&instance.join(START_FILE)) {
            let image = files::get::<ShimSpec>(&instance.join(SPEC_FILE)).map_or_else(String::new, |spec| spec.image);
            return Ok(StartOutcome::StartRecord(started, image));
        }
        match fs::remove_file(instance.join(SPEC_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(StartOutcome::Nobody),
        }
    }
}

fn open(container: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(container.join(FILE))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use jiff::Timestamp;
    use kernel::process::Identity;

    use super::super::{Program, RuntimeSpec};
    use super::*;

    fn spec(instance: &Path) {
        fs::create_dir_all(instance).expect("made");
        let how = RuntimeSpec::Process {
            network: None,
            host_name: None,
            mounts: Vec::new(),
            hidden: Vec::new(),
            masked: Vec::new(),
            locked: Vec::new(),
            read_only: false,
            staging: instance.into(),
            all_devices: false,
        };
        let spec = ShimSpec {
            program: Program::default(),
            how,
            image: "host".to_owned(),
            stdin: false,
            stdin_once: false,
            group: String::new(),
            own_groups: Vec::new(),
            oom_score: None,
            log: instance.join("log"),
        };
        files::put(&instance.join(SPEC_FILE), &spec).expect("written");
    }

    /// What a shim does, without the container.
    fn carry_out(container: &Path, instance: &Path, count: &AtomicU32) {
        let Ok(lock) = StartLock::take(container) else { return };
        if lock.spec(instance).is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            let own = Identity::own().expect("this process");
            files::put(&instance.join(START_FILE), &StartRecord::new(own, own, Timestamp::UNIX_EPOCH))
                .expect("written");
        }
    }

    #[test]
    fn an_instance_is_started_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (container, instance) = (folder.path(), folder.path().join("0"));
        let count = AtomicU32::new(0);
        spec(&instance);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| carry_out(container, &instance, &count));
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let lock = StartLock::take(container).expect("free");
        assert!(
            matches!(lock.resolve(&instance).expect("known"), StartOutcome::StartRecord(_, image) if image == "host")
        );
    }

    #[test]
    fn an_instance_whose_spec_was_removed_is_not_started_until_it_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (container, instance) = (folder.path(), folder.path().join("0"));
        let count = AtomicU32::new(0);
        spec(&instance);
        let lock = StartLock::take(container).expect("free");
        assert!(StartLock::try_take(container).expect("locks").is_none());
        assert!(
            StartLock::take_from_holder(container, Duration::from_millis(10)).is_none(),
            "the own process is not killed"
        );
        std::thread::scope(|scope| {
            let late = scope.spawn(|| carry_out(container, &instance, &count));
            assert_eq!(lock.resolve(&instance).expect("taken back"), StartOutcome::Nobody);
            drop(lock);
            late.join().expect("it ends");
        });
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert!(StartLock::take_from_holder(container, Duration::from_secs(60)).is_some());
        // A shim that waited for the old directory and one of the new spec: only one starts it.
        files::remove_folder(&instance).expect("removed");
        spec(&instance);
        carry_out(container, &instance, &count);
        carry_out(container, &instance, &count);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(folder);
        assert!(StartLock::take(Path::new("/nowhere")).is_err());
    }
}
