//! Complete server: a Corefile, the fixture, a resolver, an upstream, sockets; and clients with their own addresses.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns::config;
use dns::corefile::{EmptyEnvironment, parse};
use dns::metrics::Metrics;
use dns::resolver::{ClusterZones, Config, Resolver};
use dns::serve::{Options, Server};
use dns::snapshot::{Update, ZoneSnapshot};
use dns::wire::{Message, Record, Section, flag, rtype, to_text};
use dns::zone::{self, Quirks};
use serde_json::json;
use tokio::runtime::Handle;

use crate::corpus::{file, message, snapshot, update};
use crate::stub::Stub;

const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Client without specific rules.
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Pod of namespace `testns`.
pub(crate) const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 7));

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) snapshot: Arc<ZoneSnapshot>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) metrics: Arc<Metrics>,
    /// Upstream.
    upstream: Server,
}

/// Summary of a reply.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct ReplySummary {
    pub(crate) rcode: u16,
    pub(crate) truncated: bool,
    pub(crate) authoritative: bool,
    /// `name TYPE data` without TTL.
    pub(crate) answers: Vec<String>,
    pub(crate) ttls: Vec<u32>,
    /// Extended DNS error code.
    pub(crate) extended: Option<u16>,
}

impl TestServer {
    /// With these directives in addition to `kubernetes` and `forward`.
    pub(crate) async fn new(directives: &str) -> Self {
        Self::with("", directives, "").await
    }

    /// With these directives, options of `kubernetes`, and blocks.
    pub(crate) async fn with(options: &str, directives: &str, blocks: &str) -> Self {
        Self::start(options, directives, blocks, |config| {
            let snapshot = snapshot(config);
            let pod = json!({
                "kind": "Pod", "metadata": {"name": "client", "namespace": "testns"},
                "status": {"phase": "Running", "podIP": POD, "podIPs": [{"ip": POD}]},
            });
            snapshot.apply(update(&pod, &snapshot.config).expect("a Pod"), 8);
            snapshot
        })
        .await
    }

    /// With an empty snapshot.
    pub(crate) async fn unready(options: Options) -> Self {
        Self::listen("", "", "", |config| ZoneSnapshot::new(config).expect("zones"), options).await
    }

    async fn start(
        options: &str,
        directives: &str,
        blocks: &str,
        snapshot: impl FnOnce(zone::Config) -> Arc<ZoneSnapshot>,
    ) -> Self {
        Self::listen(options, directives, blocks, snapshot, Options::default()).await
    }

    async fn listen(
        options: &str,
        directives: &str,
        blocks: &str,
        snapshot: impl FnOnce(zone::Config) -> Arc<ZoneSnapshot>,
        limits: Options,
    ) -> Self {
        let upstream = stub().await;
        let config = corefile(&upstream, options, directives, blocks);
        let config = parse_config(&config);
        let snapshot = snapshot(zone_config(&config));
        let metrics = Metrics::new(&snapshot.zones, "dns://:53");
        let resolver = Resolver::new(resolver_config(&config, &snapshot), Handle::current());
        let options = Options { listen: here(), threads: Some(1), ..limits };
        let server = Server::start(snapshot.clone(), resolver.clone(), metrics.clone(), &options).await;
        Self { server: server.expect("it listens"), snapshot, resolver, metrics, upstream }
    }

    /// Corefile with these directives in addition to `kubernetes` and `forward`.
    pub(crate) fn corefile(&self, directives: &str) -> String {
        corefile(&self.upstream, "", directives, "")
    }

    /// Parsed Corefile with these directives.
    pub(crate) fn parsed(&self, directives: &str) -> config::Config {
        parse_config(&self.corefile(directives))
    }

    /// Upstream address.
    pub(crate) fn upstream(&self) -> SocketAddr {
        self.upstream.addresses()[0]
    }

    /// Resolver that replaces the current one.
    pub(crate) fn replaced(&self, config: &config::Config) -> Arc<Resolver> {
        Resolver::replacing(&self.resolver, resolver_config(config, &self.snapshot))
    }

    pub(crate) fn to(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Sends a query over UDP.
    pub(crate) fn query(&self, client: IpAddr, name: &str, qtype: &str) -> ReplySummary {
        let socket = self.socket(client);
        socket.send(&question(name, qtype, 7)).expect("sent");
        let mut buffer = vec![0; 65536];
        let length = socket.recv(&mut buffer).expect("an answer");
        summary(&buffer[..length])
    }

    /// Immediate UDP reply, if any. The server has one thread, so the reply to a second query comes after the reply to
    /// the first.
    pub(crate) fn query_now(&self, client: IpAddr, name: &str, qtype: &str) -> Option<ReplySummary> {
        let socket = self.socket(client);
        socket.send(&question(name, qtype, 7)).expect("sent");
        self.query(CLIENT, "kubernetes.default.svc.cluster.local.", "A");
        socket.set_nonblocking(true).expect("an option");
        let mut buffer = vec![0; 65536];
        socket.recv(&mut buffer).ok().map(|length| summary(&buffer[..length]))
    }

    pub(crate) fn socket(&self, client: IpAddr) -> UdpSocket {
        let socket = UdpSocket::bind((client, 0)).expect("a socket");
        socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
        socket.connect(self.to()).expect("a way there");
        socket
    }

    /// Sends a query over TCP.
    pub(crate) fn query_tcp(&self, name: &str, qtype: &str) -> ReplySummary {
        let mut stream = TcpStream::connect(self.to()).expect("a connection");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
        let message = question(name, qtype, 7);
        let length = u16::try_from(message.len()).expect("short").to_be_bytes();
        stream.write_all(&[&length[..], &message].concat()).expect("sent");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a frame");
        let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut frame).expect("all of it");
        summary(&frame)
    }

    /// Applies the fixture.
    pub(crate) fn apply_fixture(&self) {
        let objects = file("objects.json");
        let updates: Vec<Update> = objects["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|item| update(item, &self.snapshot.config))
            .collect();
        for update in updates {
            self.snapshot.apply(update, 7);
        }
        self.snapshot.set_ready();
    }
}

fn here() -> Vec<SocketAddr> {
    // Clients use several addresses of this network.
    vec!["127.0.0.1:0".parse().expect("an address")]
}

/// Upstream with the fixed data of the corpus.
async fn stub() -> Server {
    let config = zone::Config { zones: vec!["unused.invalid".to_owned()], ..zone::Config::default() };
    let snapshot = ZoneSnapshot::new(config).expect("a zone");
    let metrics = Metrics::new(&snapshot.zones, "upstream");
    let options = Options { listen: here(), threads: Some(1), ..Options::default() };
    let stub = Arc::new(Stub::new(&file("upstream.json")));
    Server::start(snapshot, stub, metrics, &options).await.expect("it listens")
}

fn corefile(upstream: &Server, options: &str, directives: &str, blocks: &str) -> String {
    let upstream = upstream.addresses()[0];
    format!(
        ".:53 {{\nkubernetes cluster.local in-addr.arpa ip6.arpa {{\npods insecure\nttl 30\nfallthrough in-addr.arpa ip6.arpa\n{options}\n}}\n\
         forward . {upstream}\n{directives}\n}}\n{}",
        blocks.replace("UPSTREAM", &upstream.to_string())
    )
}

fn parse_config(corefile: &str) -> config::Config {
    parse("Corefile", corefile, &EmptyEnvironment).unwrap_or_else(|error| panic!("{error}"))
}

fn zone_config(config: &config::Config) -> zone::Config {
    let block = config.cluster().expect("the block of the cluster");
    block.zone_config(Vec::new(), Quirks::None).expect("zones")
}

fn resolver_config(config: &config::Config, snapshot: &Arc<ZoneSnapshot>) -> Config {
    let mut resolver_config = Config::load(config.clone()).expect("files");
    let domains = vec![config::Name::parse("cluster.local").expect("a name")];
    resolver_config.local = Some(Arc::new(ClusterZones { snapshot: snapshot.clone(), domains }));
    resolver_config
}

pub(crate) fn question(name: &str, qtype: &str, id: u16) -> Vec<u8> {
    message(&json!({"qname": name, "qtype": qtype, "flags": {"edns": {"bufsize": 1232}}}), id).0
}

pub(crate) fn summary(bytes: &[u8]) -> ReplySummary {
    let reply = Message::read(bytes).expect("a message");
    let records: Vec<Record> = reply.records().map(|record| record.expect("complete")).collect();
    let answers = &records[..usize::from(reply.count(Section::Answer))];
    let extended = records.iter().find(|record| record.rtype == rtype::OPT).and_then(|opt| match opt.data[..] {
        [0, 15, _, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    });
    ReplySummary {
        rcode: reply.flags() & 15,
        truncated: reply.flags() & flag::TC != 0,
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
