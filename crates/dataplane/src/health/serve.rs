//! A small HTTP server for a few paths.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// An answer: code, headers, body.
pub type Answer = (u16, Vec<(&'static str, String)>, String);

/// Answers requests by their path.
pub trait Answers: Send + Sync {
    /// The answer to a path.
    fn answer(&self, path: &str) -> Answer;
}

/// Serves requests on a listener for as long as the future is polled.
pub async fn serve(listener: TcpListener, answers: Arc<dyn Answers>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let answers = answers.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (code, headers, body) = answers.answer(request.uri().path());
                let mut response = Response::builder().status(code);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let response = response.body(Full::new(Bytes::from(body)));
                async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
            });
            // A client that goes away is no concern of ours.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
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
