//! A server as it runs: a Corefile, the fixture, a resolver, an upstream, sockets; and clients with addresses of their own.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns::book::{Book, Update};
use dns::config;
use dns::corefile::{Alone, parse};
use dns::metrics::Metrics;
use dns::resolver::{Config, Ours, Resolver};
use dns::serve::{Options, Server};
use dns::wire::{Message, Record, Section, flag, rtype, to_text};
use dns::zone::{self, Quirks};
use serde_json::json;
use tokio::runtime::Handle;

use crate::corpus::{book, file, message, update};
use crate::stub::Stub;

const PATIENCE: Duration = Duration::from_secs(20);

/// Somebody whose rights are not mentioned anywhere.
pub(crate) const ANYBODY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A Pod of the namespace `testns`.
pub(crate) const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 7));

pub(crate) struct Whole {
    pub(crate) server: Server,
    pub(crate) book: Arc<Book>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) metrics: Arc<Metrics>,
    /// Who is asked for other names.
    upstream: Server,
}

/// What was said.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Said {
    pub(crate) rcode: u16,
    pub(crate) cut: bool,
    pub(crate) authoritative: bool,
    /// `name TYPE data`, without TTLs.
    pub(crate) answers: Vec<String>,
    pub(crate) ttls: Vec<u32>,
    /// The code of an extended error.
    pub(crate) extended: Option<u16>,
}

impl Whole {
    /// With these directives beside `kubernetes` and `forward`.
    pub(crate) async fn new(directives: &str) -> Self {
        Self::with("", directives, "").await
    }

    /// With these directives, options of `kubernetes`, and blocks.
    pub(crate) async fn with(options: &str, directives: &str, blocks: &str) -> Self {
        Self::start(options, directives, blocks, |config| {
            let book = book(config);
            let pod = json!({
                "kind": "Pod", "metadata": {"name": "client", "namespace": "testns"},
                "status": {"phase": "Running", "podIP": POD, "podIPs": [{"ip": POD}]},
            });
            book.apply(update(&pod, &book.config).expect("a Pod"), 8);
            book
        })
        .await
    }

    /// With a book that knows nothing yet.
    pub(crate) async fn unready(options: Options) -> Self {
        Self::listen("", "", "", |config| Book::new(config).expect("zones"), options).await
    }

    async fn start(
        options: &str,
        directives: &str,
        blocks: &str,
        book: impl FnOnce(zone::Config) -> Arc<Book>,
    ) -> Self {
        Self::listen(options, directives, blocks, book, Options::default()).await
    }

    async fn listen(
        options: &str,
        directives: &str,
        blocks: &str,
        book: impl FnOnce(zone::Config) -> Arc<Book>,
        limits: Options,
    ) -> Self {
        let upstream = stub().await;
        let config = corefile(&upstream, options, directives, blocks);
        let config = understood(&config);
        let book = book(ours(&config));
        let metrics = Metrics::new(&book.zones, "dns://:53");
        let resolver = Resolver::new(told(&config, &book), Handle::current());
        let options = Options { listen: here(), threads: Some(1), ..limits };
        let server = Server::start(book.clone(), resolver.clone(), metrics.clone(), &options).await;
        Self { server: server.expect("it listens"), book, resolver, metrics, upstream }
    }

    /// A Corefile with these directives beside `kubernetes` and `forward`.
    pub(crate) fn corefile(&self, directives: &str) -> String {
        corefile(&self.upstream, "", directives, "")
    }

    /// The same, as it is understood.
    pub(crate) fn parsed(&self, directives: &str) -> config::Config {
        understood(&self.corefile(directives))
    }

    /// Where others are asked.
    pub(crate) fn upstream(&self) -> SocketAddr {
        self.upstream.addresses()[0]
    }

    /// A resolver that goes on with another configuration.
    pub(crate) fn replaced(&self, config: &config::Config) -> Arc<Resolver> {
        Resolver::replacing(&self.resolver, told(config, &self.book))
    }

    pub(crate) fn to(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Asks over UDP.
    pub(crate) fn ask(&self, client: IpAddr, name: &str, qtype: &str) -> Said {
        let socket = self.socket(client);
        socket.send(&question(name, qtype, 7)).expect("sent");
        let mut buffer = vec![0; 65536];
        let length = socket.recv(&mut buffer).expect("an answer");
        said(&buffer[..length])
    }

    /// What is said over UDP without asking others; nothing if nothing is. The server has one thread, so that the answer to
    /// a second question comes after what there is to say to the first.
    pub(crate) fn at_once(&self, client: IpAddr, name: &str, qtype: &str) -> Option<Said> {
        let socket = self.socket(client);
        socket.send(&question(name, qtype, 7)).expect("sent");
        self.ask(ANYBODY, "kubernetes.default.svc.cluster.local.", "A");
        socket.set_nonblocking(true).expect("an option");
        let mut buffer = vec![0; 65536];
        socket.recv(&mut buffer).ok().map(|length| said(&buffer[..length]))
    }

    pub(crate) fn socket(&self, client: IpAddr) -> UdpSocket {
        let socket = UdpSocket::bind((client, 0)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("patience");
        socket.connect(self.to()).expect("a way there");
        socket
    }

    /// Asks over TCP.
    pub(crate) fn ask_stream(&self, name: &str, qtype: &str) -> Said {
        let mut stream = TcpStream::connect(self.to()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("patience");
        let message = question(name, qtype, 7);
        let length = u16::try_from(message.len()).expect("short").to_be_bytes();
        stream.write_all(&[&length[..], &message].concat()).expect("sent");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a frame");
        let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut frame).expect("all of it");
        said(&frame)
    }

    /// Takes in the fixture.
    pub(crate) fn learn(&self) {
        let objects = file("objects.json");
        let updates: Vec<Update> = objects["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|item| update(item, &self.book.config))
            .collect();
        for update in updates {
            self.book.apply(update, 7);
        }
        self.book.ready();
    }
}

fn here() -> Vec<SocketAddr> {
    // Clients have several addresses of this network.
    vec!["127.0.0.1:0".parse().expect("an address")]
}

/// Somebody with the fixed data of the corpus.
async fn stub() -> Server {
    let config = zone::Config { zones: vec!["unused.invalid".to_owned()], ..zone::Config::default() };
    let book = Book::new(config).expect("a zone");
    let metrics = Metrics::new(&book.zones, "upstream");
    let options = Options { listen: here(), threads: Some(1), ..Options::default() };
    let stub = Arc::new(Stub::new(&file("upstream.json")));
    Server::start(book, stub, metrics, &options).await.expect("it listens")
}

fn corefile(upstream: &Server, options: &str, directives: &str, blocks: &str) -> String {
    let upstream = upstream.addresses()[0];
    format!(
        ".:53 {{\nkubernetes cluster.local in-addr.arpa ip6.arpa {{\npods insecure\nttl 30\nfallthrough in-addr.arpa ip6.arpa\n{options}\n}}\n\
         forward . {upstream}\n{directives}\n}}\n{}",
        blocks.replace("UPSTREAM", &upstream.to_string())
    )
}

fn understood(corefile: &str) -> config::Config {
    parse("Corefile", corefile, &Alone).unwrap_or_else(|refused| panic!("{refused}"))
}

fn ours(config: &config::Config) -> zone::Config {
    let block = config.cluster().expect("the block of the cluster");
    block.ours(Vec::new(), Quirks::None).expect("zones")
}

fn told(config: &config::Config, book: &Arc<Book>) -> Config {
    let mut told = Config::load(config.clone()).expect("files");
    let domains = vec![config::Name::parse("cluster.local").expect("a name")];
    told.local = Some(Arc::new(Ours { book: book.clone(), domains }));
    told
}

pub(crate) fn question(name: &str, qtype: &str, id: u16) -> Vec<u8> {
    message(&json!({"qname": name, "qtype": qtype, "flags": {"edns": {"bufsize": 1232}}}), id).0
}

pub(crate) fn said(bytes: &[u8]) -> Said {
    let reply = Message::read(bytes).expect("a message");
    let records: Vec<Record> = reply.records().map(|record| record.expect("whole")).collect();
    let answers = &records[..usize::from(reply.count(Section::Answer))];
    let extended = records.iter().find(|record| record.rtype == rtype::OPT).and_then(|opt| match opt.data[..] {
        [0, 15, _, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    });
    Said {
        rcode: reply.flags() & 15,
        cut: reply.flags() & flag::TC != 0,
        authoritative: reply.flags() & flag::AA != 0,
        answers: answers.iter().map(text).collect(),
        ttls: answers.iter().map(|record| record.ttl).collect(),
        extended,
    }
}

fn text(record: &Record) -> String {
    let data = match (record.rtype, &record.data[..]) {
        (rtype::A, [a, b, c, d]) => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
        (rtype::CNAME | rtype::PTR, name) => to_text(name),
        (_, data) => format!("{data:?}"),
    };
    format!("{} {} {data}", to_text(&record.owner), rtype::text(record.rtype).unwrap_or_default())
}
