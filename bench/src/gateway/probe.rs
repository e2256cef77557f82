//! Requests from outside, one after the other on one connection: when does a change take effect?
//!
//! In: a host and a path. Out: the status of a response, or how long it took until it was the expected one. The calling thread waits for each
//! response, so that nothing lies between its arrival and its time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use testbed::net::Outside;

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between attempts to reach a Gateway.
const LOOK: Duration = Duration::from_millis(5);
/// The longest response, in bytes.
const LONGEST: usize = 1 << 16;

/// See the module.
pub struct Probe {
    from: Outside,
    to: SocketAddr,
    stream: Option<TcpStream>,
    /// Connections that ended without having been asked to.
    pub lost: usize,
    /// Responses that were neither what was waited for nor 404: what a client would see as a failure.
    pub failures: usize,
}

impl Probe {
    /// A probe from a machine to an address.
    #[must_use]
    pub fn new(from: &Outside, to: SocketAddr) -> Self {
        Self { from: from.clone(), to, stream: None, lost: 0, failures: 0 }
    }

    /// The status of one response.
    ///
    /// # Errors
    /// When there is none.
    pub fn status(&mut self, host: &str, path: &str) -> anyhow::Result<u16> {
        if let Some(mut stream) = self.stream.take() {
            if let Ok(status) = ask(&mut stream, host, path) {
                self.stream = Some(stream);
                return Ok(status);
            }
            self.lost += 1;
        }
        let to = self.to;
        let stream = self.from.in_namespace(|| TcpStream::connect_timeout(&to, TIMEOUT));
        let mut stream = stream.with_context(|| format!("connecting to {to}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let status = ask(&mut stream, host, path)?;
        self.stream = Some(stream);
        Ok(status)
    }

    /// Asks until an answer has this status. Before, connections may fail: a Gateway is programmed before all nodes have its rules.
    ///
    /// # Errors
    /// When there is no such answer in time.
    pub fn until_reached(&mut self, host: &str, wanted: u16, limit: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            match self.status(host, "/") {
                Ok(status) if status == wanted => return Ok(()),
                got if begun.elapsed() > limit => bail!("after {limit:?} the Gateway is not reached: {got:?}"),
                _ => std::thread::park_timeout(LOOK),
            }
        }
    }

    /// Asks until the status is this one; how long it took from `since` to the end of that response.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn until(
        &mut self,
        (host, path): (&str, &str),
        wanted: u16,
        since: Instant,
        limit: Duration,
    ) -> anyhow::Result<Duration> {
        loop {
            let status = self.status(host, path)?;
            if status == wanted {
                return Ok(since.elapsed());
            }
            if ![200, 404].contains(&status) {
                self.failures += 1;
            }
            ensure!(since.elapsed() < limit, "after {limit:?} {host}{path} is still answered with {status}");
        }
    }
}

/// One request, and its response to the last byte.
fn ask(stream: &mut TcpStream, host: &str, path: &str) -> anyhow::Result<u16> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: bench/1\r\n\r\n").as_bytes())?;
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some((status, length)) = complete(&seen)? {
            ensure!(seen.len() == length, "more than one response");
            return Ok(status);
        }
        match stream.read(&mut piece)? {
            0 => bail!("the connection ended within a response"),
            count => seen.extend_from_slice(&piece[..count]),
        }
        ensure!(seen.len() < LONGEST, "a response that does not end");
    }
}

/// The status and the length of a response with a `Content-Length`, when it is complete.
fn complete(seen: &[u8]) -> anyhow::Result<Option<(u16, usize)>> {
    let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&seen[..end]).context("a head that is no text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).context("a status line")?;
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.context("a response without its length")?.1.trim().parse().context("a length")?;
    let all = end + 4 + length;
    Ok((seen.len() >= all).then_some((status, all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_with_its_last_byte() {
        let response = b"HTTP/1.1 404 Not Found\r\nDate: x\r\ncontent-length: 3\r\n\r\nabc";
        for end in 0..response.len() {
            assert_eq!(complete(&response[..end]).expect("a head"), None, "{end}");
        }
        assert_eq!(complete(response).expect("a head"), Some((404, response.len())));
        assert!(complete(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
