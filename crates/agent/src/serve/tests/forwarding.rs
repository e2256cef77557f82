use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::client::{Frame, Plain, Socket, Spdy, agent, data};

/// A server that, after the end of its input, returns the length and the content of it.
async fn counter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                socket.read_to_end(&mut all).await.expect("a client that finishes");
                let said = format!("{} {}", all.len(), String::from_utf8_lossy(&all[..all.len().min(5)]));
                socket.write_all(said.as_bytes()).await.expect("a client that reads");
            });
        }
    });
    address
}

/// A port without a listener.
async fn nobody() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").port()
}

#[tokio::test]
async fn concurrent_connections_are_independent() {
    let (agent, _) = agent();
    let port = counter().await.port().to_string();
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    for request in 0..50u32 {
        let number = request.to_string();
        let with = |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", number.as_str())];
        plain.stream(4 * request + 1, &with("error")).await;
        plain.connection.send(&data(4 * request + 1, b"", true)).await;
        plain.stream(4 * request + 3, &with("data")).await;
        plain.connection.send(&data(4 * request + 3, format!("{request:05}").as_bytes(), false)).await;
    }
    for request in 0..50u32 {
        plain.connection.send(&data(4 * request + 3, &[b'x'; 3000], true)).await;
    }
    let mut answers = std::collections::BTreeMap::<u32, String>::new();
    let mut finished = 0;
    while finished < 100 {
        match plain.next().await.expect("not the end") {
            Frame::Data(id, bytes, finish) => {
                assert!(id % 4 == 3 || bytes.is_empty(), "an error: {}", String::from_utf8_lossy(&bytes));
                answers.entry(id / 4).or_default().push_str(&String::from_utf8_lossy(&bytes));
                finished += u32::from(finish);
            }
            Frame::Reply(_) | Frame::Credit(..) => {}
            other => panic!("{other:?}"),
        }
    }
    for request in 0..50 {
        assert_eq!(answers[&request], format!("3005 {request:05}"));
    }
}

#[tokio::test]
async fn legacy_clients_send_no_request_id() {
    let (agent, _) = agent();
    let port = counter().await.port().to_string();
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    plain.stream(1, &[("streamtype", "error"), ("port", &port)]).await;
    plain.stream(3, &[("streamtype", "data"), ("port", &port)]).await;
    plain.connection.send(&data(3, b"hello", true)).await;
    assert_eq!(plain.all_of(3).await, b"5 hello");
}

#[tokio::test]
async fn a_refused_port_is_an_error_of_one_connection() {
    let (agent, _) = agent();
    let (dead, alive) = (nobody().await.to_string(), counter().await.port().to_string());
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    for (first, port) in [(1, &dead), (5, &alive)] {
        plain.stream(first, &[("streamtype", "error"), ("port", port), ("requestid", port)]).await;
        plain.stream(first + 2, &[("streamtype", "data"), ("port", port), ("requestid", port)]).await;
    }
    let said = String::from_utf8(plain.all_of(1).await).expect("text");
    let wanted = format!("error forwarding port {dead} to pod web, uid : failed to connect to localhost:{dead}");
    assert!(said.starts_with(&wanted), "{said}");
    plain.connection.send(&data(7, b"", true)).await;
    assert_eq!(plain.all_of(7).await, b"0 ");
}

#[tokio::test]
async fn invalid_streams_are_reset() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    let bad: [&[(&str, &str)]; 4] = [
        &[("streamtype", "data")],
        &[("streamtype", "data"), ("port", "0")],
        &[("streamtype", "data"), ("port", "65536")],
        &[("streamtype", "stdin"), ("port", "80")],
    ];
    for (id, headers) in (1..).step_by(2).zip(bad) {
        plain.stream(id, headers).await;
        assert_eq!(plain.next().await, Some(Frame::Reset(id, 5)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_stream_pair_times_out() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    plain.stream(1, &[("streamtype", "error"), ("port", "80"), ("requestid", "r")]).await;
    // The paused clock advances while all tasks wait.
    let mut said = Vec::new();
    while let Some(frame) = plain.next().await {
        if let Frame::Data(1, bytes, finish) = frame {
            said.extend_from_slice(&bytes);
            if finish {
                break;
            }
        }
    }
    assert_eq!(String::from_utf8_lossy(&said), "(request=r) timed out waiting for streams");
}

#[tokio::test]
async fn spdy_inside_websocket() {
    let (agent, _) = agent();
    let port = counter().await.port().to_string();
    let mut socket = Socket::open(&agent, "/portForward/default/web", "SPDY/3.1+portforward.k8s.io").await;
    let mut spdy = Spdy::new();
    let mut bytes = spdy.open(1, &[("streamtype", "error"), ("port", &port), ("requestid", "0")]);
    bytes.extend(spdy.open(3, &[("streamtype", "data"), ("port", &port), ("requestid", "0")]));
    bytes.extend(data(3, b"hello", true));
    // Messages have nothing to do with frames.
    for piece in bytes.chunks(7) {
        socket.send(2, piece).await;
    }
    let mut said = Vec::new();
    'all: loop {
        let (kind, message) = socket.next().await;
        assert!(kind == 2 || kind == 9, "{kind}");
        if kind == 2 {
            spdy.held.extend_from_slice(&message);
        }
        while let Some(frame) = spdy.next() {
            if let Frame::Data(3, bytes, finish) = frame {
                said.extend_from_slice(&bytes);
                if finish {
                    break 'all;
                }
            }
        }
    }
    assert_eq!(said, b"5 hello");
    socket.send(8, &1000u16.to_be_bytes()).await;
    assert_eq!(socket.next().await, (8, vec![3, 232].into()));
}

#[tokio::test]
async fn legacy_websocket_has_two_channels_per_port() {
    let (agent, _) = agent();
    let (port, dead) = (counter().await.port(), nobody().await);
    let path = format!("/portForward/default/web?port={port},{dead}");
    let mut socket = Socket::open(&agent, &path, "v4.channel.k8s.io").await;
    let mut said: [Vec<u8>; 4] = Default::default();
    while said[3].len() < 20 {
        let (_, message) = socket.next().await;
        said[usize::from(message[0])].extend_from_slice(&message[1..]);
    }
    assert_eq!((&said[0], &said[1]), (&port.to_le_bytes().to_vec(), &port.to_le_bytes().to_vec()));
    assert_eq!(said[3][..2], dead.to_le_bytes());
    assert!(String::from_utf8_lossy(&said[3][2..]).starts_with(&format!("error forwarding port {dead} to pod web")));
}
