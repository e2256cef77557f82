//! Listeners, workers and pods in one process over loopback.

mod access_log;
mod answers;
mod hostile;
mod pods;
pub(crate) mod requests;
mod secure;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::annotations::{BackendProtocol, ClientProtocol, Mode, Port};
use crate::endpoints::EndpointSet;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::port_config::PortConfig;
use crate::tls::{Certificate, UpstreamTls};
use crate::workers::Workers;

/// Longer than any test takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Port of a Service with its listener.
struct TestPort {
    port_config: Arc<PortConfig>,
    certificate: Arc<Certificate>,
    port_listener: Option<Listener>,
    address: SocketAddr,
    workers: Arc<Workers>,
    _runtime: Runtime,
}

/// Port without TLS towards clients and pods.
fn port(mode: Mode) -> Port {
    Port {
        name: "web".into(),
        number: 80,
        front: ClientProtocol::Plain,
        mode,
        back: BackendProtocol::Plain,
        h2: false,
        proxy_protocol: false,
        idle: None,
    }
}

impl TestPort {
    fn new(port: Port, pods: &[SocketAddr]) -> Self {
        Self::with(port, pods, Limits::default())
    }

    fn with(port: Port, pods: &[SocketAddr], limits: Limits) -> Self {
        Self::configured(port, pods, limits, |_| {})
    }

    fn configured(port: Port, pods: &[SocketAddr], limits: Limits, configure: impl FnOnce(&mut PortConfig)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (workers, certificate) = (Arc::new(Workers::new()), Arc::<Certificate>::default());
        let back = Arc::new(UpstreamTls::new().expect("ciphers"));
        let port_config = PortConfig::of_service("shop/web", port, limits, &certificate, &back, Arc::default());
        let mut port_config = port_config.expect("a port configuration");
        configure(&mut port_config);
        let port_config = Arc::new(port_config);
        let inside = runtime.enter();
        let port_listener = Listener::open(IpAddr::V4(Ipv4Addr::LOCALHOST), &port_config, &workers).expect("a port");
        drop(inside);
        let port_under_test = Self {
            address: port_listener.address,
            port_config,
            certificate,
            port_listener: Some(port_listener),
            workers,
            _runtime: runtime,
        };
        port_under_test.set_pods(pods);
        port_under_test
    }

    /// Sets its pods.
    fn set_pods(&self, pods: &[SocketAddr]) {
        let found = EndpointSet { usable: pods.iter().copied().collect(), elsewhere: 0 };
        self.port_config.service_port().expect("a Service").upstream.update(&found, self.workers.count());
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a read timeout");
        stream
    }

    /// Connection from this source address.
    fn connect_from(&self, ip: Ipv4Addr) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(SocketAddr::new(ip.into(), 0)).expect("an address of loopback");
            socket.connect(self.address).await.expect("a connection").into_std()
        });
        let stream = stream.expect("a plain one");
        stream.set_nonblocking(false).expect("one that waits");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a read timeout");
        stream
    }

    /// Sends raw bytes and returns everything received until the connection is closed.
    fn send_raw(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        rest_of(stream)
    }
}

pub(crate) fn rest_of(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    // A reset is treated as end of stream.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// Next response on a connection: head and body with Content-Length.
pub(crate) fn next_answer(stream: &mut TcpStream) -> (String, String) {
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
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}
