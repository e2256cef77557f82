//! Test pods that respond as configured and record requests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// Pod on loopback. Its response body is the request head.
#[derive(Clone)]
pub(super) struct Pod {
    pub(super) address: SocketAddr,
    /// Request heads with their bodies.
    pub(super) requests: Arc<Mutex<Vec<String>>>,
    /// Number of connections.
    pub(super) connections: Arc<Mutex<usize>>,
}

/// Reaction of a pod to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Responds and waits for the next request.
    Good,
    /// Responds and closes without announcing it.
    CloseAfterResponse,
    /// Closes.
    CloseImmediately,
    /// Does not respond.
    Silent,
}

impl Pod {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let pod = Self {
            address: listener.local_addr().expect("an address"),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let server = pod.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *server.connections.lock() += 1;
                let server = server.clone();
                std::thread::spawn(move || server.serve(&stream, behaviour));
            }
        });
        pod
    }

    fn serve(&self, stream: &TcpStream, behaviour: Behaviour) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut writer = stream.try_clone().ok()?;
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).ok()? == 0 {
                    return None;
                }
            }
            let body = body(&head.to_lowercase(), &mut reader)?;
            self.requests.lock().push(format!("{head}{body}"));
            match behaviour {
                Behaviour::CloseImmediately => return stream.shutdown(std::net::Shutdown::Both).ok(),
                Behaviour::Silent => continue,
                Behaviour::Good | Behaviour::CloseAfterResponse => {}
            }
            let length = if head.starts_with("HEAD") { 0 } else { head.len() };
            let answer = &head[..length];
            write!(
                writer,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: timeout=5\r\nX-Pod: {}\r\n\r\n{answer}",
                head.len(),
                self.address
            )
            .ok()?;
            if behaviour == Behaviour::CloseAfterResponse {
                return stream.shutdown(std::net::Shutdown::Both).ok();
            }
        }
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

/// Reads a body like a server that trusts its proxy.
fn body(head: &str, reader: &mut impl std::io::BufRead) -> Option<String> {
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
    if value("transfer-encoding:").is_some() {
        let mut all = String::new();
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut piece = vec![0; size + 2];
            reader.read_exact(&mut piece).ok()?;
            if size == 0 {
                return Some(all);
            }
            all.push_str(&String::from_utf8_lossy(&piece[..size]));
        }
    }
    let length = value("content-length:").map_or(Some(0), |length| length.parse().ok())?;
    let mut all = vec![0; length];
    reader.read_exact(&mut all).ok()?;
    Some(String::from_utf8_lossy(&all).into_owned())
}
