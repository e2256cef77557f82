//! What QUIC clients can consume, and how connections end.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::*;
use crate::tests::eventually;

/// A relay between a client and a server, which counts bytes.
struct Relay {
    address: SocketAddr,
    to_server: Arc<AtomicU64>,
    to_client: Arc<AtomicU64>,
}

impl Relay {
    /// `answers` is false when the client receives nothing, as if its address were forged.
    fn new(server: SocketAddr, answers: bool) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let back = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = front.local_addr().expect("an address");
        let (to_server, to_client) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let client = Arc::new(Mutex::new(None));
        let (near, far, count, known) = (
            front.try_clone().expect("a socket"),
            back.try_clone().expect("a socket"),
            Arc::clone(&to_server),
            Arc::clone(&client),
        );
        let is_first = AtomicBool::new(true);
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = near.recv_from(&mut buffer) {
                *known.lock() = Some(from);
                // One who forges an address sends one packet, and cannot send what depends on the answer.
                if answers || is_first.swap(false, Relaxed) {
                    count.fetch_add(length as u64, Relaxed);
                    let _ = far.send_to(&buffer[..length], server);
                }
            }
        });
        let count = Arc::clone(&to_client);
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, _)) = back.recv_from(&mut buffer) {
                count.fetch_add(length as u64, Relaxed);
                if let Some(client) = client.lock().filter(|_| answers) {
                    let _ = front.send_to(&buffer[..length], client);
                }
            }
        });
        Self { address, to_server, to_client }
    }

    /// Bytes to the server, and from it.
    fn transferred(&self) -> (u64, u64) {
        (self.to_server.load(Relaxed), self.to_client.load(Relaxed))
    }
}

#[test]
fn an_address_that_is_not_proven_receives_at_most_three_times_what_it_sent() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    // A certificate of several packets.
    let names: Vec<String> = (0..200).map(|index| format!("host-{index}.web.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["web.example"]).collect();
    secret(&mut trust, "https", &ca.sign(&names));
    let gateway = QuicGateway::configured(&[https(None)], trust, |port| port.limits.handshake = millis(1500));
    let relay = Relay::new(gateway.address, false);
    let client = Client::impatient(&ca, millis(400));
    let error = client.runtime.block_on(client.open(relay.address, "web.example")).err();
    assert!(matches!(error, Some(ConnectionError::TimedOut)), "{error:?}");
    // Until then it sends again what is not acknowledged.
    eventually("the handshake is given up", || gateway.inner.port_config.open() == 0);
    let (sent, received) = relay.transferred();
    assert!(sent >= 1200 && received >= 1200, "{received} bytes for {sent}");
    assert!(received <= 3 * sent, "{received} bytes for {sent}");
}

#[test]
fn under_load_clients_prove_their_address_first() {
    let ca = Ca::new();
    let gateway = QuicGateway::simple(&ca, |port| port.limits.unproven_handshakes = 0);
    // A forged address causes one small packet, and nothing is kept.
    let relay = Relay::new(gateway.address, false);
    let impatient = Client::impatient(&ca, millis(400));
    let error = impatient.runtime.block_on(impatient.open(relay.address, "web.example")).err();
    assert!(matches!(error, Some(ConnectionError::TimedOut)), "{error:?}");
    let (sent, received) = relay.transferred();
    assert!((1..sent).contains(&received), "{received} bytes for {sent}");
    assert_eq!(gateway.inner.port_config.open(), 0);
    let before = gateway.limited("handshakes");
    assert!(before >= 1, "it is counted");
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200);
    assert_eq!(gateway.limited("handshakes"), before + 1);
}

#[test]
fn connections_count_towards_the_limit_of_the_port() {
    let ca = Ca::new();
    let gateway = QuicGateway::simple(&ca, |port| port.limits.connections = 2);
    let client = Client::new(&ca);
    let over_tcp = gateway.inner.connect();
    eventually("a connection is open", || gateway.inner.port_config.open() == 1);
    let first = client.connect(&gateway, "web.example").expect("a connection");
    let error = client.connect(&gateway, "web.example").err();
    assert!(matches!(error, Some(ConnectionError::ConnectionClosed(_))), "{error:?}");
    assert_eq!(gateway.limited("connections"), 1);
    first.connection.close(VarInt::from_u32(0), b"");
    drop(over_tcp);
    eventually("they are closed", || gateway.inner.port_config.open() == 0);
    assert!(client.connect(&gateway, "web.example").is_ok());
}

#[test]
fn clients_that_cancel_too_many_requests_lose_their_connection() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |port| port.limits.resets = 4);
    let (began, begun) = mpsc::channel();
    let silent = scripted(move |_| {
        let _ = began.send(());
        String::new()
    });
    gateway.inner.service("silent", &[silent]);
    gateway.inner.simple("https", "silent", &["silent.example"], &["silent"]);
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200);
    let cancel = |session: &mut Session| {
        client.runtime.block_on(async {
            let request = Request::get("https://silent.example/").body(()).expect("a request");
            let mut stream = session.requests.send_request(request).await.expect("a stream");
            stream.finish().await.expect("a request");
            // Cancelled by the client while the pod works on it.
            tokio::task::block_in_place(|| begun.recv_timeout(TIMEOUT)).expect("a request at the pod");
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        });
    };
    // As many as allowed, and one for the request that was answered.
    for _ in 0..5 {
        cancel(&mut session);
    }
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200);
    cancel(&mut session);
    cancel(&mut session);
    let error = client.closed(&session);
    assert!(is_closed_with(&error, Code::H3_EXCESSIVE_LOAD), "{error:?}");
    assert_eq!(gateway.limited("resets"), 1);
}

#[test]
fn a_client_cannot_take_its_connection_to_another_address() {
    let ca = Ca::new();
    let gateway = QuicGateway::simple(&ca, |_| {});
    let client = Client::impatient(&ca, millis(500));
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200);
    let elsewhere = UdpSocket::bind("127.0.0.3:0").expect("an address of loopback");
    let inside = client.runtime.enter();
    client.endpoint.rebind(elsewhere).expect("a socket");
    drop(inside);
    let request = Request::get("https://web.example/").body(()).expect("a request");
    assert!(client.runtime.block_on(session.ask(request, None)).is_err(), "its packets are ignored");
    // Whose idle timer fires first decides what the client sees: its own timeout, or the stateless reset (RFC 9000, 10.3) of a server that
    // no longer knows the connection.
    let error = client.closed(&session);
    assert!(matches!(error, ConnectionError::TimedOut | ConnectionError::Reset), "{error:?}");
}

#[test]
fn idle_connections_are_closed_and_those_with_requests_are_not() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |port| port.limits.http_idle = millis(400));
    let (_never, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    // Takes much longer than a connection may be idle.
    let slow = scripted(move |_| {
        let _ = released.lock().recv_timeout(millis(1500));
        response(200, "late")
    });
    gateway.inner.service("slow", &[slow]);
    let mut long = rule(&json!({"backends": [{"name": "slow"}]}));
    long.policy = Some(Arc::new(Policy { read_timeout: Some(TIMEOUT), ..Policy::default() }));
    gateway.inner.route("https", "slow", &["slow.example"], vec![long]);
    let mut client = Client::new(&ca);
    client.transport(|transport| {
        transport.keep_alive_interval(Some(millis(50)));
    });
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut session, "https://slow.example/").text(), "late");
    // Packets without requests do not keep a connection open.
    let error = client.closed(&session);
    assert!(is_closed_with(&error, Code::H3_NO_ERROR), "{error:?}");
}

#[test]
fn a_port_that_closes_completes_requests_and_takes_no_others() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |_| {});
    let ((began, begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let released = Mutex::new(released);
    let slow = scripted(move |_| {
        let _ = began.send(());
        let _ = released.lock().recv_timeout(TIMEOUT);
        response(200, &"late ".repeat(50_000))
    });
    gateway.inner.service("slow", &[slow]);
    gateway.inner.simple("https", "slow", &["slow.example"], &["slow"]);
    let client = Client::new(&ca);
    for is_port in [false, true] {
        let mut session = client.connect(&gateway, "web.example").expect("a connection");
        let idle = client.connect(&gateway, "web.example").expect("a connection");
        let mut others = session.requests.clone();
        let asking = client.runtime.spawn(async move {
            let request = Request::get("https://slow.example/").body(()).expect("a request");
            let answer = session.ask(request, None).await.expect("an answer");
            (session, answer)
        });
        begun.recv_timeout(TIMEOUT).expect("a request at the pod");
        match is_port {
            true => gateway.inner.port_config.close(),
            false => drop(gateway.listener.take()),
        }
        let error = client.closed(&idle);
        assert!(is_closed_with(&error, Code::H3_NO_ERROR), "{error:?}");
        // GOAWAY has arrived and the client sends no more, or the request is rejected.
        let refused = client.runtime.block_on(async {
            let request = Request::get("https://web.example/").body(()).expect("a request");
            let mut stream = others.send_request(request).await?;
            stream.finish().await?;
            stream.recv_response().await
        });
        assert!(refused.is_err(), "{refused:?}");
        release.send(()).expect("a pod");
        let (session, answer) = client.runtime.block_on(asking).expect("an answer");
        assert_eq!(answer.body.len(), 250_000);
        let error = client.closed(&session);
        assert!(is_closed_with(&error, Code::H3_NO_ERROR), "{error:?}");
        eventually("no connection is open", || gateway.inner.port_config.open() == 0);
        if !is_port {
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let listener = QuicListener::open(here, &gateway.inner.port_config, &gateway.inner.workers);
            let listener = listener.expect("a port");
            gateway.address = listener.address;
            gateway.listener = Some(listener);
        }
    }
}
