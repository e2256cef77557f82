//! Who may begin an instance of a container: one, once, however often the agent was killed between its order and the answer.
//!
//! In: the folder of a container. Out: a claim, a lock on a file beside its instances, which the kernel frees with its holder. A
//! supervisor begins an instance only while it holds the claim, there is an order, and nobody has begun it. An agent that comes back and
//! does not know whether an order was carried out takes the claim: then the instance has begun, or the order is taken back and nobody
//! will carry it out any more.
//!
//! ```text
//! supervisor: claim ─▶ order there? begun not there? ─▶ container ─▶ begun.json ─▶ claim given back
//! agent:      claim ─▶ begun.json there? ─yes─▶ follow it        ─no─▶ order removed ─▶ begin it anew
//! ```
//! The file lies beside the folders of instances, not in one: those are made anew, and a lock on a file that is gone holds nobody off.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::process::Signal;
use rustix::event::Timespec;
use rustix::fs::{FlockOperation, flock};

use super::{BEGUN, Begun, ENDED, ORDER, Order};
use crate::files;

/// The file that is locked.
const FILE: &str = "claim";
/// How long until a claim is looked at again whose holder cannot be told.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The right to begin instances of a container. Dropping it gives it back.
#[derive(Debug)]
pub struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing the file would not do: a process that was forked meanwhile may have it open, too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was carried out: who runs, and its image.
    Begun(Begun, String),
    /// Nobody has carried it out, and nobody will.
    Nobody,
}

impl Claim {
    /// Takes it, as soon as nobody else has it.
    ///
    /// # Errors
    /// When the folder of the container is gone.
    pub fn take(container: &Path) -> io::Result<Self> {
        let file = open(container)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(Self(file))
    }

    /// Takes it, unless somebody else has it.
    ///
    /// # Errors
    /// When the folder of the container is gone.
    pub fn try_take(container: &Path) -> io::Result<Option<Self>> {
        let file = open(container)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes it for good: a supervisor that has it, and is about to begin a container, is ended. Nothing when the folder of the container
    /// is gone, or when somebody who cannot be told keeps it for so long.
    #[must_use]
    pub fn wrest(container: &Path, patience: Duration) -> Option<Self> {
        let begun = Instant::now();
        loop {
            if let Some(claim) = Self::try_take(container).ok()? {
                return Some(claim);
            }
            if begun.elapsed() >= patience {
                return None;
            }
            let holder = open(container).ok().and_then(|file| kernel::process::holder(&file));
            // Others of this process have it only in passing.
            let others = holder.filter(|who| who.pid != std::process::id().cast_signed());
            if let Some(handle) = others.and_then(|who| who.open().ok().flatten()) {
                handle.signal(Signal::KILL);
                let _ = handle.ends_within(patience);
            } else {
                // Whoever took it may be gone, and one of its children have the file open; the kernel knows no wait with an end for that.
                let _ = rustix::event::poll(&mut [], Some(&PAUSE));
            }
        }
    }

    /// The order of an instance, if it is still to be carried out.
    pub(super) fn order(&self, instance: &Path) -> Option<Order> {
        if instance.join(BEGUN).exists() || instance.join(ENDED).exists() {
            return None;
        }
        files::get(&instance.join(ORDER))
    }

    /// Says what became of the order of an instance; one that nobody has carried out is taken back.
    ///
    /// # Errors
    /// When it cannot be taken back.
    pub fn settle(&self, instance: &Path) -> io::Result<Settled> {
        if let Some(begun) = files::get(&instance.join(BEGUN)) {
            let image = files::get::<Order>(&instance.join(ORDER)).map_or_else(String::new, |order| order.image);
            return Ok(Settled::Begun(begun, image));
        }
        match fs::remove_file(instance.join(ORDER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Settled::Nobody),
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

    use super::super::{How, Program};
    use super::*;

    fn order(instance: &Path) {
        fs::create_dir_all(instance).expect("made");
        let how = How::Process {
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
        let order = Order {
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
        files::put(&instance.join(ORDER), &order).expect("written");
    }

    /// What a supervisor does, but for the container.
    fn carry_out(container: &Path, instance: &Path, count: &AtomicU32) {
        let Ok(claim) = Claim::take(container) else { return };
        if claim.order(instance).is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            let own = Identity::own().expect("this process");
            files::put(&instance.join(BEGUN), &Begun::new(own, own, Timestamp::UNIX_EPOCH)).expect("written");
        }
    }

    #[test]
    fn however_many_come_an_order_is_carried_out_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (container, instance) = (folder.path(), folder.path().join("0"));
        let count = AtomicU32::new(0);
        order(&instance);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| carry_out(container, &instance, &count));
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let claim = Claim::take(container).expect("free");
        assert!(matches!(claim.settle(&instance).expect("known"), Settled::Begun(_, image) if image == "host"));
    }

    #[test]
    fn an_order_that_was_taken_back_is_carried_out_by_nobody_until_it_is_given_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (container, instance) = (folder.path(), folder.path().join("0"));
        let count = AtomicU32::new(0);
        order(&instance);
        let claim = Claim::take(container).expect("free");
        assert!(Claim::try_take(container).expect("locks").is_none());
        assert!(Claim::wrest(container, Duration::from_millis(10)).is_none(), "this process ends itself for no claim");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| carry_out(container, &instance, &count));
            assert_eq!(claim.settle(&instance).expect("taken back"), Settled::Nobody);
            drop(claim);
            late.join().expect("it ends");
        });
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert!(Claim::wrest(container, Duration::from_secs(60)).is_some());
        // One who waited at the old folder and one of the new order: still only one of them begins.
        files::remove_folder(&instance).expect("removed");
        order(&instance);
        carry_out(container, &instance, &count);
        carry_out(container, &instance, &count);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(folder);
        assert!(Claim::take(Path::new("/nowhere")).is_err());
    }
}
