//! A minimal HTTP/1.1 client and server for the demo: one request and one response per connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of a connection, and of each read.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a body, in bytes.
const MAX_BODY: u64 = 4 << 20;

/// A request or a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Its first line.
    pub(super) first: String,
    /// Names in lower case, and values.
    pub(super) headers: Vec<(String, String)>,
    /// Its body.
    pub(super) body: Vec<u8>,
}

impl Message {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The second word of the first line: the path of a request, the code of a response.
    pub(super) fn subject(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// Its body as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads one.
    pub(super) fn read(stream: &mut impl io::Read) -> io::Result<Self> {
        let mut reader = BufReader::new(stream.take(MAX_BODY));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended in the middle"));
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let header = |line: &String| line.split_once(": ").map(|(key, value)| (key.to_lowercase(), value.to_owned()));
        let mut lines = lines.into_iter();
        let first = lines.next().unwrap_or_default();
        let mut message = Self { first, headers: lines.filter_map(|line| header(&line)).collect(), body: Vec::new() };
        let length = message.header("content-length").parse().unwrap_or(0_u64).min(MAX_BODY);
        message.body = vec![0; usize::try_from(length).unwrap_or_default()];
        reader.read_exact(&mut message.body)?;
        Ok(message)
    }

    /// Writes it.
    pub(super) fn write(&self, stream: &mut impl io::Write) -> io::Result<()> {
        let mut out = format!("{}\r\n", self.first).into_bytes();
        for (name, value) in &self.headers {
            write!(out, "{name}: {value}\r\n")?;
        }
        write!(out, "content-length: {}\r\nconnection: close\r\n\r\n", self.body.len())?;
        out.extend(&self.body);
        stream.write_all(&out)
    }
}

/// Sends a request and reads the response, with a timeout of the connection and of each read.
pub(super) fn ask(to: SocketAddr, path: &str, body: &[u8], timeout: Duration) -> io::Result<Message> {
    let mut stream = TcpStream::connect_timeout(&to, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let headers = vec![("host".to_owned(), to.to_string())];
    Message { first: format!("{method} {path} HTTP/1.1"), headers, body: body.to_vec() }.write(&mut stream)?;
    Message::read(&mut stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let headers = vec![("x-pod".to_owned(), "a".to_owned())];
        let message = Message { first: "POST /thumbnail HTTP/1.1".to_owned(), headers, body: vec![0, 13, 10, 13, 10] };
        let mut bytes = Vec::new();
        message.write(&mut bytes).expect("written");
        let read = Message::read(&mut &bytes[..]).expect("read");
        assert_eq!((read.subject(), read.header("x-pod"), &read.body), ("/thumbnail", "a", &message.body));
        bytes.pop();
        assert!(Message::read(&mut &bytes[..]).is_err(), "a truncated message is an error");
    }
}
