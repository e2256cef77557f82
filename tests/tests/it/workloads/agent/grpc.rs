//! A minimal server of gRPC's health service: it reports whether one service is healthy, and fails requests for others.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testbed::net::Node;
use tokio::runtime::Runtime;

/// The path of health checks.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// A server. Dropping it ends it.
pub(super) struct Health {
    _runtime: Runtime,
    well: Arc<AtomicBool>,
}

impl Health {
    /// Serves at a port of a machine, and knows a service of this name.
    pub(super) fn serve(node: &Node, port: u16, service: &'static str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = node.in_namespace(|| std::net::TcpListener::bind(("0.0.0.0", port)).expect("a port"));
        listener.set_nonblocking(true).expect("a listener");
        let well = Arc::new(AtomicBool::new(true));
        let answer = well.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| check(request, service, answer.clone())),
                );
                tokio::spawn(serving);
            }
        });
        Self { _runtime: runtime, well }
    }

    pub(super) fn set_well(&self, well: bool) {
        self.well.store(well, Ordering::Relaxed);
    }
}

type Answer = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

async fn check(request: Request<Incoming>, service: &str, well: Arc<AtomicBool>) -> Result<Answer, Infallible> {
    let right = request.uri().path() == CHECK && request.headers()["content-type"] == "application/grpc";
    let asked = request.into_body().collect().await.expect("a question").to_bytes();
    // A message: not compressed, its length, field 1 as text.
    let length = u8::try_from(service.len()).expect("a short name");
    let wanted = [&[0, 0, 0, 0, length + 2, 0x0a, length], service.as_bytes()].concat();
    let (code, message) = match right && asked == wanted {
        true => ("0", vec![0, 0, 0, 0, 2, 0x08, if well.load(Ordering::Relaxed) { 1 } else { 2 }]),
        // NOT_FOUND
        false => ("5", Vec::new()),
    };
    let trailers = async move {
        let mut map = HeaderMap::new();
        map.insert("grpc-status", code.parse().expect("a number"));
        Some(Ok(map))
    };
    let body = Full::new(Bytes::from(message)).with_trailers(trailers).boxed();
    Ok(Response::builder().header("content-type", "application/grpc").body(body).expect("an answer"))
}
