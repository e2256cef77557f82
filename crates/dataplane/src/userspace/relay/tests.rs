//! The relay between real sockets on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plan::Protocol::{Sctp, Tcp, Udp};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::{Balancer, Endpoints, Listener, Relay, Scope, Settings};

/// Upper bound for every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn relay(settings: Settings) -> Relay {
    Relay::new(settings)
}

fn endpoint_set(endpoints: &[SocketAddr]) -> Endpoints {
    Endpoints { cluster: endpoints.to_vec(), serving: endpoints.to_vec(), ..Endpoints::default() }
}

fn balancer(endpoints: &[SocketAddr]) -> Arc<Balancer> {
    Arc::new(Balancer::new(endpoint_set(endpoints)))
}

fn listen(relay: &Relay, balancer: &Arc<Balancer>) -> Listener {
    relay.listen(loopback(), Tcp, balancer, Scope::Cluster).expect("a listener")
}

/// Awaits a future with a timeout.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what).await.expect("in time")
}

/// A server that reads until end of stream and then sends its number and what it read.
async fn server(number: u8) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.expect("a server");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = vec![number];
                client.read_to_end(&mut heard).await?;
                client.write_all(&heard).await
            });
        }
    });
    address
}

/// An endpoint that never accepts: its backlog is full, so the kernel drops SYNs.
struct BlackHole {
    address: SocketAddr,
    _queue: (std::net::TcpListener, Vec<TcpStream>),
}

async fn black_hole() -> BlackHole {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &loopback()).expect("bound");
    rustix::net::listen(&socket, 0).expect("listening");
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr().expect("bound");
    let mut held = Vec::new();
    while let Ok(Ok(client)) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        held.push(client);
    }
    BlackHole { address, _queue: (listener, held) }
}

/// An address without a listener.
async fn refusing() -> SocketAddr {
    TcpListener::bind(loopback()).await.and_then(|gone| gone.local_addr()).expect("an address")
}

/// Sends data and reads the reply: number of the server, and its data.
async fn ask(to: SocketAddr, from: IpAddr, words: &[u8]) -> io::Result<(u8, Vec<u8>)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(to).await?;
    stream.write_all(words).await?;
    stream.shutdown().await?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await?;
    if heard.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((heard.remove(0), heard)) }
}

async fn ask_briefly(to: SocketAddr) -> io::Result<u8> {
    ask(to, Ipv4Addr::LOCALHOST.into(), b"hello").await.map(|(number, _)| number)
}

/// Bytes in which lost, doubled or reordered data is detectable.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index ^ index >> 8 ^ index >> 16).to_le_bytes()[0]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_requests_succeed_when_one_endpoint_times_out_and_one_refuses() {
    let hole = black_hole().await;
    let balancer = balancer(&[hole.address, refusing().await, server(3).await]);
    let listener = listen(&relay(Settings::default()), &balancer);
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let to = listener.address;
        asking.spawn(async move {
            let mut answered = 0;
            for _ in 0..20 {
                answered += usize::from(matches!(ask_briefly(to).await, Ok(3)));
            }
            answered
        });
    }
    let answered: usize = soon(asking.join_all()).await.into_iter().sum();
    assert_eq!(answered, 1000);
}

#[tokio::test]
async fn a_single_slow_endpoint_is_retried() {
    let hole = black_hole().await;
    let listener = listen(&relay(Settings::default()), &balancer(&[hole.address]));
    let started = Instant::now();
    assert!(soon(ask_briefly(listener.address)).await.is_err());
    // Four attempts with their timeouts; timers may be late, never early.
    assert!(started.elapsed() >= Duration::from_millis(250 + 500 + 1000 + 2000), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn big_transfers_are_exact_with_and_without_pipes() {
    for spliced in [true, false] {
        let relay = relay(Settings::default());
        if !spliced {
            relay.0.pipes.refuse();
        }
        let listener = listen(&relay, &balancer(&[server(1).await]));
        let words = pattern(24 << 20);
        let (number, heard) = soon(ask(listener.address, Ipv4Addr::LOCALHOST.into(), &words)).await.expect("an answer");
        assert_eq!(number, 1);
        assert!(heard == words, "{} bytes went, {} came back, spliced: {spliced}", words.len(), heard.len());
    }
}

#[tokio::test]
async fn either_side_may_half_close_first() {
    let server = TcpListener::bind(loopback()).await.expect("a server");
    let listener = listen(&relay(Settings::default()), &balancer(&[server.local_addr().expect("bound")]));
    let mut client = TcpStream::connect(listener.address).await.expect("connected");
    let (mut served, _) = soon(server.accept()).await.expect("accepted");
    // The server has closed its direction; the client can still send.
    served.write_all(b"welcome").await.expect("said");
    served.shutdown().await.expect("ended");
    let mut heard = String::new();
    soon(client.read_to_string(&mut heard)).await.expect("heard");
    assert_eq!(heard, "welcome");
    client.write_all(b"still here").await.expect("said");
    client.shutdown().await.expect("ended");
    let mut heard = String::new();
    soon(served.read_to_string(&mut heard)).await.expect("heard");
    assert_eq!(heard, "still here");
}

#[tokio::test]
async fn a_reset_is_passed_on() {
    let server = TcpListener::bind(loopback()).await.expect("a server");
    let listener = listen(&relay(Settings::default()), &balancer(&[server.local_addr().expect("bound")]));
    let mut client = TcpStream::connect(listener.address).await.expect("connected");
    let (mut served, _) = soon(server.accept()).await.expect("accepted");
    served.write_all(b"half of").await.expect("said");
    let mut half = [0; 7];
    soon(client.read_exact(&mut half)).await.expect("heard");
    super::stream::reset(&served);
    drop(served);
    let end = soon(client.read(&mut half)).await.expect_err("not a clean end");
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn clients_with_affinity_stay_and_others_are_balanced() {
    let endpoints = [server(1).await, server(2).await, server(3).await];
    let sticky = Endpoints { affinity: Some(Duration::from_secs(3600)), ..endpoint_set(&endpoints) };
    let balancer = Arc::new(Balancer::new(sticky));
    let listener = listen(&relay(Settings::default()), &balancer);
    let mut of_client: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
    for _ in 0..4 {
        for client in 1..=6 {
            let (number, _) =
                soon(ask(listener.address, [127, 0, 0, client].into(), b"hello")).await.expect("an answer");
            of_client.entry(client).or_default().insert(number);
        }
    }
    assert!(of_client.values().all(|numbers| numbers.len() == 1), "{of_client:?}");
    assert_eq!(of_client.values().flatten().collect::<BTreeSet<_>>().len(), 3, "six clients take turns");
    balancer.set(endpoint_set(&endpoints));
    let mut turns = BTreeSet::new();
    for _ in 0..3 {
        turns.insert(soon(ask_briefly(listener.address)).await.expect("an answer"));
    }
    assert_eq!(turns, [1, 2, 3].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_may_change_while_requests_run() {
    let endpoints = [server(1).await, server(2).await, server(3).await];
    let balancer = balancer(&endpoints[..1]);
    let listener = listen(&relay(Settings::default()), &balancer);
    let mut running = TcpStream::connect(listener.address).await.expect("connected");
    running.write_all(b"started").await.expect("said");
    assert_eq!(soon(ask_briefly(listener.address)).await.expect("an answer"), 1, "the first was served by then");
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let to = listener.address;
        asking.spawn(async move {
            for _ in 0..50 {
                ask_briefly(to).await?;
            }
            io::Result::Ok(())
        });
    }
    soon(async {
        for turn in 1.. {
            balancer.set(endpoint_set(&[endpoints[1 + turn % 2]]));
            tokio::task::yield_now().await;
            while let Some(asked) = asking.try_join_next() {
                asked.expect("no panic").expect("every request is answered");
            }
            if asking.is_empty() {
                break;
            }
        }
    })
    .await;
    assert_ne!(soon(ask_briefly(listener.address)).await.expect("an answer"), 1, "it has left");
    // Established connections continue, even without a listener.
    drop(listener);
    running.shutdown().await.expect("ended");
    let mut heard = Vec::new();
    soon(running.read_to_end(&mut heard)).await.expect("heard");
    assert_eq!(heard, b"\x01started");
}

#[tokio::test]
async fn more_connections_than_allowed_wait() {
    let listener =
        listen(&relay(Settings { connections: Some(2), ..Settings::default() }), &balancer(&[server(1).await]));
    let first = TcpStream::connect(listener.address).await.expect("connected");
    let second = TcpStream::connect(listener.address).await.expect("connected");
    let mut third = tokio::spawn(ask_briefly(listener.address));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut third).await;
    assert!(early.is_err(), "there is no room for it yet: {early:?}");
    drop(first);
    assert_eq!(soon(third).await.expect("asked").expect("an answer"), 1);
    drop(second);
}

#[tokio::test]
async fn without_endpoints_connections_are_closed_and_sctp_is_refused() {
    let relay = relay(Settings::default());
    let listener = listen(&relay, &balancer(&[]));
    assert!(soon(ask_briefly(listener.address)).await.is_err());
    let refused = relay.listen(loopback(), Sctp, &balancer(&[]), Scope::Cluster);
    assert!(refused.is_err_and(|error| error.kind() == io::ErrorKind::Unsupported));
    let taken = relay.listen(listener.address, Tcp, &balancer(&[]), Scope::Cluster);
    assert!(taken.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse));
}

// === UDP ===

/// A server that replies to each datagram with its number and the client port.
async fn udp_server(number: u8) -> SocketAddr {
    let socket = UdpSocket::bind(loopback()).await.expect("a server");
    let address = socket.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut buffer = [0; 100];
        while let Ok((_, from)) = socket.recv_from(&mut buffer).await {
            let [high, low] = from.port().to_be_bytes();
            socket.send_to(&[number, high, low], from).await?;
        }
        io::Result::Ok(())
    });
    address
}

/// A connected UDP client.
async fn udp_client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(loopback()).await.expect("a client");
    socket.connect(to).await.expect("connected");
    socket
}

/// The replying server and session; retries until there is a reply.
async fn ask_udp(client: &UdpSocket) -> (u8, [u8; 2]) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < TIMEOUT, "nobody answers");
        // Removed endpoints refuse with an ICMP error, which send reports.
        let _ = client.send(b"hello").await;
        let mut answer = [0; 3];
        if let Ok(Ok(3)) = tokio::time::timeout(Duration::from_millis(50), client.recv(&mut answer)).await {
            return (answer[0], [answer[1], answer[2]]);
        }
    }
}

#[tokio::test]
async fn udp_clients_have_separate_sessions() {
    let balancer = balancer(&[udp_server(1).await, udp_server(2).await]);
    let relay = relay(Settings::default());
    // Bound to all addresses, as for redirects: the reply comes from the address that the client used.
    let any = (Ipv4Addr::UNSPECIFIED, 0).into();
    let listener = relay.listen(any, Udp, &balancer, Scope::Cluster).expect("a listener");
    let mut seen = BTreeSet::new();
    for asked in [1, 7] {
        let client = udp_client(([127, 0, 0, asked], listener.address.port()).into()).await;
        let first = ask_udp(&client).await;
        for _ in 0..5 {
            assert_eq!(ask_udp(&client).await, first, "one session, one endpoint");
        }
        seen.insert(first.0);
    }
    assert_eq!(seen, [1, 2].into());
}

#[tokio::test]
async fn an_idle_session_times_out_and_frees_its_permit() {
    let settings = Settings { connections: Some(1), udp_idle: Duration::from_millis(100) };
    let balancer = balancer(&[udp_server(1).await]);
    let listener = relay(settings).listen(loopback(), Udp, &balancer, Scope::Cluster).expect("a listener");
    let (one, other) = (udp_client(listener.address).await, udp_client(listener.address).await);
    let session = ask_udp(&one).await;
    // The limit is one session: the second client waits until the first times out.
    assert_ne!(ask_udp(&other).await, session);
    assert_ne!(ask_udp(&one).await, session, "another session");
}

#[tokio::test]
async fn quiet_sessions_are_evicted_for_new_ones() {
    let settings = Settings { connections: Some(4), udp_idle: Duration::from_secs(3600) };
    let balancer = balancer(&[udp_server(1).await]);
    let listener = relay(settings).listen(loopback(), Udp, &balancer, Scope::Cluster).expect("a listener");
    // Each client sends once; no session would time out by itself.
    for _ in 0..12 {
        let client = udp_client(listener.address).await;
        assert_eq!(ask_udp(&client).await.0, 1);
    }
}

#[tokio::test]
async fn sessions_end_when_the_endpoint_is_removed_or_refuses() {
    let (first, second) = (udp_server(1).await, udp_server(2).await);
    let balancer = balancer(&[first]);
    let relay = relay(Settings { udp_idle: Duration::from_secs(3600), ..Settings::default() });
    let listener = relay.listen(loopback(), Udp, &balancer, Scope::Cluster).expect("a listener");
    let client = udp_client(listener.address).await;
    let session = ask_udp(&client).await;
    // Not chosen any more but serving: its sessions stay.
    balancer.set(Endpoints { cluster: vec![second], serving: vec![first, second], ..Endpoints::default() });
    assert_eq!(ask_udp(&client).await, session);
    balancer.set(endpoint_set(&[second]));
    let started = Instant::now();
    while ask_udp(&client).await.0 != 2 {
        assert!(started.elapsed() < TIMEOUT, "the session goes on");
    }
    let nobody = UdpSocket::bind(loopback()).await.and_then(|gone| gone.local_addr()).expect("an address");
    balancer.set(endpoint_set(&[nobody]));
    let client = udp_client(listener.address).await;
    // A refusal is reported once; then the next endpoint is tried.
    client.send(b"hello").await.expect("sent");
    balancer.set(endpoint_set(&[first, nobody]));
    assert_eq!(ask_udp(&client).await.0, 1);
}
