//! Services at layer 7: from objects to responses, by the namespace of the client.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use api::gateway_api::watched;
use api::kinds;
use bytes::Bytes;
use client::memory::Memory;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use plan::{Protocol, Redirect, RedirectedFrontends};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::cluster::{Watching, service};
use super::*;
use crate::tests::{eventually, next_answer};

/// Pods by their namespaces.
const PODS: [(&str, &str); 2] = [("shop", "127.0.0.2"), ("other", "127.0.0.3")];

/// A cluster with Pods of this node, and the Services `one` and `two` with an endpoint each.
fn cluster() -> Arc<Memory> {
    let memory = Arc::new(Memory::default());
    for (namespace, ip) in PODS {
        memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": namespace}}));
        memory.put(
            &kinds::pod::KIND,
            json!({
                "metadata": {"namespace": namespace, "name": "client", "uid": ip, "labels": {"app": "cart"}},
                "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIPs": [{"ip": ip}]},
            }),
        );
    }
    for name in ["one", "two"] {
        service(&memory, name, named(name));
    }
    memory
}

/// The Service `web` with the port 8080 and these endpoints.
fn web(memory: &Memory, annotations: &Value, app_protocol: &str, pods: &[SocketAddr]) {
    memory.put(
        &kinds::service::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "web", "annotations": annotations},
            "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
                     "ports": [{"name": "http", "port": 8080, "appProtocol": app_protocol}]},
        }),
    );
    for (index, pod) in pods.iter().enumerate() {
        memory.put(
            &kinds::endpointslice::KIND,
            json!({
                "metadata": {"namespace": "shop", "name": format!("web-{index}"),
                             "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4", "ports": [{"name": "http", "port": pod.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}],
            }),
        );
    }
}

/// A route of a namespace with `web` as its parent.
fn route(memory: &Memory, namespace: &str, rules: &Value) {
    memory.put(
        &watched::HTTP_ROUTE,
        json!({
            "metadata": {"namespace": namespace, "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
            "spec": {"parentRefs": [{"group": "", "kind": "Service", "namespace": "shop", "name": "web"}], "rules": rules},
        }),
    );
}

fn to(backend: &str) -> Value {
    json!([{"backendRefs": [{"namespace": "shop", "name": backend, "port": 80}]}])
}

/// The address to which the cluster IP of `web` is redirected.
fn listener_of(watching: &Watching) -> SocketAddr {
    let redirect = watching.redirect(|_| true);
    let expected = Redirect {
        service: "shop/web".into(),
        port: "http".into(),
        protocol: Protocol::Tcp,
        frontends: RedirectedFrontends::ClusterIp,
        listener: redirect.listener,
        direct: None,
        backends: [].into(),
    };
    assert_eq!(redirect, expected);
    redirect.listener
}

/// A connection from an address.
fn connect(watching: &Watching, from: &str, listener: SocketAddr) -> TcpStream {
    let stream = watching.runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("an address of loopback");
        socket.connect(listener).await.expect("a connection")
    });
    let stream = stream.into_std().expect("a stream");
    stream.set_nonblocking(false).expect("a mode");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

fn get(stream: &mut TcpStream, path: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: web.shop\r\n\r\n").expect("sent");
    next_answer(stream)
}

/// The body of a response to a client with this address, on a connection of its own.
fn answer(watching: &Watching, from: &str, listener: SocketAddr) -> String {
    get(&mut connect(watching, from, listener), "/").1
}

#[test]
fn s54_routes_hold_for_clients_by_their_namespace() {
    let memory = cluster();
    web(&memory, &json!({}), "http", &[named("own")]);
    route(&memory, "shop", &to("one"));
    route(&memory, "other", &to("two"));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let listener = listener_of(&watching);
    let seen = |from: &str| answer(&watching, from, listener).split(' ').next().unwrap_or_default().to_owned();
    for (from, expected) in [("127.0.0.1", "one"), (PODS[0].1, "one"), (PODS[1].1, "two")] {
        assert_eq!(seen(from), expected, "{from}");
    }
    let mut kept = connect(&watching, PODS[1].1, listener);
    assert!(get(&mut kept, "/").1.starts_with("two"));
    memory.delete(&watched::HTTP_ROUTE, "other", "web");
    eventually("producer routes hold again, also on connections that exist", || {
        get(&mut kept, "/").1.starts_with("one")
    });
    route(&memory, "other", &to("two"));
    memory.delete(&watched::HTTP_ROUTE, "shop", "web");
    eventually("others get the Service itself", || seen("127.0.0.1") == "own");
    assert_eq!(seen(PODS[0].1), "own");
    eventually("consumers get their routes", || seen(PODS[1].1) == "two");
}

#[test]
fn s54_without_a_match_there_is_no_backend_and_redirects_name_the_port_of_the_service() {
    let memory = cluster();
    web(&memory, &json!({}), "", &[named("own")]);
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"hostname": "new.shop"}});
    route(
        &memory,
        "shop",
        &json!([{"matches": [{"path": {"type": "PathPrefix", "value": "/old"}}], "filters": [redirect]}]),
    );
    let watching = Watching::start(memory, |_| {});
    let listener = listener_of(&watching);
    let mut stream = connect(&watching, PODS[0].1, listener);
    let (head, _) = get(&mut stream, "/old/x");
    assert!(head.starts_with("http/1.1 302") && head.contains("location: http://new.shop:8080/old/x\r\n"), "{head}");
    assert!(get(&mut stream, "/new").0.starts_with("http/1.1 404"));
    let status = watching.runtime.block_on(async {
        let answer = grpc(&mut http2(listener).await).await;
        (answer.0, answer.1.get("grpc-status").cloned())
    });
    assert_eq!(status, (200, Some(HeaderValue::from_static("12"))));
}

/// A client of HTTP/2 with one connection.
async fn http2(listener: SocketAddr) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(listener).await.expect("a connection");
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// Makes a call; its status and headers.
async fn grpc(client: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>) -> (u16, ::http::HeaderMap) {
    let request = ::http::Request::post("http://web.shop/echo.Echo/Say").header("content-type", "application/grpc");
    let request = request.body(Full::new(Bytes::new())).expect("a request");
    let (parts, body) = client.send_request(request).await.expect("an answer").into_parts();
    body.collect().await.expect("a body");
    (parts.status.as_u16(), parts.headers)
}

/// Counts of calls by endpoint.
type Calls = Arc<Mutex<BTreeMap<usize, usize>>>;

/// An endpoint that speaks HTTP/2 and counts calls under this number.
async fn counting(number: usize, calls: &Calls) -> SocketAddr {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, calls) = (server.local_addr().expect("an address"), Arc::clone(calls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = server.accept().await {
            let calls = Arc::clone(&calls);
            let service = hyper::service::service_fn(move |_: ::http::Request<hyper::body::Incoming>| {
                *calls.lock().entry(number).or_default() += 1;
                let answer = ::http::Response::builder().header("grpc-status", "0");
                let answer = answer.header("content-type", "application/grpc").body(Full::new(Bytes::new()));
                async move { answer }
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

#[test]
fn s54_calls_of_one_grpc_connection_are_spread_evenly_over_ten_endpoints() {
    let (memory, calls) = (cluster(), Calls::default());
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let pods = watching.runtime.block_on(async {
        let mut pods = Vec::new();
        for number in 0..10 {
            pods.push(counting(number, &calls).await);
        }
        pods
    });
    web(&memory, &json!({"waypost.dev/layer-7": "true"}), "grpc", &pods);
    let listener = listener_of(&watching);
    watching.runtime.block_on(async {
        let mut client = http2(listener).await;
        for _ in 0..200 {
            let (status, headers) = grpc(&mut client).await;
            assert_eq!((status, headers.get("grpc-status")), (200, Some(&HeaderValue::from_static("0"))));
        }
    });
    let calls = calls.lock();
    assert_eq!(calls.len(), 10, "{calls:?}");
    assert!(calls.values().all(|count| (19..=21).contains(count)), "20 each, within 5 %: {calls:?}");
}

#[test]
fn s54_a_port_is_served_at_layer_4_again_when_its_last_route_goes() {
    let memory = cluster();
    web(&memory, &json!({}), "http", &[named("own")]);
    route(&memory, "shop", &to("one"));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let listener = listener_of(&watching);
    let mut kept = connect(&watching, PODS[0].1, listener);
    assert!(get(&mut kept, "/").1.starts_with("one"));
    memory.delete(&watched::HTTP_ROUTE, "shop", "web");
    let mut redirects = watching.gateway.redirects();
    watching.runtime.block_on(async { redirects.wait_for(|all| all.is_empty()).await.map(drop) }).expect("no redirect");
    // What the kernel still sends here, and what is here, gets the Service itself.
    assert!(get(&mut kept, "/").1.starts_with("own"));
    assert!(answer(&watching, PODS[0].1, listener).starts_with("own"));
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).expect("it is closed");
    assert!(rest.is_empty());
}

#[test]
fn s54_redirects_are_withdrawn_before_listeners_close() {
    let memory = cluster();
    web(&memory, &json!({}), "http", &[named("own")]);
    route(&memory, "shop", &to("one"));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let listener = listener_of(&watching);
    watching.gateway.withdraw();
    assert!(watching.gateway.redirects().borrow().is_empty());
    route(&memory, "shop", &to("two"));
    eventually("requests are served until the proxy has followed", || {
        answer(&watching, PODS[0].1, listener).starts_with("two")
    });
    assert!(watching.gateway.redirects().borrow().is_empty(), "for good");
    let Watching { gateway, runtime } = watching;
    runtime.block_on(gateway.stop());
    eventually("the listener closes", || TcpStream::connect(listener).is_err());
}

#[test]
fn s54_requests_are_counted_by_service_backend_and_source() {
    let memory = cluster();
    web(&memory, &json!({}), "http", &[named("own")]);
    route(&memory, "shop", &to("one"));
    let watching = Watching::start(memory, |_| {});
    let listener = listener_of(&watching);
    for from in ["127.0.0.1", PODS[1].1, PODS[1].1] {
        assert!(answer(&watching, from, listener).starts_with("one"));
    }
    let (mut registry, mut shown) = (Registry::default(), String::new());
    registry.register_collector(Box::new(watching.gateway.metrics()));
    text::encode(&mut shown, &registry).expect("a text");
    for (source, count) in [("node", 1), ("other/cart", 2)] {
        let line = format!(
            "waypost_gateway_service_requests_total{{service=\"shop/web\",code=\"2xx\",method=\"GET\",\
             backend=\"shop/one\",source=\"{source}\"}} {count}"
        );
        assert!(shown.lines().any(|one| one == line), "{line} is no line of\n{shown}");
    }
}

#[test]
fn s54_endpoints_of_other_nodes_are_not_used_where_the_traffic_policy_is_local() {
    let memory = cluster();
    web(&memory, &json!({}), "http", &[named("own")]);
    route(&memory, "shop", &to("one"));
    memory.put(
        &kinds::service::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": "one"},
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Local",
                     "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
    );
    let endpoint = |node: &str, pod: SocketAddr| {
        json!({
            "metadata": {"namespace": "shop", "name": format!("one-{node}"), "labels": {"kubernetes.io/service-name": "one"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": pod.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [pod.ip().to_string()], "nodeName": node, "conditions": {"ready": true}}],
        })
    };
    memory.delete(&kinds::endpointslice::KIND, "shop", "one");
    memory.put(&kinds::endpointslice::KIND, endpoint("n2", named("there")));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let listener = listener_of(&watching);
    let mut stream = connect(&watching, PODS[0].1, listener);
    let (head, body) = get(&mut stream, "/");
    assert!(head.starts_with("http/1.1 503") && body.contains("traffic policy is Local; 1 elsewhere"), "{head}{body}");
    memory.put(&kinds::endpointslice::KIND, endpoint("n1", named("here")));
    eventually("the endpoint of this node is used", || get(&mut stream, "/").1.starts_with("here"));
    for _ in 0..10 {
        assert!(get(&mut stream, "/").1.starts_with("here"));
    }
}

#[test]
fn s54_cluster_ips_are_no_endpoints() {
    let memory = cluster();
    web(&memory, &json!({"waypost.dev/layer-7": "true"}), "http", &[]);
    memory.put(
        &kinds::endpointslice::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": "loop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.96.0.9"], "conditions": {"ready": true}}],
        }),
    );
    let watching = Watching::start(memory, |_| {});
    let listener = listener_of(&watching);
    let (head, body) = get(&mut connect(&watching, PODS[0].1, listener), "/");
    assert!(head.starts_with("http/1.1 503") && body.contains("has no ready pod"), "{head}{body}");
}
