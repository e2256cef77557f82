//! Servers inside pods: each responds to a request with the head that it received, by TLS or without, and records it.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testbed::net::Pod;

/// The request heads that pods received.
pub(crate) type Heard = Arc<Mutex<Vec<String>>>;

/// Has a pod serve a port; by TLS when it has a certificate (`DIR/NAME.crt` and `.key`).
pub(crate) fn serve(pod: &Pod, port: u16, certificate: Option<(&Path, &str)>) -> Heard {
    let heard = Heard::default();
    let config = certificate.map(|(folder, name)| Arc::new(config(folder, name)));
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).expect("the port is free"));
    let (name, all) = (pod.name().to_owned(), Arc::clone(&heard));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (name, heard, config) = (name.clone(), Arc::clone(&all), config.clone());
            std::thread::spawn(move || match config {
                None => answer(stream, &name, &heard),
                Some(config) => {
                    let connection = rustls::ServerConnection::new(config).expect("a connection");
                    answer(rustls::StreamOwned::new(connection, stream), &name, &heard)
                }
            });
        }
    });
    heard
}

/// Has a pod serve a port by HTTP/2 alone: the body is echoed, with the name of the pod before it and the trailer of gRPC after it.
pub(crate) fn serve_h2(pod: &Pod, port: u16) {
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).expect("the port is free"));
    listener.set_nonblocking(true).expect("a listener of the runtime");
    let name = pod.name().to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                // Otherwise the end of each response waits for a delayed acknowledgement.
                stream.set_nodelay(true).expect("a connection");
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let name = name.clone();
                let service = service_fn(move |request| echo(name.clone(), request));
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
}

type Frames = futures_util::stream::Iter<std::array::IntoIter<Result<Frame<Bytes>, hyper::Error>, 2>>;

async fn echo(name: String, request: Request<Incoming>) -> Result<Response<StreamBody<Frames>>, hyper::Error> {
    let heard = format!("{:?} {} {}", request.version(), request.method(), request.uri().path());
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let body = request.into_body().collect().await?.to_bytes();
    let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
    let mut answer = Response::new(StreamBody::new(futures_util::stream::iter(frames)));
    answer.headers_mut().insert("x-heard", HeaderValue::from_str(&heard).expect("text"));
    answer.headers_mut().insert("x-pod", HeaderValue::from_str(&name).expect("text"));
    Ok(answer)
}

/// Responds to requests on a connection until it ends, or until one upgrades to another protocol: then every byte is echoed.
fn answer(mut stream: impl Read + Write, name: &str, heard: &Heard) -> Option<()> {
    loop {
        let head = head(&mut stream)?;
        let lower = head.to_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |text| text.trim().parse().unwrap_or(0));
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        heard.lock().push(lower.clone());
        if lower.contains("upgrade: websocket") {
            let yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(yes.as_bytes()).ok()?;
            let mut piece = [0; 1024];
            loop {
                let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
                stream.write_all(&piece[..count]).ok()?;
                stream.flush().ok()?;
            }
        }
        write!(stream, "HTTP/1.1 200 OK\r\nX-Pod: {name}\r\nContent-Length: {}\r\n\r\n{head}", head.len()).ok()?;
        stream.flush().ok()?;
        if lower.contains("\r\nconnection: close\r\n") {
            return Some(());
        }
    }
}

fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn config(folder: &Path, name: &str) -> rustls::ServerConfig {
    let chain = CertificateDer::pem_file_iter(folder.join(format!("{name}.crt"))).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let chain = chain.collect::<Result<_, _>>().expect("PEM");
    builder.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("a certificate and its key")
}

/// The next head on a plain connection.
pub(super) fn next_head(stream: &mut TcpStream) -> String {
    head(stream).expect("a head").to_lowercase()
}
