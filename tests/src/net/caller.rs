//! Clients of the servers of [`super::echo`].
//!
//! In: a destination. Out: an [`Answer`], or a [`Failure`] with its kind and how long it took.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::ipproto;

use super::failure::{Failure, Kind};
use super::hammer::{Hammer, Tally};
use super::icmp::{Ears, Flow};
use super::namespace::Namespace;
use super::sctp::{self, Association};
use super::socket::{self, Source};
use super::{Address, Family, Protocol};

/// Time limit of a request: long enough for a virtual machine without hardware virtualization on a busy host, where retransmissions of a
/// packet take seconds. Tests that expect a timeout shorten it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a datagram, which is not retransmitted.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(3);

/// What is sent to get an answer.
const QUESTION: &[u8] = b"who?\n";

/// The server that responded, and the addresses it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The host that answered.
    pub name: String,
    /// The client that it saw.
    pub client: SocketAddr,
    /// The address that it was reached at, after all translation.
    pub server: SocketAddr,
    /// How long it took.
    pub took: Duration,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let mut words = text.split(' ');
        let mut value = |key: &str| words.next()?.strip_prefix(key);
        Some(Self {
            name: value("name=")?.to_owned(),
            client: value("client=")?.parse().ok()?,
            server: value("server=")?.parse().ok()?,
            took: Duration::ZERO,
        })
    }
}

/// A client and its manners.
#[derive(Clone, Debug)]
pub struct Caller {
    namespace: Arc<Namespace>,
    source: Source,
    timeout: Option<Duration>,
    pace: Duration,
    first_port: Option<u16>,
}

impl Caller {
    pub(super) fn new(namespace: Arc<Namespace>) -> Self {
        Self { namespace, source: Source::default(), timeout: None, pace: Duration::ZERO, first_port: None }
    }

    /// Sets the timeout: for the connection and its first response together, and for every further response.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn limit(&self, protocol: Protocol) -> Duration {
        self.timeout.unwrap_or(if protocol == Protocol::Udp { DATAGRAM_TIMEOUT } else { TIMEOUT })
    }

    /// Sends from this port.
    #[must_use]
    pub fn source_port(mut self, port: u16) -> Self {
        self.source.port = Some(port);
        self
    }

    /// Sends from this address.
    #[must_use]
    pub fn source(mut self, address: impl Address) -> Self {
        self.source.address = Some(address.address());
        self
    }

    /// In a series of requests, pauses this long between two.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// In [`Self::hammer`], sends each request from the next port, starting with this one, so that none is used twice.
    #[must_use]
    pub fn ports_from(mut self, first: u16) -> Self {
        self.first_port = Some(first);
        self
    }

    /// Opens a connection, sends one request, and closes it.
    pub fn ask(&self, protocol: Protocol, address: impl Address, port: u16) -> Result<Answer, Failure> {
        let to = SocketAddr::new(address.address(), port);
        self.namespace.within(|| self.ask_here(protocol, to))
    }

    /// Sends this many requests, each on a new connection.
    #[must_use]
    pub fn ask_many(&self, times: usize, protocol: Protocol, address: impl Address, port: u16) -> Tally {
        let to = SocketAddr::new(address.address(), port);
        self.namespace.within(|| {
            let begun = Instant::now();
            let mut tally = Tally::default();
            for _ in 0..times {
                tally.add(begun.elapsed(), self.ask_here(protocol, to));
                std::thread::sleep(self.pace);
            }
            tally
        })
    }

    /// Opens a connection for repeated requests.
    pub fn connect(&self, protocol: Protocol, address: impl Address, port: u16) -> Result<Connection, Failure> {
        let to = SocketAddr::new(address.address(), port);
        self.namespace.within(|| self.connect_here(protocol, to))
    }

    /// Sends requests continuously, each on a new connection, until it is stopped.
    #[must_use]
    pub fn hammer(&self, protocol: Protocol, address: impl Address, port: u16) -> Hammer {
        let to = SocketAddr::new(address.address(), port);
        let mut caller = self.clone();
        let mut ports = self.first_port.map(|first| first..=u16::MAX);
        Hammer::start(self.pace, Arc::clone(&self.namespace), move || {
            if let Some(ports) = &mut ports {
                caller.source.port = Some(ports.next().expect("an unused source port"));
            }
            caller.ask_here(protocol, to)
        })
    }

    /// [`Self::ask`] on a thread that is inside.
    fn ask_here(&self, protocol: Protocol, to: SocketAddr) -> Result<Answer, Failure> {
        let begun = Instant::now();
        let answer = self.connect_here(protocol, to)?.ask_until(begun, begun + self.limit(protocol))?;
        Ok(answer)
    }

    fn connect_here(&self, protocol: Protocol, to: SocketAddr) -> Result<Connection, Failure> {
        let (begun, timeout) = (Instant::now(), self.limit(protocol));
        let deadline = begun + timeout;
        let line = match protocol {
            Protocol::Tcp => Line::stream(ipproto::TCP, self.source, to, deadline),
            Protocol::Sctp if sctp::kernel_speaks() => Line::stream(ipproto::SCTP, self.source, to, deadline),
            Protocol::Sctp => Association::open(self.source, to, deadline).map(Line::Association),
            Protocol::Udp => Line::datagrams(self.source, to),
        };
        match line {
            Ok(line) => Ok(Connection { line, timeout }),
            Err(failure) => Err(Failure { took: begun.elapsed(), ..failure }),
        }
    }
}

/// An open connection. Dropping it resets it, without a FIN handshake, so that its port is free again.
#[derive(Debug)]
pub struct Connection {
    line: Line,
    timeout: Duration,
}

impl Connection {
    /// Sends a request on this connection.
    pub fn ask(&mut self) -> Result<Answer, Failure> {
        let begun = Instant::now();
        self.ask_until(begun, begun + self.timeout)
    }

    /// Its local address; [`Answer::client`] is what the other side saw.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        let local = match &self.line {
            Line::Stream(stream) => stream.local_addr().ok(),
            Line::Datagrams { socket, .. } => socket.local_addr().ok(),
            Line::Association(association) => association.local(),
        };
        local.expect("an open connection has an end here")
    }

    fn ask_until(&mut self, begun: Instant, deadline: Instant) -> Result<Answer, Failure> {
        let asked = match &mut self.line {
            Line::Stream(stream) => ask_stream(stream, deadline),
            Line::Datagrams { socket, ears, flow } => ask_datagram(socket, ears, *flow, deadline),
            Line::Association(association) => association.ask(QUESTION, deadline),
        };
        let took = begun.elapsed();
        let bytes = asked.map_err(|failure| {
            let detail = format!("{}, from {}", failure.detail, self.local());
            Failure { took, detail, ..failure }
        })?;
        let answer = Answer::parse(&bytes).ok_or_else(|| Failure {
            took,
            ..Failure::new(Kind::Other, format!("no server of ours: {:?}", String::from_utf8_lossy(&bytes)))
        })?;
        Ok(Answer { took, ..answer })
    }
}

/// What a connection is made of.
#[derive(Debug)]
enum Line {
    Stream(TcpStream),
    Datagrams { socket: UdpSocket, ears: Ears, flow: Flow },
    Association(Association),
}

impl Line {
    fn stream(
        protocol: rustix::net::Protocol,
        source: Source,
        to: SocketAddr,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        socket::stream(protocol, source, to, deadline).map(Self::Stream).map_err(|error| {
            match Failure::of("connecting", &error) {
                // Not yet a connection that could be reset.
                failure if failure.kind == Kind::Reset => Failure { kind: Kind::Refused, ..failure },
                failure => failure,
            }
        })
    }

    fn datagrams(source: Source, to: SocketAddr) -> Result<Self, Failure> {
        let open = || {
            let ears = Ears::open(Family::of(to.ip()))?;
            let socket = socket::datagrams(source, to)?;
            let flow = Flow { protocol: 17, source_port: socket.local_addr()?.port(), to };
            Ok(Self::Datagrams { socket, ears, flow })
        };
        open().map_err(|error| Failure::of("a UDP socket", &error))
    }
}

fn ask_stream(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, Failure> {
    stream.write_all(QUESTION).map_err(|error| Failure::of("asking", &error))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 256];
    while !answer.ends_with(b"\n") {
        let ready = socket::wait(&[stream.as_fd()], PollFlags::IN, deadline);
        if ready.map_err(|error| Failure::of("an answer", &error))?.is_none() {
            return Err(Failure::silence("an answer"));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(Failure::new(Kind::Closed, "an answer: hung up")),
            Ok(length) => answer.extend(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::of("an answer", &error)),
        }
    }
    Ok(answer)
}

fn ask_datagram(socket: &UdpSocket, ears: &Ears, flow: Flow, deadline: Instant) -> Result<Vec<u8>, Failure> {
    match socket.send(QUESTION) {
        Ok(_) => {}
        Err(error) if socket::was_swallowed(&error) => {}
        Err(error) => return Err(Failure::of("asking", &error)),
    }
    let mut buffer = [0; 256];
    loop {
        let ready = socket::wait(&[socket.as_fd(), ears.as_fd()], PollFlags::IN, deadline);
        match ready.map_err(|error| Failure::of("an answer", &error))? {
            None => return Err(Failure::silence("an answer")),
            Some(0) => {
                let length = socket.recv(&mut buffer).map_err(|error| Failure::of("an answer", &error))?;
                return Ok(buffer[..length].to_vec());
            }
            Some(_) => {
                let heard = ears.heard(flow).map_err(|error| Failure::of("an answer", &error))?;
                heard.map_or(Ok(()), Err)?;
            }
        }
    }
}
