//! What must be true when a Pod is taken away.

use std::ffi::OsStr;
use std::fs::File;
use std::time::Instant;

use kernel::process::{Signal, Spawned};

use super::*;
use crate::home::Home;
use crate::shim::ORDER;

/// A program that keeps the claim of a container for ever, as a supervisor would that does not get on with its order.
fn stuck(container: &Path) -> Spawned {
    let nothing = || File::options().read(true).write(true).open("/dev/null").expect("a device").into();
    let claim = container.join("claim");
    let words = [OsStr::new("--no-fork"), claim.as_os_str(), OsStr::new("sleep"), OsStr::new("600")];
    let streams = [nothing(), nothing(), nothing()];
    let program = Spawned::begin(Path::new("flock"), &words, streams).expect("flock, of util-linux");
    while Claim::try_take(container).expect("a folder").is_some() {
        assert!(!program.handle.ends_within(Duration::from_millis(10)), "it has ended and not taken the claim");
    }
    program
}

#[test]
fn supervisors_that_are_about_to_begin_are_ended_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::new(folder.path()).pod("a-pod");
    let containers = ["one", "two"].map(|name| home.path().join("containers").join(name));
    for container in &containers {
        fs::create_dir_all(container.join("0")).expect("made");
        fs::write(container.join("0").join(ORDER), "{}").expect("written");
    }
    let supervisors = containers.each_ref().map(|container| stuck(container));
    let begun = Instant::now();
    end_processes(&Cgroups::Nothing, &home, "none").expect("ended");
    assert!(begun.elapsed() < PATIENCE, "they were waited for: {:?}", begun.elapsed());
    for (supervisor, container) in supervisors.iter().zip(&containers) {
        assert!(supervisor.handle.has_ended());
        assert!(!container.join("0").join(ORDER).exists(), "the order could still be carried out");
        assert!(Claim::try_take(container).expect("a folder").is_some());
    }
}

#[test]
fn a_supervisor_for_whose_end_nobody_asks_holds_nobody_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::new(folder.path()).pod("a-pod");
    let instance = home.path().join("containers/one/0");
    fs::create_dir_all(&instance).expect("made");
    let mut supervisor = stuck(&home.path().join("containers/one"));
    let claim = File::open(home.path().join("containers/one/claim")).expect("the claim");
    let identity = loop {
        match kernel::process::holder(&claim) {
            Some(identity) => break identity,
            // Where very many locks are, it cannot always be told.
            None => assert!(!supervisor.handle.ends_within(Duration::from_millis(10)), "it has ended"),
        }
    };
    assert!(supervisor.handle.signal(Signal::KILL) && supervisor.handle.ends_within(PATIENCE));
    assert!(identity.is_there(), "nobody has waited for it yet");
    files::put(&instance.join(BEGUN), &Begun::new(identity, identity, jiff::Timestamp::UNIX_EPOCH)).expect("written");
    let begun = Instant::now();
    end_processes(&Cgroups::Nothing, &home, "none").expect("ended");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    supervisor.wait().expect("ours to wait for");
}
