//! Notifications of the service manager (sd_notify): ready, watchdog, stopping.
//!
//! In: `$NOTIFY_SOCKET` and `$WATCHDOG_USEC`. Out: datagrams; none without the variables.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    address: Option<SocketAddr>,
    period: Option<Duration>,
}

impl Manager {
    /// From the environment.
    pub(crate) fn find() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let period = number("WATCHDOG_USEC").filter(|microseconds| is_us && *microseconds > 0);
        Self {
            address: std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name)),
            period: period.map(Duration::from_micros),
        }
    }

    /// Sends READY=1 with a status.
    pub(crate) fn ready(&self, what: &str) {
        self.send(&format!("READY=1\nSTATUS={what}"));
    }

    /// Sends STOPPING=1.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends WATCHDOG=1 at half the interval, each time after `alive` has completed. If that hangs, the service manager restarts us.
    pub(crate) async fn run_watchdog<F: Future<Output = ()>>(&self, mut alive: impl FnMut() -> F) {
        let Some(period) = self.period.filter(|_| self.address.is_some()) else { return std::future::pending().await };
        let mut clock = tokio::time::interval(period / 2);
        loop {
            clock.tick().await;
            alive().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, text: &str) {
        let Some(address) = &self.address else { return };
        // A manager that does not read must not block us.
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(text.as_bytes(), address)
        });
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }
}

/// The address of the socket: a path, or an abstract name after an @.
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
    async fn all_notifications_are_sent() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let ours = Manager { address: address(path.as_os_str()), period: Some(Duration::from_millis(20)) };
        let receive = || {
            let mut buffer = [0; 100];
            let length = manager.recv(&mut buffer).expect("a word");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        ours.ready("at https://127.0.0.1:6443");
        assert_eq!(receive(), "READY=1\nSTATUS=at https://127.0.0.1:6443");
        let mut asked = 0;
        let telling = ours.run_watchdog(|| {
            asked += 1;
            std::future::ready(())
        });
        let _ = tokio::time::timeout(Duration::from_millis(200), telling).await;
        assert_eq!((receive(), receive()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
        assert!(asked >= 2);
    }

    #[test]
    fn abstract_and_file_addresses_are_parsed() {
        assert!(address(OsStr::new("@waypost/x")).is_some_and(|found| found.as_abstract_name() == Some(b"waypost/x")));
        assert!(address(OsStr::new("relative")).is_none());
    }
}
