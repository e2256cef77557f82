//! A connection on which a test writes the bytes it likes and reads the bytes that come.
//!
//! In: a server, whose certificates to show, which versions of TLS to speak. Out: HTTP/1.1 answers taken apart by hand, so
//! that nothing between the test and the server is polite on the server's behalf. Nothing here waits for ever.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use serde_json::Value;

use crate::Server;
use crate::session::{Answer, TIMEOUT};

/// A TLS connection to a server.
pub struct Wire {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// What was read and not yet consumed.
    unread: Vec<u8>,
}

impl Wire {
    /// A connection of the administrator.
    #[must_use]
    #[track_caller]
    pub fn admin(server: &Server) -> Self {
        Self::open(server, Some(server.home()), rustls::ALL_VERSIONS).expect("a connection")
    }

    /// A connection that shows no certificate.
    #[must_use]
    #[track_caller]
    pub fn anonymous(server: &Server) -> Self {
        Self::open(server, None, rustls::ALL_VERSIONS).expect("a connection")
    }

    /// A connection that shows the administrator's certificate from a data directory, which may be that of another server.
    ///
    /// # Errors
    /// When the handshake fails.
    pub fn open(
        server: &Server,
        identity: Option<&Path>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(server.home(), "ca.crt") {
            roots.add(certificate).expect("an authority");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        let config = match identity {
            Some(home) => {
                let key = PrivateKeyDer::from_pem_file(home.join("pki/admin.key")).expect("a key");
                builder.with_client_auth_cert(certificates(home, "admin.crt"), key).expect("an identity")
            }
            None => builder.with_no_client_auth(),
        };
        let mut socket = TcpStream::connect(&server.address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self { stream: StreamOwned::new(connection, socket), unread: Vec::new() })
    }

    /// Binds a ClusterRole to a user in the namespace `default`; the connection is the administrator's.
    #[track_caller]
    pub fn bind(&mut self, role: &str, user: &str) {
        let group = "rbac.authorization.k8s.io";
        let binding = serde_json::json!({
            "metadata": {"generateName": "test-"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let path = format!("/apis/{group}/v1/namespaces/default/rolebindings");
        let media = ("Content-Type", "application/json");
        let _ = self.ask("POST", &path, &[media], binding.to_string().as_bytes()).success();
    }

    /// The version of TLS that was agreed on.
    #[must_use]
    pub fn version(&self) -> Option<rustls::ProtocolVersion> {
        self.stream.conn.protocol_version()
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When the server does not accept them any more.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request and reads the whole answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(&request(method, path, headers, body)).expect("sent");
        let mut reply = self.head().expect("an answer");
        if method != "HEAD" {
            reply.body = self.body(&reply).expect("a body");
        }
        reply
    }

    /// Reads the status line and the headers of an answer.
    ///
    /// # Errors
    /// When the connection ends first.
    pub fn head(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code = code.ok_or_else(|| io::Error::other(format!("no status line: {line}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Reply { code, headers, body: Vec::new() })
    }

    /// Reads the body that belongs to a head.
    ///
    /// # Errors
    /// When the connection ends first.
    pub fn body(&mut self, head: &Reply) -> io::Result<Vec<u8>> {
        if head.header("transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
            return Ok(body);
        }
        let length = head.header("content-length").and_then(|length| length.parse().ok());
        self.exactly(length.unwrap_or(0))
    }

    /// Reads the next piece of a chunked body; `None` when it has ended as it should.
    ///
    /// # Errors
    /// When the connection ends in the middle.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(|_| io::Error::other(format!("no size: {line}")))?;
        let chunk = self.exactly(size)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }

    /// Whether the server has closed the connection; reads what is left.
    pub fn closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.fill_some()?;
        }
    }

    fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.fill_some()?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn fill_some(&mut self) -> io::Result<()> {
        match self.fill()? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        let read = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

pub(crate) fn certificates(home: &Path, file: &str) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(home.join("pki").join(file)).expect("a certificate file");
    found.map(|certificate| certificate.expect("a certificate")).collect()
}

/// The bytes of a request; a body comes with its length.
#[must_use]
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        out.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    out.push_str("\r\n");
    let mut out = out.into_bytes();
    out.extend_from_slice(body);
    out
}

/// An answer, as it came.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub code: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body; empty as long as it has not been read.
    pub body: Vec<u8>,
}

impl Reply {
    /// The first header of a name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code, and the body as JSON.
    #[must_use]
    #[track_caller]
    pub fn answer(&self) -> Answer {
        let body = serde_json::from_slice(&self.body);
        Answer { code: self.code, body: body.unwrap_or_else(|error| panic!("{error}: {}", self.text())) }
    }

    /// The object, when the request was carried out.
    #[must_use]
    #[track_caller]
    pub fn success(&self) -> Value {
        self.answer().success()
    }

    /// The message, when the request was refused with this code.
    #[must_use]
    #[track_caller]
    pub fn refused(&self, code: u16) -> String {
        self.answer().refused(code)
    }
}
