//! Addresses of a machine: list and notifications.

use std::time::Duration;

use kernel::addresses::linux::{Linux, Watcher};
use kernel::addresses::{Addresses, Monitor};

use crate::namespace::Namespace;

#[test]
fn addresses_are_listed_and_changes_are_reported() {
    let namespace = Namespace::new();
    let (mut addresses, mut watcher) = namespace.inside(|| {
        namespace.tool("ip", &["link", "add", "dummy0", "type", "bridge"]);
        (Linux::open().expect("a socket"), Watcher::open().expect("a listener"))
    });
    let mut list = || addresses.list().expect("listed").into_iter().map(|one| (one.ip.to_string(), one.prefix_len));
    assert_eq!(list().collect::<Vec<_>>(), [("127.0.0.1".to_owned(), 8), ("::1".to_owned(), 128)]);
    assert!(!watcher.wait(Some(Duration::ZERO)).expect("listening"));
    for (address, prefix_len) in [("192.0.2.7", 24), ("2001:db8::7", 64)] {
        let whole = format!("{address}/{prefix_len}");
        namespace.tool("ip", &["address", "add", &whole, "dev", "dummy0"]);
        assert!(watcher.wait(Some(Duration::from_secs(20))).expect("listening"), "{whole} came");
        assert!(list().any(|one| one == (address.to_owned(), prefix_len)), "{whole} is there");
        namespace.tool("ip", &["address", "del", &whole, "dev", "dummy0"]);
        assert!(watcher.wait(Some(Duration::from_secs(20))).expect("listening"), "{whole} went");
        assert!(!list().any(|one| one.0 == address), "{whole} is gone");
    }
}
