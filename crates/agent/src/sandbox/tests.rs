//! Removal of a Pod's processes.

use std::ffi::OsStr;
use std::fs::File;
use std::time::Instant;

use kernel::process::{Signal, Spawned};

use super::*;
use crate::data_dir::AgentDir;
use crate::shim::SPEC_FILE;

/// A process that holds the start lock of a container, like a shim that hangs.
fn stuck(container: &Path) -> Spawned {
    let nothing = || File::options().read(true).write(true).open("/dev/null").expect("a device").into();
    let lock = container.join("claim");
    let words = [OsStr::new("--no-fork"), lock.as_os_str(), OsStr::new("sleep"), OsStr::new("600")];
    let streams = [nothing(), nothing(), nothing()];
    let program = Spawned::begin(Path::new("flock"), &words, streams).expect("flock, of util-linux");
    while StartLock::try_take(container).expect("a folder").is_some() {
        assert!(!program.handle.ends_within(Duration::from_millis(10)), "it exited without taking the lock");
    }
    program
}

#[test]
fn shims_that_are_starting_a_container_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = AgentDir::new(folder.path()).pod("a-pod");
    let containers = ["one", "two"].map(|name| dir.path().join("containers").join(name));
    for container in &containers {
        fs::create_dir_all(container.join("0")).expect("made");
        fs::write(container.join("0").join(SPEC_FILE), "{}").expect("written");
    }
    let supervisors = containers.each_ref().map(|container| stuck(container));
    let started = Instant::now();
    kill_all_processes(&Cgroups::Nothing, &dir, "none").expect("ended");
    assert!(started.elapsed() < LOCK_TIMEOUT, "they were not killed at once: {:?}", started.elapsed());
    for (supervisor, container) in supervisors.iter().zip(&containers) {
        assert!(supervisor.handle.has_ended());
        assert!(!container.join("0").join(SPEC_FILE).exists(), "the container could still be started");
        assert!(StartLock::try_take(container).expect("a folder").is_some());
    }
}

#[test]
fn a_zombie_shim_does_not_block_the_removal() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = AgentDir::new(folder.path()).pod("a-pod");
    let instance = dir.path().join("containers/one/0");
    fs::create_dir_all(&instance).expect("made");
    let mut supervisor = stuck(&dir.path().join("containers/one"));
    let lock = File::open(dir.path().join("containers/one/claim")).expect("the claim");
    let identity = loop {
        match kernel::process::holder(&lock) {
            Some(identity) => break identity,
            // With very many locks the holder cannot always be determined.
            None => assert!(!supervisor.handle.ends_within(Duration::from_millis(10)), "it has ended"),
        }
    };
    assert!(supervisor.handle.signal(Signal::KILL) && supervisor.handle.ends_within(LOCK_TIMEOUT));
    assert!(identity.is_there(), "it was not reaped yet");
    files::put(&instance.join(START_FILE), &StartRecord::new(identity, identity, jiff::Timestamp::UNIX_EPOCH))
        .expect("written");
    let started = Instant::now();
    kill_all_processes(&Cgroups::Nothing, &dir, "none").expect("ended");
    assert!(started.elapsed() < LOCK_TIMEOUT, "{:?}", started.elapsed());
    supervisor.wait().expect("ours to wait for");
}
