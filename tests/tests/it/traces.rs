//! Spans as a collector receives them: OTLP over HTTP, of requests and reconciles.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use testbed::session::text;
use testbed::wire::Wire;
use testbed::{Home, Server, server_command};

/// A collector at loopback. Its threads end with the process.
struct Collector {
    address: SocketAddr,
    exports: mpsc::Receiver<(String, ExportTraceServiceRequest)>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, exports) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || receive(stream, &sender));
            }
        });
        Self { address, exports }
    }
}

/// Reads one export of a connection: the first line of the request, and its body.
fn receive(stream: TcpStream, sender: &mpsc::Sender<(String, ExportTraceServiceRequest)>) {
    let mut stream = BufReader::new(stream);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    stream.read_line(&mut first).expect("a request");
    while stream.read_line(&mut line).expect("a header") > 2 {
        if let Some(("content-length", value)) = line.to_ascii_lowercase().trim_end().split_once(": ") {
            length = value.parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    let export = ExportTraceServiceRequest::decode(&*body).expect("an export");
    sender.send((first, export)).expect("a test that waits");
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a client that waits");
}

fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|found| found.value.clone());
    match value {
        Some(AnyValue { value: Some(Value::StringValue(text)), .. }) => text,
        Some(AnyValue { value: Some(Value::IntValue(number)), .. }) => number.to_string(),
        other => panic!("{key}: {other:?} in {attributes:?}"),
    }
}

#[test]
fn b14_spans_of_requests_and_reconciles_reach_a_collector_with_their_audit_id() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let mut server = Server::start_with(Home::temporary(), &["--otlp-endpoint", &endpoint]);
    let path = "/api/v1/namespaces/default/services";
    let reply = Wire::admin(&server).ask("GET", path, &[("audit-id", "trace-1")], b"");
    assert_eq!((reply.code, reply.header("audit-id")), (200, Some("trace-1")));
    // What the reconcile writes, which may be after the server is ready.
    let session = server.session();
    let mut published = session.watch("/api/v1/namespaces/default/configmaps", "");
    let _ = published.until(|_, object| text(object, "/metadata/name") == "kube-root-ca.crt");
    assert!(server.terminate().success());

    let exports: Vec<_> = collector.exports.try_iter().collect();
    assert!(!exports.is_empty());
    let mut spans: Vec<Span> = Vec::new();
    for (first, export) in exports {
        assert_eq!(first.trim_end(), "POST /v1/traces HTTP/1.1");
        for group in export.resource_spans {
            let resource = group.resource.expect("a resource");
            assert_eq!(attribute(&resource.attributes, "service.name"), "waypost-server");
            spans.extend(group.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let of_request = |span: &&Span| span.name == "request" && attribute(&span.attributes, "audit_id") == "trace-1";
    let request = spans.iter().find(of_request).expect("the span of the request");
    assert_eq!(attribute(&request.attributes, "method"), "GET");
    assert_eq!(attribute(&request.attributes, "path"), path);
    assert_eq!(attribute(&request.attributes, "code"), "200");
    assert!(request.end_time_unix_nano > request.start_time_unix_nano);
    let reconciled = |controller: &str, key: &str| {
        spans.iter().any(|span| {
            span.name == "reconcile"
                && attribute(&span.attributes, "controller") == controller
                && attribute(&span.attributes, "key") == key
        })
    };
    assert!(reconciled("root-ca-certificate-publisher", "default"), "{spans:#?}");
}

#[test]
fn b14_an_absent_collector_is_logged_once_and_fails_no_request_and_no_exit() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("an address");
    let mut server = Server::start_with(Home::temporary(), &["--otlp-endpoint", &format!("http://{closed}")]);
    assert_eq!(Wire::admin(&server).ask("GET", "/api/v1/services", &[], b"").code, 200);
    assert!(server.terminate().success());
    let log = server.whole_log();
    assert_eq!(log.matches("failed to export spans").count(), 1, "{log}");
}

#[test]
fn b14_an_endpoint_that_is_no_url_is_named() {
    let home = Home::temporary();
    let refused = Server::start_refused(server_command(home.path(), &["--otlp-endpoint", "collector"])).failure();
    assert!(refused.contains("OTLP endpoint collector"), "{refused}");
}
