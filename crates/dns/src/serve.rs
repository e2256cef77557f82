//! The listeners: threads for datagrams, tasks for connections, both calling the same function.
//!
//! In: addresses, a [`Book`], whoever stands [`Beyond`]. Out: questions answered. Datagrams are answered by threads of
//! their own, one for each processor and address, which do not know of tasks and never wait for anything but datagrams;
//! what cannot be answered at once is handed to the runtime, in bounded number. Nothing that a client sends ends a
//! listener. Who answers can be exchanged while they listen: a question is answered by the one or by the other.

mod clients;
mod journal;
mod tcp;
mod turn;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use kernel::datagrams::Socket;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::clients::ClientLimits;
use self::clients::{Clients, Slots};
use self::journal::Journal;
use self::turn::Serving;
use crate::answer::Seen;
use crate::beyond::{Beyond, Question};
use crate::book::Book;
use crate::metrics::{Fact, Metrics};

/// How to listen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where; each address for datagrams and for connections. Port 0 takes a free one, the same for both.
    pub listen: Vec<SocketAddr>,
    /// How many threads answer datagrams for each address; none means as many as there are processors.
    pub threads: Option<usize>,
    /// Whether these threads stay on their processors.
    pub pinned: bool,
    /// How many bytes of datagrams may wait for each thread.
    pub receive_buffer: usize,
    /// How many questions may be with others at once.
    pub waiting: usize,
    /// From when on a question was slow enough to be said in the log.
    pub slow: Duration,
    /// How long a question is held that comes before our names are known.
    pub hold: Duration,
    /// Limits of connections.
    pub connections: Connections,
    /// Limits of queries of one client.
    pub clients: ClientLimits,
}

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// How many there may be.
    pub all: usize,
    /// How many from one address.
    pub each: usize,
    /// How many questions of one may be with others at once.
    pub waiting: usize,
    /// How long the first question may take, and each one once it began.
    pub first: Duration,
    /// How long a connection may be silent after that.
    pub idle: Duration,
    /// How long an answer may take to be read.
    pub write: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let connections = Connections {
            all: 4096,
            each: 256,
            waiting: 128,
            first: Duration::from_secs(3),
            idle: Duration::from_secs(10),
            write: Duration::from_secs(5),
        };
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 53))],
            threads: None,
            pinned: true,
            receive_buffer: 4 << 20,
            waiting: 4096,
            slow: Duration::from_secs(1),
            hold: Duration::from_secs(1),
            connections,
            clients: ClientLimits::default(),
        }
    }
}

/// What all listeners share.
struct Shared {
    serving: ArcSwap<Serving>,
    metrics: Arc<Metrics>,
    waiting: Arc<Semaphore>,
    hold: Duration,
    journal: Journal,
    clients: Clients,
    runtime: Handle,
    stopping: AtomicBool,
}

/// A server that listens. Dropping it ends it.
pub struct Server {
    shared: Arc<Shared>,
    sockets: Vec<Arc<Socket>>,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Begins to listen, inside of a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub async fn start(
        book: Arc<Book>,
        beyond: Arc<dyn Beyond>,
        metrics: Arc<Metrics>,
        options: &Options,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            serving: ArcSwap::from_pointee(Serving::new(book, beyond)),
            metrics,
            waiting: Arc::new(Semaphore::new(options.waiting)),
            hold: options.hold,
            journal: Journal::new(options.slow),
            clients: Clients::new(options.clients, Instant::now()),
            runtime: Handle::current(),
            stopping: AtomicBool::new(false),
        });
        let (sockets, threads, tasks, addresses) = (Vec::new(), Vec::new(), JoinSet::new(), Vec::new());
        let mut server = Self { shared, sockets, threads, tasks, addresses };
        let count = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
        // All addresses first: a server that cannot have one answers on none.
        let mut listeners = Vec::new();
        for wanted in &options.listen {
            let (first, listener) = match bind(*wanted, options.receive_buffer) {
                // Who listens everywhere listens where this machine can.
                Err(error) if wanted.ip().is_unspecified() && is_unknown_family(&error) => continue,
                bound => bound?,
            };
            let address = first.local();
            listeners.push(listener);
            server.sockets.push(Arc::new(first));
            for _ in 1..count {
                server.sockets.push(Arc::new(Socket::bind(address, options.receive_buffer)?));
            }
            server.addresses.push(address);
        }
        for (number, socket) in server.sockets.iter().enumerate() {
            let pin = options.pinned.then_some(number % count);
            server.threads.push(udp::spawn(server.shared.clone(), socket.clone(), pin)?);
        }
        let shared = server.shared.clone();
        server.tasks.spawn(async move { shared.clients.maintain().await });
        let (allowed, slots) = (options.connections, Slots::new(options.connections.all, options.connections.each));
        for listener in listeners {
            server.tasks.spawn(tcp::listen(server.shared.clone(), listener, allowed, slots.clone()));
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The means to have others answer.
    #[must_use]
    pub fn switch(&self) -> Switch {
        Switch(self.shared.clone())
    }

    /// Ends listening; the answers under way are sent.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.tasks.abort_all();
        self.sockets.iter().for_each(|socket| socket.shut());
        for thread in self.threads.drain(..) {
            // A thread that stumbled was counted; there is nothing left to say.
            let _ = thread.join();
        }
    }
}

/// Exchanges who answers, while everybody listens.
pub struct Switch(Arc<Shared>);

impl Switch {
    /// Has others answer from now on; questions under way are answered by those who have them. The zones of the book
    /// have to be those that the figures were made for.
    pub fn exchange(&self, book: Arc<Book>, beyond: Arc<dyn Beyond>) {
        self.0.serving.store(Arc::new(Serving::new(book, beyond)));
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Switch")
    }
}

/// Whether a kernel does not know the family of an address: IPv6, where it was left out.
fn is_unknown_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(kernel::Errno::AFNOSUPPORT.raw_os_error())
}

/// Both kinds of sockets on one address. A port that is free for datagrams may be taken for connections: then, if any will do, another is
/// taken.
fn bind(wanted: SocketAddr, receive_buffer: usize) -> io::Result<(Socket, TcpListener)> {
    let mut tries = if wanted.port() == 0 { 16 } else { 1 };
    loop {
        tries -= 1;
        let socket = Socket::bind(wanted, receive_buffer)?;
        match kernel::socket::listen(socket.local()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            listener => return Ok((socket, TcpListener::from_std(listener?)?)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on {:?}", self.addresses)
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Counts a question outside of a batch.
    fn count(&self, seen: Seen, question: &Question<'_>, reply: &[u8], took: Duration) {
        let (asked, answered) = (question.message.len(), (!reply.is_empty()).then_some(reply.len()));
        let (v4, rcode, transport) = (question.ends.client.is_ipv4(), Fact::rcode_of(reply), question.transport);
        self.metrics.count(&Fact { seen, transport, v4, asked, answered, rcode, took });
    }

    /// Counts a question that others had a part in, and says so if it went badly.
    fn note(&self, serving: &Serving, seen: Seen, question: &Question<'_>, reply: &[u8], start: Instant) {
        let took = start.elapsed();
        self.count(seen, question, reply, took);
        serving.log(question, reply, took);
        self.journal.note(question, reply, took);
    }
}
