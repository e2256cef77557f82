//! A connection whose bytes pass as they are: to one pod and back, until both sides have ended or nothing has moved for too long.
//!
//! In: a stream of a client. Out: the same bytes at a pod, behind one line that says who the client is, if that is wished. A side that
//! says no more may still listen.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::time::{sleep, timeout};

use crate::guard::{Guarded, Moves, until_silent};
use crate::lane::{Lane, until_closing};
use crate::upstream::{connect, handshake};
use crate::wanted::Back;

/// How many pods are tried for a connection.
const TRIES: usize = 3;
/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// Carries a connection. Where no pod can be reached it ends.
pub(crate) async fn carry<I>(client: I, lane: &Lane, peer: SocketAddr, local: SocketAddr)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let mut tried = Vec::new();
    while tried.len() < TRIES {
        let Some(chosen) = lane.backends.load().choose(&tried) else { break };
        tried.push(chosen.address);
        let Ok(mut pod) = connect(lane, &chosen).await else { continue };
        if lane.port.proxy_protocol {
            let line = proxy_line(peer, SocketAddr::new(local.ip(), lane.port.number));
            // TLS begins behind it, if there is any.
            if !matches!(timeout(lane.limits.connect, pod.write_all(line.as_bytes())).await, Ok(Ok(()))) {
                continue;
            }
        }
        match lane.port.back {
            Back::Plain => return join(client, pod, lane).await,
            Back::Tls => match handshake(lane, &chosen, pod, &lane.back.bytes).await {
                Ok(pod) => return join(client, pod, lane).await,
                Err(why) => tracing::debug!(service = &*lane.service, pod = %chosen.address, ?why, "no TLS with a pod"),
            },
        }
    }
    lane.counts.no_pod();
    tracing::debug!(service = &*lane.service, ?tried, "no pod takes the connection");
}

/// Copies both ways until both sides have ended.
pub(crate) async fn join<A, B>(client: A, pod: B, lane: &Lane)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (idle, moves, mut closing) = (lane.bytes_idle(), Moves::default(), lane.closing());
    let mut client = Guarded::counted(client, idle, &moves);
    let mut pod = Guarded::counted(pod, idle, &moves);
    let over = async {
        until_closing(&mut closing).await;
        sleep(lane.limits.drain).await;
    };
    tokio::select! {
        biased;
        // However it ends, both are told by their end.
        _ = copy_bidirectional_with_sizes(&mut client, &mut pod, PIECE, PIECE) => {}
        () = until_silent(moves, idle) => {}
        () = over => {}
    }
}

/// The first line of a connection, by the PROXY protocol, version 1.
fn proxy_line(client: SocketAddr, local: SocketAddr) -> String {
    let (from, to) = (client.ip().to_canonical(), local.ip().to_canonical());
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    if from.is_ipv4() == to.is_ipv4() {
        format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), local.port())
    } else {
        "PROXY UNKNOWN\r\n".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_told_who_the_client_is() {
        let line = |from: &str, to: &str| proxy_line(from.parse().expect("one"), to.parse().expect("another"));
        assert_eq!(line("192.0.2.7:5000", "192.0.2.11:443"), "PROXY TCP4 192.0.2.7 192.0.2.11 5000 443\r\n");
        assert_eq!(line("[2001:db8::7]:5", "[2001:db8::b]:6"), "PROXY TCP6 2001:db8::7 2001:db8::b 5 6\r\n");
        assert_eq!(line("[::ffff:192.0.2.7]:5", "192.0.2.11:6"), "PROXY TCP4 192.0.2.7 192.0.2.11 5 6\r\n");
        assert_eq!(line("[2001:db8::7]:5", "192.0.2.11:6"), "PROXY UNKNOWN\r\n");
    }
}
