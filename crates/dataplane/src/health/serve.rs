//! A small HTTP server for a few paths.
//!
//! Some of these ports are open on all addresses of the machine, so the number of connections and their idle time are
//! limited.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections served at once per listener; others wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for request headers and idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Backoff after `accept` fails, for example with EMFILE.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Response: status code, headers, body.
pub type Reply = (u16, Vec<(&'static str, String)>, String);

/// Handles requests by path.
pub trait Handler: Send + Sync {
    /// The response to a path.
    fn handle(&self, path: &str) -> Reply;
}

/// Serves requests while polled.
pub async fn serve(listener: TcpListener, handler: Arc<dyn Handler>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let slot = slots.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let handler = handler.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let service = service_fn(|request: Request<Incoming>| {
                let (code, headers, body) = handler.handle(request.uri().path());
                let mut response = Response::builder().status(code);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let response = response.body(Full::new(Bytes::from(body)));
                async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
            // Errors mean that the client closed the connection.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Opens a listener; IPv6 only for IPv6 addresses, so that both families can use one port.
pub(super) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(64)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    struct Fine;

    impl Handler for Fine {
        fn handle(&self, _path: &str) -> Reply {
            (200, Vec::new(), "fine".to_owned())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_time_out_and_free_their_slot() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let at = listener.local_addr().expect("bound");
        let server = tokio::spawn(serve(listener, Arc::new(Fine)));
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(TcpStream::connect(at).await.expect("connected"));
        }
        let mut late = TcpStream::connect(at).await.expect("connected");
        late.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
        let mut text = String::new();
        late.read_to_string(&mut text).await.expect("an answer");
        assert!(text.ends_with("fine"), "{text}");
        let mut byte = [0; 1];
        let closed = tokio::time::timeout(IDLE_TIMEOUT * 2, silent[0].read(&mut byte)).await;
        assert!(matches!(closed, Ok(Ok(0))), "{closed:?}");
        server.abort();
    }
}
