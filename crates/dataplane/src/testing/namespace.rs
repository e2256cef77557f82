//! A network namespace for one test, deleted when the test ends.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A namespace with loopback only.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace.
    pub(crate) fn new() -> Self {
        let name = format!("wpd-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(&["add", &name]);
        Self { name }
    }

    /// Runs a closure inside, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let file = File::open(&path).expect("the namespace");
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may move");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run(&["del", &self.name]);
    }
}

#[expect(clippy::disallowed_methods, reason = "namespaces are made by the host's own program")]
fn run(arguments: &[&str]) {
    let mut command = Command::new("ip");
    command.arg("netns").args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let done = command.status().unwrap_or_else(|error| panic!("ip: {error}; install iproute2"));
    assert!(done.success() || std::thread::panicking(), "ip netns {arguments:?} (root?)");
}
