//! The servers: a sink for streams, which responds with one byte when it has read everything; a server for short connections,
//! which responds at once and closes first, so that no client runs out of ports; and an echo for datagrams.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use testbed::net::Host;

use super::carry::Way;
use crate::load::{NAMESPACE, SERVICES, SLICES, Work};
use crate::proxy::objects::HERE;

/// The endpoint of the Service. Clients do not connect to it directly: a connection in `TIME_WAIT` at one address would block one
/// from the same port that arrives through the Service.
const SERVED: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 9);

/// Where the sink listens.
const SINK: u16 = 8100;
/// Where the echo does.
const ECHO: u16 = 8101;
/// The address of the server for short connections.
const DESK: u16 = 8102;
/// The Service of all.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 96, 240, 200);
/// How many connections each takes at once.
const HANDS: usize = 4;
/// As much as a stream is read at once.
const GULP: usize = 256 << 10;

/// The way past all proxies.
#[must_use]
pub const fn directly() -> Way {
    to(HERE)
}

/// The way by the Service.
#[must_use]
pub const fn by_service() -> Way {
    to(VIP)
}

const fn to(ip: Ipv4Addr) -> Way {
    let ip = IpAddr::V4(ip);
    Way { sink: SocketAddr::new(ip, SINK), desk: SocketAddr::new(ip, DESK), echo: Some(SocketAddr::new(ip, ECHO)) }
}

/// What makes the Service.
#[must_use]
pub fn objects() -> [Work; 2] {
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
    let ports = json!([port("sink", "TCP", SINK), port("desk", "TCP", DESK), port("echo", "UDP", ECHO)]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "stand", "namespace": NAMESPACE},
        "spec": {"clusterIP": VIP, "ports": ports},
    });
    let slice: Value = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": ports,
        "metadata": {"name": "stand-0", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": "stand"}},
        "endpoints": [{"addresses": [SERVED]}],
    });
    [Work::create(SERVICES, &service), Work::create(SLICES, &slice)]
}

/// Starts serving on this machine, for as long as the program runs.
///
/// # Errors
/// When the address cannot be bound.
pub fn open(far: &Host) -> anyhow::Result<()> {
    for ip in [HERE, SERVED] {
        for (port, serve) in [(SINK, swallow as fn(&TcpListener)), (DESK, reply)] {
            let listener = far.in_namespace(|| TcpListener::bind((ip, port))).context("listening for connections")?;
            let listener = Arc::new(listener);
            for _ in 0..HANDS {
                let listener = Arc::clone(&listener);
                std::thread::Builder::new().name("stand".to_owned()).spawn(move || serve(&listener))?;
            }
        }
        let socket = far.in_namespace(|| UdpSocket::bind((ip, ECHO))).context("listening for datagrams")?;
        std::thread::Builder::new().name("echo".to_owned()).spawn(move || answer(&socket))?;
    }
    Ok(())
}

fn swallow(listener: &TcpListener) {
    let mut buffer = vec![0; GULP];
    for mut connection in listener.incoming().flatten() {
        // A client that closes early is ignored.
        while connection.read(&mut buffer).is_ok_and(|count| count > 0) {}
        let _ = connection.write_all(b"k");
    }
}

fn reply(listener: &TcpListener) {
    let mut buffer = [0; 16];
    for mut connection in listener.incoming().flatten() {
        if connection.read(&mut buffer).is_ok() {
            let _ = connection.write_all(b"k");
        }
    }
}

fn answer(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    while let Ok((count, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..count], from);
    }
}
