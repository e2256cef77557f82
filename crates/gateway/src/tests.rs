//! Listeners, workers and pods in one process, over loopback: what passes, what is refused, and what is done about pods that fail.

mod answers;
mod hostile;
mod pods;
mod requests;
mod secure;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::door::Door;
use crate::endpoints::Found;
use crate::lane::Lane;
use crate::limits::Limits;
use crate::tls::{Back as BackTls, Certificate};
use crate::wanted::{Back, Front, Mode, Port};
use crate::workers::Workers;

/// Far more than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A port of a Service with its listener. The runtime lets it in, its workers serve.
struct Bed {
    lane: Arc<Lane>,
    certificate: Arc<Certificate>,
    door: Option<Door>,
    address: SocketAddr,
    workers: Arc<Workers>,
    _runtime: Runtime,
}

/// A port that is plain in front and behind.
fn port(mode: Mode) -> Port {
    Port {
        name: "web".into(),
        number: 80,
        front: Front::Plain,
        mode,
        back: Back::Plain,
        h2: false,
        proxy_protocol: false,
        idle: None,
    }
}

impl Bed {
    fn new(port: Port, pods: &[SocketAddr]) -> Self {
        Self::with(port, pods, Limits::default())
    }

    fn with(port: Port, pods: &[SocketAddr], limits: Limits) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (workers, certificate) = (Arc::new(Workers::new()), Arc::<Certificate>::default());
        let back = BackTls::new().expect("ciphers");
        let lane = Arc::new(Lane::new("shop/web", port, limits, &certificate, &back).expect("a lane"));
        let inside = runtime.enter();
        let door = Door::open(IpAddr::V4(Ipv4Addr::LOCALHOST), &lane, &workers).expect("a port");
        drop(inside);
        let bed = Self { address: door.address, lane, certificate, door: Some(door), workers, _runtime: runtime };
        bed.lead(pods);
        bed
    }

    /// Makes these its pods.
    fn lead(&self, pods: &[SocketAddr]) {
        let found = Found { usable: pods.iter().copied().collect(), elsewhere: 0 };
        let renewed = self.lane.backends.load().renewed(&found, self.workers.count());
        self.lane.backends.store(Arc::new(renewed));
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("patience");
        stream
    }

    /// A connection of somebody who has this address.
    fn connect_from(&self, ip: Ipv4Addr) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(SocketAddr::new(ip.into(), 0)).expect("an address of loopback");
            socket.connect(self.address).await.expect("a connection").into_std()
        });
        let stream = stream.expect("a plain one");
        stream.set_nonblocking(false).expect("one that waits");
        stream.set_read_timeout(Some(PATIENCE)).expect("patience");
        stream
    }

    /// Sends this as it is, and answers all that comes back until the other side hangs up.
    fn say(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        rest_of(stream)
    }
}

fn rest_of(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    // A reset says no more than an end.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// The next answer on a connection: its head and its body, which has a length.
fn next_answer(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("more of a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.trim().parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}
