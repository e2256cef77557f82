//! HTTP requests from inside a namespace, to pages for people and load balancers.
//!
//! In: address and path. Out: code, headers and body; or nothing when the connection is
//! refused.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Address, Host};

/// Far more than a page takes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status code.
    pub code: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Page {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let header = |line: &str| line.split_once(": ").map(|(key, value)| (key.to_lowercase(), value.to_owned()));
        Some(Self { code, headers: lines.filter_map(header).collect(), body: body.to_owned() })
    }
}

impl Host {
    /// Requests a page; none when the connection is refused or returns no page.
    pub fn page(&self, address: impl Address, port: u16, path: &str) -> Option<Page> {
        let at = SocketAddr::new(address.address(), port);
        self.in_namespace(|| {
            let mut stream = TcpStream::connect_timeout(&at, TIMEOUT).ok()?;
            stream.set_read_timeout(Some(TIMEOUT)).ok()?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Page::parse(&text)
        })
    }
}
