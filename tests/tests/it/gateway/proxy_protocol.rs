//! The PROXY protocol: a pod that gets bytes receives the client's address in one line before them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testbed::net::{Family, Pod, eventually};

use super::stage::{ARN, Stage, TARGET, vip};

/// The response of the pod, whatever it received.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
/// The address of another client, which a client tries to spoof.
const FORGED: &str = "PROXY TCP4 198.51.100.9 203.0.113.1 1 80\r\n";

/// What was received on a connection: the first line, and what followed until an empty line.
type Told = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Has a pod serve a port, and record what it receives.
fn serve(pod: &Pod) -> Told {
    let told = Told::default();
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, TARGET)).expect("the port is free"));
    let all = Arc::clone(&told);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                let line = until(&mut stream, b"\r\n")?;
                let rest = until(&mut stream, b"\r\n\r\n")?;
                all.lock().push((String::from_utf8_lossy(&line).into_owned(), rest));
                stream.write_all(ANSWER.as_bytes()).ok()?;
                stream.shutdown(Shutdown::Both).ok()
            });
        }
    });
    told
}

/// Reads up to these bytes, and them.
fn until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(end) {
        stream.read_exact(&mut byte).ok()?;
        all.push(byte[0]);
    }
    Some(all)
}

/// Sends bytes to the load balancer, and returns the source port, and the response.
fn say(stage: &Stage, family: Family, bytes: &[u8]) -> Option<(u16, String)> {
    let at = SocketAddr::new(vip(family), 80);
    let mut stream = stage.outside.in_namespace(|| TcpStream::connect(at)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    stream.write_all(bytes).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some((stream.local_addr().ok()?.port(), answer)).filter(|(_, answer)| !answer.is_empty())
}

/// Checks the line: the client's address, its port if that can be known, and the port of the Service.
#[track_caller]
fn check(stage: &Stage, family: Family, line: &str, from: Option<u16>, number: u16) {
    let words: Vec<&str> = line.trim_end_matches("\r\n").split(' ').collect();
    let kind = if family == Family::V4 { "TCP4" } else { "TCP6" };
    assert_eq!(words.len(), 6, "{line:?}");
    assert_eq!(words[..3], ["PROXY", kind, &stage.client(family).to_string()], "{line:?}");
    assert!(words[3].parse::<std::net::IpAddr>().is_ok_and(|to| to.is_ipv4() == (family == Family::V4)), "{line:?}");
    if let Some(from) = from.filter(|_| stage.served.mode().keeps_source) {
        assert_eq!(words[4], from.to_string(), "{line:?}");
    }
    assert_eq!(words[5], number.to_string(), "{line:?}");
}

#[test]
fn pods_are_told_by_one_line_who_the_client_is_and_then_get_the_bytes() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let told = serve(&pod);
    stage.publish(&[("proxy-protocol", "*")], &[&pod]);
    let forged = format!("{FORGED}\r\n").into_bytes();
    let odd = [b"\0\x01\xff anything ", &forged[..]].concat();
    for family in Family::BOTH {
        for bytes in [&odd[..], &forged] {
            let mut said = None;
            eventually("the load balancer answers", || {
                said = say(&stage, family, bytes);
                said.is_some()
            });
            let (from, answer) = said.expect("an answer");
            assert_eq!(answer, ANSWER);
            let (line, rest) = told.lock().pop().expect("the pod was told something");
            check(&stage, family, &line, Some(from), 80);
            assert_eq!(rest, bytes, "the bytes are as they were, a line of the client's own among them");
        }
    }
}

#[test]
fn the_line_is_plain_before_what_tls_held_and_http_has_its_headers_instead() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let told = serve(&pod);
    stage.secret("web-tls", "web", &serde_json::json!({"waypost.dev/certificate-arn": ARN}));
    let annotations = [("ssl-cert", ARN), ("ssl-ports", "443"), ("proxy-protocol", "*")];
    stage.publish(&[&annotations[..], &[("backend-protocol", "tcp")]].concat(), &[&pod]);
    let page = stage.page(Family::V4, &["https://web.example/secret"]);
    assert!(page.ends_with("ok"), "{page}");
    let (line, rest) = told.lock().pop().expect("the pod was told something");
    check(&stage, Family::V4, &line, None, 443);
    assert!(rest.starts_with(b"GET /secret HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&rest));
    // Where HTTP is terminated, each request names the client, and nothing comes before the first.
    stage.publish(&[&annotations[..], &[("backend-protocol", "http")]].concat(), &[&pod]);
    eventually("requests are understood", || {
        let _ = stage.page(Family::V4, &["https://web.example/open"]);
        let (line, rest) = told.lock().pop().expect("the pod was told something");
        line.starts_with("GET /open ") && String::from_utf8_lossy(&rest).to_lowercase().contains("x-forwarded-for: ")
    });
}

#[test]
fn a_value_other_than_a_star_is_an_event_and_has_no_effect() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let told = serve(&pod);
    stage.publish(&[("proxy-protocol", "http")], &[&pod]);
    eventually("it is said", || {
        stage.events("AnnotationIgnored").iter().any(|message| message.contains("only `*` has an effect"))
    });
    let page = stage.page(Family::V4, &["http://web.example/"]);
    assert!(page.ends_with("ok"), "{page}");
    assert!(told.lock().iter().all(|(line, _)| line.starts_with("GET / ")), "{:?}", told.lock());
}
