//! Tells the service manager how we are: ready, alive, about to end.
//!
//! In: the socket that it names in `$NOTIFY_SOCKET`, and how often it wants to hear in `$WATCHDOG_USEC`. Out: datagrams. Where nobody
//! asked, nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Whoever started us, if it listens.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    address: Option<SocketAddr>,
    period: Option<Duration>,
}

impl Manager {
    /// As the environment says.
    pub(crate) fn find() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let period = number("WATCHDOG_USEC").filter(|microseconds| is_us && *microseconds > 0);
        Self {
            address: std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name)),
            period: period.map(Duration::from_micros),
        }
    }

    /// Everything works.
    pub(crate) fn ready(&self, what: &str) {
        self.say(&format!("READY=1\nSTATUS={what}"));
    }

    /// We are about to end.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Says for ever that we are alive, twice as often as is asked, each time after `alive` has come back. When that hangs, so do we, and
    /// are started anew.
    pub(crate) async fn keep_telling<F: Future<Output = ()>>(&self, mut alive: impl FnMut() -> F) {
        let Some(period) = self.period.filter(|_| self.address.is_some()) else { return std::future::pending().await };
        let mut clock = tokio::time::interval(period / 2);
        loop {
            clock.tick().await;
            alive().await;
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, text: &str) {
        let Some(address) = &self.address else { return };
        // A manager that does not read must not hold us up.
        let said = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(text.as_bytes(), address)
        });
        if let Err(error) = said {
            tracing::debug!(%error, "the service manager cannot be told");
        }
    }
}

/// The address that a name stands for: a path, or with an @ in front a name without a file.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_listens_hears_all_of_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let ours = Manager { address: address(path.as_os_str()), period: Some(Duration::from_millis(20)) };
        let hear = || {
            let mut buffer = [0; 100];
            let length = manager.recv(&mut buffer).expect("a word");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        ours.ready("at https://127.0.0.1:6443");
        assert_eq!(hear(), "READY=1\nSTATUS=at https://127.0.0.1:6443");
        let mut asked = 0;
        let telling = ours.keep_telling(|| {
            asked += 1;
            std::future::ready(())
        });
        let _ = tokio::time::timeout(Duration::from_millis(200), telling).await;
        assert_eq!((hear(), hear()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
        assert!(asked >= 2);
    }

    #[test]
    fn names_without_a_file_and_other_names() {
        assert!(address(OsStr::new("@waypost/x")).is_some_and(|found| found.as_abstract_name() == Some(b"waypost/x")));
        assert!(address(OsStr::new("relative")).is_none());
    }
}
