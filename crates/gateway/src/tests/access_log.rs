//! Lines of the access log for Services that are configured by annotations.

use serde_json::json;

use super::pods::{Behaviour, Pod};
use super::*;
use crate::access_log::AccessLogFormat;
use crate::access_log::tests::Lines;

fn logged(mode: Mode, pod: SocketAddr, format: AccessLogFormat) -> (TestPort, Lines) {
    let (log, lines) = Lines::log(format);
    let configure = |port: &mut PortConfig| port.access_log = Some(log);
    (TestPort::configured(port(mode), &[pod], Limits::default(), configure), lines)
}

#[test]
fn requests_to_a_service_are_logged_in_the_common_log_format() {
    let pod = Pod::new(Behaviour::Good);
    let (port_under_test, lines) = logged(Mode::Http, pod.address, AccessLogFormat::Common);
    let request =
        "GET /x?y HTTP/1.1\r\nHost: a\r\nUser-Agent: \"x\\\u{e9}\r\nReferer: http://b/\r\nConnection: close\r\n\r\n";
    let answer = port_under_test.send_raw(request);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let line = lines.wait(1).remove(0);
    let (start, rest) = line.split_once(" [").expect("a time");
    let (time, rest) = rest.split_once("] ").expect("a time");
    assert_eq!((start, time.len()), ("127.0.0.1 - -", "02/Jan/2026:03:04:05 +0000".len()), "{line}");
    let expected = format!(r#""GET /x?y HTTP/1.1" 200 {} "http://b/" "\x22x\x5C\xC3\xA9""#, body.len());
    assert_eq!(rest, expected);
}

#[test]
fn connections_to_a_service_are_logged() {
    let pod = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = pod.local_addr().expect("an address");
    let (port_under_test, lines) = logged(Mode::Tcp, address, AccessLogFormat::Json);
    let mut client = port_under_test.connect();
    client.write_all(b"hello").expect("sent");
    let (mut stream, _) = pod.accept().expect("a connection");
    stream.read_exact(&mut [0; 5]).expect("received");
    stream.write_all(b"hi").expect("sent");
    drop(stream);
    assert_eq!(rest_of(client), "hi");
    let line = lines.next_json();
    let shown = ["protocol", "status", "requestBytes", "responseBytes", "service", "endpoint", "gateway", "port"];
    let expected = json!(["TCP", 200, 5, 2, "shop/web", address.to_string(), null, 80]);
    assert_eq!(json!(shown.map(|field| &line[field])), expected, "{line}");
    port_under_test.set_pods(&[]);
    assert_eq!(rest_of(port_under_test.connect()), "");
    let line = lines.next_json();
    assert_eq!((&line["status"], &line["reason"]), (&json!(502), &json!("no-endpoints")), "{line}");
}
