//! A connection from its arrival: TLS first where it is due, then requests or bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::lane::{Place, until_closing};
use crate::tls::is_h2;
use crate::wanted::Mode;
use crate::web::{self, Visitor};
use crate::wire;
use crate::workers::Turn;

/// How every connection of HTTP/2 begins, in short: no method of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI";

/// A connection that was accepted.
pub(crate) struct Arrival {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) place: Place,
    /// Counted as work of its worker.
    pub(crate) turn: Turn,
}

/// Serves it to its end.
pub(crate) async fn serve(arrival: Arrival, worker: usize) {
    let Arrival { stream, peer, place, turn: _turn } = arrival;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let Ok(local) = stream.local_addr() else { return };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let lane = Arc::clone(&place);
    let visitor = || Visitor::new(Arc::clone(&place), worker, peer);
    match (&lane.tls, lane.port.mode) {
        (None, Mode::Bytes) => wire::carry(stream, &lane, peer, local).await,
        (None, Mode::Http) => {
            let mut first = [0; PREFACE.len()];
            let mut closing = lane.closing();
            let begun = tokio::select! {
                begun = timeout(lane.idle(), stream.peek(&mut first)) => begun,
                () = until_closing(&mut closing) => return,
            };
            // Whoever sends it byte by byte speaks HTTP/1.1 for all we know.
            if let Ok(Ok(1..)) = begun {
                web::serve(stream, first == PREFACE, visitor()).await;
            }
        }
        (Some(tls), mode) => {
            let accepting = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
            let stream = match timeout(lane.limits.handshake, accepting).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    lane.counts.no_handshake();
                    tracing::debug!(service = &*lane.service, %peer, %error, "no TLS with a client");
                    return;
                }
                Err(_) => return lane.counts.no_handshake(),
            };
            match mode {
                Mode::Bytes => wire::carry(stream, &lane, peer, local).await,
                Mode::Http => {
                    let is_h2 = is_h2(stream.get_ref().1.alpn_protocol());
                    web::serve(stream, is_h2, visitor()).await;
                }
            }
        }
    }
}
