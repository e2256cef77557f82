//! A small HTTP server for a few paths.
//!
//! Some of these ports are at all addresses of a machine, and whoever reaches it can connect: connections are limited in number, and end when they are
//! idle.

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

/// How many connections a listener serves at once; others wait in its backlog.
const MOST_CONNECTIONS: usize = 64;
/// How long a connection may take for the head of a request, or be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long until connections are accepted again after the kernel refused, for want of descriptors for example.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// An answer: code, headers, body.
pub type Answer = (u16, Vec<(&'static str, String)>, String);

/// Answers requests by their path.
pub trait Answers: Send + Sync {
    /// The answer to a path.
    fn answer(&self, path: &str) -> Answer;
}

/// Serves requests on a listener for as long as the future is polled.
pub async fn serve(listener: TcpListener, answers: Arc<dyn Answers>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // It is never closed.
        let slot = slots.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let service = service_fn(|request: Request<Incoming>| {
                let (code, headers, body) = answers.answer(request.uri().path());
                let mut response = Response::builder().status(code);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let response = response.body(Full::new(Bytes::from(body)));
                async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
            // A client that goes away is no concern of ours.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Opens a listener, of IPv6 alone where the address is one, so that both families can have the same port.
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

    impl Answers for Fine {
        fn answer(&self, _path: &str) -> Answer {
            (200, Vec::new(), "fine".to_owned())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_send_nothing_do_not_keep_others_out_for_long() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let at = listener.local_addr().expect("bound");
        let server = tokio::spawn(serve(listener, Arc::new(Fine)));
        let mut silent = Vec::new();
        for _ in 0..MOST_CONNECTIONS {
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
