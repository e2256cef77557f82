//! In-process upstreams, correct and faulty, and clients that check replies in detail.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message_builder::AdditionalBuilder;
use domain::base::{
    Message, MessageBuilder, Name as DomainName, ParsedRecord, Serial, StaticCompressor, Ttl as DomainTtl,
};
use domain::rdata::{A, AllRecordData, Cname, Soa};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;

use super::*;
use crate::corefile;

mod cache;
mod forwarding;
mod hostile;
mod rules;
mod tls;
mod transport;

/// Transport of a query to an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Via {
    Udp,
    Tcp,
}

/// Reaction of an upstream to a query.
enum Reply {
    /// No reply.
    Nothing,
    /// These messages in sequence.
    Say(Vec<Vec<u8>>),
    /// A message once the gate opens.
    Gated(Arc<Semaphore>, Vec<u8>),
    /// A message from another socket.
    FromElsewhere(Vec<u8>, Vec<u8>),
    /// A message, then the connection is closed.
    SayAndClose(Vec<u8>),
}

type Behaviour = dyn Fn(Via, &[u8]) -> Reply + Send + Sync;

/// Test upstream.
struct Fake {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<Via>>>,
    connections: Arc<AtomicUsize>,
}

impl Fake {
    /// Listens on UDP and TCP on one port.
    async fn new(behaviour: impl Fn(Via, &[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let (udp, tcp) = both().await;
        let address = tcp.local_addr().expect("bound");
        let fake = Self { address, queries: Arc::default(), connections: Arc::default() };
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        tokio::spawn(serve_udp(udp, behaviour.clone(), fake.queries.clone()));
        let (queries, connections) = (fake.queries.clone(), fake.connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = tcp.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve_stream(stream, behaviour.clone(), queries.clone()));
            }
        });
        fake
    }

    /// Upstream that answers every address query with this address.
    async fn with_address(address: [u8; 4]) -> Self {
        Self::new(move |_, question| Reply::Say(vec![reply(question).a(300, address).done()])).await
    }

    /// Upstream that never replies.
    async fn silent() -> Self {
        Self::new(|_, _| Reply::Nothing).await
    }

    fn queries(&self) -> Vec<Via> {
        self.queries.lock().clone()
    }
}

async fn both() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("bound")).await {
            return (udp, tcp);
        }
    }
}

/// Port without a listener.
async fn refusing() -> SocketAddr {
    let (udp, _tcp) = both().await;
    udp.local_addr().expect("bound")
}

async fn serve_udp(socket: UdpSocket, behaviour: Arc<Behaviour>, queries: Arc<Mutex<Vec<Via>>>) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
        queries.lock().push(Via::Udp);
        match behaviour(Via::Udp, &buffer[..length]) {
            Reply::Nothing => {}
            Reply::Say(messages) => {
                for message in messages {
                    let _ = socket.send_to(&message, peer).await;
                }
            }
            Reply::SayAndClose(message) => {
                let _ = socket.send_to(&message, peer).await;
            }
            Reply::Gated(gate, message) => {
                let socket = socket.clone();
                tokio::spawn(async move {
                    let _permit = gate.acquire().await;
                    let _ = socket.send_to(&message, peer).await;
                });
            }
            Reply::FromElsewhere(wrong, right) => {
                let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
                let _ = other.send_to(&wrong, peer).await;
                let _ = socket.send_to(&right, peer).await;
            }
        }
    }
}

async fn serve_stream<S>(stream: S, behaviour: Arc<Behaviour>, queries: Arc<Mutex<Vec<Via>>>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut reader, writer) = tokio::io::split(stream);
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    loop {
        let length = reader.read_u16().await?;
        let mut question = vec![0; usize::from(length)];
        reader.read_exact(&mut question).await?;
        queries.lock().push(Via::Tcp);
        let frame =
            |message: &[u8]| [&u16::try_from(message.len()).expect("short").to_be_bytes()[..], message].concat();
        match behaviour(Via::Tcp, &question) {
            Reply::Nothing | Reply::FromElsewhere(..) => {}
            Reply::Say(messages) => {
                for message in messages {
                    writer.lock().await.write_all(&frame(&message)).await?;
                }
            }
            Reply::SayAndClose(message) => {
                writer.lock().await.write_all(&frame(&message)).await?;
                return Ok(());
            }
            Reply::Gated(gate, message) => {
                let writer = writer.clone();
                tokio::spawn(async move {
                    let _permit = gate.acquire().await;
                    let _ = writer.lock().await.write_all(&frame(&message)).await;
                });
            }
        }
    }
}

/// Reply builder independent of the code under test.
struct Builder {
    out: AdditionalBuilder<StaticCompressor<Vec<u8>>>,
    answers: Vec<(DomainName<Vec<u8>>, u32, Data)>,
    soa: Option<(DomainName<Vec<u8>>, u32, u32)>,
    name: DomainName<Vec<u8>>,
    question: Vec<u8>,
    rcode: Rcode,
    truncated: bool,
}

enum Data {
    A([u8; 4]),
    Cname(DomainName<Vec<u8>>),
}

fn name(text: &str) -> DomainName<Vec<u8>> {
    text.parse().expect("a name")
}

fn wire(text: &str) -> Vec<u8> {
    Name::parse(text).expect("a name").as_wire().to_vec()
}

/// Starts the reply to a query.
fn reply(question: &[u8]) -> Builder {
    let message = Message::from_octets(question).expect("a question");
    let parsed = message.sole_question().expect("one question");
    let name = domain::base::ToName::to_name::<Vec<u8>>(parsed.qname());
    let out = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).expect("room").additional();
    let question = question.to_vec();
    Builder { out, answers: Vec::new(), soa: None, name, question, rcode: Rcode::NOERROR, truncated: false }
}

impl Builder {
    fn a(mut self, ttl: u32, address: [u8; 4]) -> Self {
        self.answers.push((self.name.clone(), ttl, Data::A(address)));
        self
    }

    fn cname(mut self, ttl: u32, target: &str) -> Self {
        self.answers.push((self.name.clone(), ttl, Data::Cname(name(target))));
        self.name = name(target);
        self
    }

    fn soa(mut self, owner: &str, ttl: u32, minimum: u32) -> Self {
        self.soa = Some((name(owner), ttl, minimum));
        self
    }

    fn code(mut self, rcode: Rcode) -> Self {
        self.rcode = rcode;
        self
    }

    fn truncated(mut self) -> Self {
        self.truncated = true;
        self
    }

    fn done(self) -> Vec<u8> {
        let question = Message::from_octets(self.question.as_slice()).expect("a question");
        let mut answer = self.out.builder().start_answer(&question, self.rcode).expect("room");
        answer.header_mut().set_tc(self.truncated);
        answer.header_mut().set_ra(true);
        for (owner, ttl, data) in &self.answers {
            let ttl = DomainTtl::from_secs(*ttl);
            match data {
                Data::A([a, b, c, d]) => answer.push((owner, Class::IN, ttl, A::from_octets(*a, *b, *c, *d))),
                Data::Cname(target) => answer.push((owner, Class::IN, ttl, Cname::new(target))),
            }
            .expect("room");
        }
        let mut authority = answer.authority();
        if let Some((owner, ttl, minimum)) = &self.soa {
            let seconds = DomainTtl::from_secs;
            let (mname, rname) = (name("ns.example"), name("admin.example"));
            let soa = Soa::new(mname, rname, Serial(1), seconds(2), seconds(3), seconds(4), seconds(*minimum));
            authority.push((owner, Class::IN, seconds(*ttl), soa)).expect("room");
        }
        authority.additional().finish().into_target()
    }
}

/// Query as clients send it.
fn ask(text: &str, qtype: Rtype, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((name(text), qtype)).expect("room");
    let mut additional = question.additional();
    if let Some(size) = edns {
        additional
            .opt(|opt| {
                opt.set_udp_payload_size(size);
                Ok(())
            })
            .expect("room");
    }
    additional.finish()
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 7));

fn udp(message: &[u8]) -> Request<'_> {
    Request { message, from: CLIENT.into(), transport: Transport::Udp }
}

/// Summary of a reply: RCODE, answers as `name ttl data`, extended error.
#[derive(PartialEq, Eq, Debug)]
struct ReplySummary {
    rcode: Rcode,
    answers: Vec<String>,
    extended: Option<u16>,
}

fn summary(reply: &[u8]) -> ReplySummary {
    let message = Message::from_octets(reply).expect("a message");
    let text = |record: ParsedRecord<'_, &[u8]>| {
        let record = record.to_any_record::<AllRecordData<_, _>>().expect("readable");
        format!("{} {} {}", record.owner(), record.ttl().as_secs(), record.data())
    };
    let answers = message.answer().expect("a section").map(|record| text(record.expect("a record"))).collect();
    ReplySummary { rcode: message.header().rcode(), answers, extended: extended_of(reply) }
}

fn extended_of(reply: &[u8]) -> Option<u16> {
    use domain::base::opt::exterr::ExtendedError;
    let message = Message::from_octets(reply).expect("a message");
    let opt = message.opt()?;
    let found: Option<ExtendedError<_>> = opt.opt().iter().find_map(Result::ok);
    found.map(|error| error.code().to_int())
}

/// Resolver of a Corefile with a clock that can be advanced.
struct Bench {
    resolver: Arc<Resolver>,
    forward: Arc<AtomicU64>,
    start: Instant,
}

fn config(corefile: &str) -> Config {
    let server = corefile::parse("Corefile", corefile, &corefile::EmptyEnvironment)
        .unwrap_or_else(|refused| panic!("{refused}"));
    Config::load(server).unwrap_or_else(|error| panic!("{error}"))
}

impl Bench {
    /// Block for all names with these directives.
    fn new(directives: &str) -> Self {
        Self::with(config(&format!(". {{\n{directives}\n}}")))
    }

    fn with(mut config: Config) -> Self {
        let (forward, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let added = forward.clone();
        config.clock = Arc::new(move || start + Duration::from_secs(added.load(Ordering::SeqCst)));
        Self { resolver: Resolver::new(config, Handle::current()), forward, start }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_secs(self.forward.load(Ordering::SeqCst))
    }

    fn later(&self, seconds: u64) {
        self.forward.fetch_add(seconds, Ordering::SeqCst);
    }

    async fn ask(&self, text: &str) -> ReplySummary {
        summary(&self.resolver.resolve(udp(&ask(text, Rtype::A, Some(1232)))).await)
    }

    /// Answer from the cache only.
    fn cached_answer(&self, text: &str) -> Option<ReplySummary> {
        let mut out = Vec::new();
        let message = ask(text, Rtype::A, Some(1232));
        self.resolver.cached(&udp(&message), self.now(), &mut out).then(|| summary(&out))
    }
}

/// Waits until a condition holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(2));
        while !is_so() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn answer(rcode: Rcode, answers: &[&str]) -> ReplySummary {
    ReplySummary { rcode, answers: answers.iter().map(|text| (*text).to_owned()).collect(), extended: None }
}
