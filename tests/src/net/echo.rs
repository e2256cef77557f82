//! Servers that respond with their name and the addresses they see.
//!
//! In: lines, or datagrams. Out: for each, one line `name=<host> client=<ip>:<port> server=<ip>:<port>`. Sockets are made inside
//! the namespace; the thread that serves them belongs to the cluster and need not be there.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::net::{SocketType, bind, ipproto, listen, sockopt};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use super::host::Host;
use super::sctp::{self, Desk, Ports};
use super::{Family, Protocol, socket};

/// What a server answers.
pub(super) fn line(name: &str, client: SocketAddr, server: SocketAddr) -> String {
    format!("name={name} client={client} server={server}\n")
}

/// The servers of one host.
#[derive(Default)]
pub(super) struct Echoes {
    serving: Mutex<Vec<Serving>>,
    /// SCTP on raw sockets: one server for all ports of an address. It stays when its last port is closed, and refuses.
    desks: Mutex<HashMap<IpAddr, (Ports, JoinHandle<()>)>>,
}

struct Serving {
    protocol: Protocol,
    at: SocketAddr,
    task: JoinHandle<()>,
}

impl Echoes {
    /// Serves at an address of this host.
    pub(super) fn add(&self, host: &Host, protocol: Protocol, address: IpAddr, port: u16) {
        let at = SocketAddr::new(address, port);
        let known = |one: &Serving| one.protocol == protocol && one.at == at;
        assert!(!self.serving.lock().iter().any(known), "{} already serves {protocol:?} at {at}", host.name());
        let started = if protocol == Protocol::Sctp && !sctp::kernel_speaks() {
            self.add_to_desk(host, at)
        } else {
            start(host, protocol, at).map(|task| self.serving.lock().push(Serving { protocol, at, task }))
        };
        started.unwrap_or_else(|error| panic!("{} cannot serve {protocol:?} at {at}: {error}", host.name()));
    }

    fn add_to_desk(&self, host: &Host, at: SocketAddr) -> io::Result<()> {
        let mut desks = self.desks.lock();
        if let Some((ports, _)) = desks.get(&at.ip()) {
            ports.lock().insert(at.port());
            return Ok(());
        }
        let ports = Ports::default();
        ports.lock().insert(at.port());
        let runtime = host.runtime();
        let desk = host.in_namespace(|| {
            let _serving = runtime.enter();
            Desk::open(host.name(), at.ip(), Ports::clone(&ports))
        })?;
        desks.insert(at.ip(), (ports, runtime.spawn(desk.serve())));
        Ok(())
    }

    /// Ends the servers of a port, and waits until their sockets are closed.
    pub(super) fn remove(&self, host: &Host, port: u16) {
        for (ports, _) in self.desks.lock().values() {
            ports.lock().remove(&port);
        }
        let ended = self.serving.lock().extract_if(.., |one| one.at.port() == port).map(|one| one.task).collect();
        end(host, ended);
    }

    /// Ends all servers.
    pub(super) fn clear(&self, host: &Host) {
        let desks = std::mem::take(&mut *self.desks.lock()).into_values().map(|(_, task)| task);
        let serving = std::mem::take(&mut *self.serving.lock()).into_iter().map(|one| one.task);
        end(host, serving.chain(desks).collect());
    }
}

/// Ends tasks. Waits on a separate thread: the test may itself run inside a runtime, where blocking is forbidden.
fn end(host: &Host, tasks: Vec<JoinHandle<()>>) {
    if tasks.is_empty() {
        return;
    }
    tasks.iter().for_each(JoinHandle::abort);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for task in tasks {
                // A server that panicked has reported it.
                let _ = host.runtime().block_on(task);
            }
        });
    });
}

/// Opens a socket inside the namespace and starts to serve it.
fn start(host: &Host, protocol: Protocol, at: SocketAddr) -> io::Result<JoinHandle<()>> {
    let name = host.name().to_owned();
    let runtime = host.runtime();
    host.in_namespace(|| {
        let _serving = runtime.enter();
        Ok(match protocol {
            Protocol::Udp => runtime.spawn(datagrams(UdpSocket::from_std(bound(protocol, at)?.into())?, name)),
            Protocol::Tcp | Protocol::Sctp => {
                let socket = bound(protocol, at)?;
                listen(&socket, 1024)?;
                runtime.spawn(streams(TcpListener::from_std(socket.into())?, name))
            }
        })
    })
}

fn bound(protocol: Protocol, at: SocketAddr) -> io::Result<OwnedFd> {
    let (kind, number) = match protocol {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
        Protocol::Sctp => (SocketType::STREAM, ipproto::SCTP),
    };
    let socket = socket::open(Family::of(at.ip()), kind, Some(number))?;
    if protocol != Protocol::Udp {
        // A port whose last connections are in `TIME_WAIT` can be served again.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &at)?;
    Ok(socket)
}

async fn streams(listener: TcpListener, name: String) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => drop(connections.spawn(converse(stream, client, name.clone()))),
            // Gone before it was greeted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => panic!("{name} cannot accept: {error}"),
        }
        while connections.try_join_next().is_some() {}
    }
}

/// One connection, until the client disconnects.
async fn converse(stream: TcpStream, client: SocketAddr, name: String) -> io::Result<()> {
    let answer = line(&name, client, stream.local_addr()?);
    let mut stream = BufReader::new(stream);
    let mut question = Vec::new();
    while stream.read_until(b'\n', &mut question).await? > 0 {
        question.clear();
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn datagrams(socket: UdpSocket, name: String) {
    let server = socket.local_addr().expect("its address");
    let mut question = [0; 2048];
    loop {
        // An error is news of a client that is gone.
        if let Ok((_, client)) = socket.recv_from(&mut question).await {
            let _ = socket.send_to(line(&name, client, server).as_bytes(), client).await;
        }
    }
}
