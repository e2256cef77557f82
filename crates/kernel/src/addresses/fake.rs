//! Addresses in memory. Clones share them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Address, Addresses, AddressesError, Monitor};

/// A machine with addresses.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    addresses: BTreeSet<Address>,
    listeners: Vec<Sender<()>>,
}

impl Fake {
    /// Replaces the addresses and notifies monitors.
    pub fn set(&self, addresses: impl IntoIterator<Item = Address>) {
        let mut inner = self.0.lock();
        inner.addresses = addresses.into_iter().collect();
        inner.listeners.retain(|listener| listener.send(()).is_ok());
    }

    /// Monitors changes.
    #[must_use]
    pub fn monitor(&self) -> Watcher {
        let (sender, receiver) = channel();
        self.0.lock().listeners.push(sender);
        Watcher(receiver)
    }
}

impl Addresses for Fake {
    fn list(&mut self) -> Result<BTreeSet<Address>, AddressesError> {
        Ok(self.0.lock().addresses.clone())
    }
}

/// Monitors the addresses of a [`Fake`].
pub struct Watcher(Receiver<()>);

impl Monitor for Watcher {
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, AddressesError> {
        let heard = match timeout {
            Some(timeout) => self.0.recv_timeout(timeout),
            None => self.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(()) => {
                // Coalesce pending notifications.
                while self.0.try_recv().is_ok() {}
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(AddressesError { errno: Errno::PIPE, doing: "listening" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_changes_are_one_notification() {
        let mut fake = Fake::default();
        let mut watcher = fake.monitor();
        let address = Address { ip: [192, 0, 2, 1].into(), prefix_len: 24, interface: 2 };
        fake.set([]);
        fake.set([address]);
        assert!(watcher.wait(Some(Duration::ZERO)).expect("heard"));
        assert!(!watcher.wait(Some(Duration::ZERO)).expect("heard"));
        assert_eq!(fake.list().expect("listed"), BTreeSet::from([address]));
    }
}
