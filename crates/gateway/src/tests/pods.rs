//! Pods that answer as a test wishes, and remember what they were asked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// A pod on loopback. It says of each request what its head was.
#[derive(Clone)]
pub(super) struct Pod {
    pub(super) address: SocketAddr,
    /// The heads that came, with their bodies behind them.
    pub(super) heard: Arc<Mutex<Vec<String>>>,
    /// How many connections came.
    pub(super) connections: Arc<Mutex<usize>>,
}

/// What a pod does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Answers, and waits for the next.
    Good,
    /// Answers, and hangs up without a word of it.
    Leaving,
    /// Hangs up.
    Rude,
    /// Says nothing.
    Silent,
}

impl Pod {
    pub(super) fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let pod = Self {
            address: listener.local_addr().expect("an address"),
            heard: Arc::default(),
            connections: Arc::default(),
        };
        let server = pod.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *server.connections.lock() += 1;
                let server = server.clone();
                std::thread::spawn(move || server.serve(&stream, manner));
            }
        });
        pod
    }

    fn serve(&self, stream: &TcpStream, manner: Manner) -> Option<()> {
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
            self.heard.lock().push(format!("{head}{body}"));
            match manner {
                Manner::Rude => return stream.shutdown(std::net::Shutdown::Both).ok(),
                Manner::Silent => continue,
                Manner::Good | Manner::Leaving => {}
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
            if manner == Manner::Leaving {
                return stream.shutdown(std::net::Shutdown::Both).ok();
            }
        }
    }

    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().clone()
    }
}

/// Reads a body as a pod does that trusts whoever is in front of it.
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
