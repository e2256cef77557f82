//! A network namespace that is held by a file descriptor and by nothing else.
//!
//! In: nothing, or a piece of work. Out: the work done inside. No name is left in `/run/netns` and no process sits in it, so
//! the kernel removes the namespace with all its links when the last descriptor is closed: at the end of a test, after a
//! panic, and when the tests are killed. There is nothing to sweep.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::panic::resume_unwind;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// An open network namespace.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// Makes a namespace.
    pub(super) fn new() -> Self {
        let made =
            std::thread::scope(|scope| scope.spawn(unshared).join()).unwrap_or_else(|panic| resume_unwind(panic));
        Self(
            made.unwrap_or_else(|error| {
                panic!("a network namespace could not be made; these tests need root: {error}")
            }),
        )
    }

    /// Does this work on a thread that is inside.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Moves the calling thread inside. It must be one that ends soon or belongs here.
    pub(super) fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the namespace can be entered");
    }

    /// A path by which other processes find it, as long as this process runs.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Sets a parameter of the network, such as `net/ipv4/ip_forward`.
    pub(super) fn sysctl(&self, name: &str, value: &str) {
        self.within(|| write_sysctl(name, value));
    }

    /// Sets several parameters.
    pub(super) fn sysctls(&self, all: &[(&str, &str)]) {
        self.within(|| all.iter().for_each(|(name, value)| write_sysctl(name, value)));
    }
}

/// Parameters below `/proc/sys/net` are those of the namespace of the thread that opens the file.
fn write_sysctl(name: &str, value: &str) {
    let path = Path::new("/proc/sys").join(name);
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{} = {value}: {error}", path.display()));
}

/// The namespace that this thread, which must end at once, has just got for itself.
#[expect(
    deprecated,
    reason = "it is only unsafe for file tables, which stay shared here; the other form needs `unsafe`"
)]
fn unshared() -> io::Result<File> {
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    File::open("/proc/thread-self/ns/net")
}
