//! An HTTP/3 connection: its requests, until the client goes, is idle, or the port closes.
//!
//! In: a QUIC connection. Out: a task per request. A port that closes sends GOAWAY, lets requests in progress complete, and rejects others,
//! which the client sends again elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use h3::error::Code;
use h3::server::Connection;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::exchange::{self, Outcome};
use super::transport::{ConnectionState, Transport, code};
use crate::http_proxy::ClientConnection;
use crate::metrics::QuicLimit;
use crate::port_config::until_closing;

type Requests = JoinSet<Outcome>;

/// Requests that the client has cancelled, in relation to those that were answered.
struct Resets {
    cancelled: u64,
    answered: u64,
    limit: u64,
}

/// Serves a connection until it is closed, or until its port or its listener closes and the last request is answered.
pub(super) async fn serve(
    connection: quinn::Connection,
    client: ClientConnection,
    mut listener_closing: watch::Receiver<bool>,
) {
    let (port_config, client) = (Arc::clone(&client.port_config), Arc::new(client));
    let (limits, idle) = (port_config.limits, port_config.idle());
    let state = Arc::new(ConnectionState::new(limits.head, idle, Arc::clone(&port_config.metrics)));
    let mut builder = h3::server::builder();
    builder.max_field_section_size(limits.head as u64).send_grease(false);
    let building = builder.build(Transport::new(connection.clone(), Arc::clone(&state)));
    let Ok(Ok(mut http)) = timeout(limits.handshake, building).await else { return };
    let mut requests = Requests::new();
    let mut resets = Resets { cancelled: 0, answered: 0, limit: limits.resets as u64 };
    let mut closing = port_config.closing();
    let mut look = Instant::now() + idle;
    loop {
        tokio::select! {
            biased;
            Some(done) = requests.join_next(), if !requests.is_empty() => {
                look = Instant::now() + idle;
                if resets.is_too_many(done.unwrap_or(Outcome::Cancelled)) {
                    port_config.metrics.quic.limited(QuicLimit::Resets);
                    tracing::debug!(service = &*port_config.service, client = %client.address, "closed HTTP/3 connection: too many resets");
                    return connection.close(code(Code::H3_EXCESSIVE_LOAD.value()), b"too many requests were cancelled");
                }
            }
            accepted = http.accept() => {
                let Ok(Some(resolver)) = accepted else { return };
                let Some(stream) = state.accepted() else { return };
                requests.spawn(exchange::serve(resolver, stream, Arc::clone(&client)));
            }
            () = until_closing(&mut closing) => break,
            () = until_closing(&mut listener_closing) => break,
            () = sleep_until(look), if requests.is_empty() => break,
        }
    }
    state.drain();
    drain(http, requests, Instant::now() + limits.drain.max(idle)).await;
}

/// Lets requests in progress complete.
async fn drain(mut http: Connection<Transport, Bytes>, mut requests: Requests, end: Instant) {
    // The identifier of the next request: none from there on is served.
    if http.shutdown(1).await.is_err() {
        return;
    }
    while !requests.is_empty() {
        tokio::select! {
            _ = requests.join_next() => {}
            // Reads what the client says meanwhile.
            accepted = http.accept() => if !matches!(accepted, Ok(Some(_))) { return },
            () = sleep_until(end) => return,
        }
    }
}

impl Resets {
    /// Counts a request. A client may cancel some, and one more for each that it lets complete: those cost it something, too.
    fn is_too_many(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Answered => self.answered += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Failed => {}
        }
        self.cancelled > self.limit + self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_cancel_as_much_as_they_let_complete() {
        let mut resets = Resets { cancelled: 0, answered: 0, limit: 3 };
        for outcome in
            [Outcome::Cancelled, Outcome::Answered, Outcome::Cancelled, Outcome::Cancelled, Outcome::Cancelled]
        {
            assert!(!resets.is_too_many(outcome));
        }
        assert!(resets.is_too_many(Outcome::Cancelled));
    }
}
