//! Notifications of changes of our tables by other programs, but not by us.

use std::time::Duration;

use kernel::nft::linux::{Linux, Watcher};
use kernel::nft::{Batch, Change, Family, Monitor, Name, Nft, Touch};

use crate::namespace::Namespace;
use crate::sample::{self, TABLE};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

/// Events until the table is deleted, without repetitions.
fn until_deleted(watcher: &mut Watcher, family: Family) -> Vec<Touch> {
    let mut heard = Vec::new();
    while !heard.contains(&Touch::Deleted(family)) {
        let touch = watcher.wait(TIMEOUT).expect("listening").expect("news in time");
        if !heard.contains(&touch) {
            heard.push(touch);
        }
    }
    heard
}

#[test]
fn only_changes_by_others_are_reported() {
    let namespace = Namespace::new();
    let (mut nft, mut watcher) = namespace.inside(|| {
        let nft = Linux::open().expect("a socket");
        let watcher = Watcher::open(TABLE, nft.portid()).expect("a listener");
        (nft, watcher)
    });
    for family in Family::ALL {
        nft.apply(&sample::make(family, &sample::table(family))).expect("applied");
    }
    assert_eq!(watcher.wait(Some(Duration::ZERO)).expect("listening"), None);

    namespace.tool("nft", &["add", "table", "ip", "other"]);
    assert_eq!(watcher.wait(Some(Duration::ZERO)).expect("listening"), None, "another table is not ours");
    namespace.tool("nft", &["add", "element", "ip6", TABLE, "ports", "{ 22 }"]);
    assert_eq!(watcher.wait(TIMEOUT).expect("listening"), Some(Touch::Changed(Family::Ip6)));
    namespace.tool("nft", &["flush", "chain", "ip", TABLE, "two"]);
    assert_eq!(watcher.wait(TIMEOUT).expect("listening"), Some(Touch::Changed(Family::Ip)));

    let delete = Change::DeleteTable(Family::Ip6, Name::from(TABLE));
    nft.apply(&Batch { changes: vec![delete] }).expect("deleted");
    assert_eq!(watcher.wait(Some(Duration::ZERO)).expect("listening"), None);
    namespace.tool("nft", &["flush", "ruleset"]);
    assert_eq!(until_deleted(&mut watcher, Family::Ip).last(), Some(&Touch::Deleted(Family::Ip)));
    assert_eq!(watcher.wait(Some(Duration::ZERO)).expect("listening"), None, "IPv6 was gone before");
}

#[test]
fn a_blocked_monitor_wakes_up() {
    let namespace = Namespace::new();
    namespace.tool("nft", &["add", "table", "ip", TABLE]);
    let mut watcher = namespace.inside(|| Watcher::open(TABLE, 0).expect("a listener"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watcher.wait(None).expect("listening"));
        namespace.tool("nft", &["delete", "table", "ip", TABLE]);
        assert_eq!(waiting.join().expect("woken"), Some(Touch::Deleted(Family::Ip)));
    });
}
