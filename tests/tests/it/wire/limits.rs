//! Limits and shutdown: concurrency, sizes, slow clients, and what happens to requests in flight at shutdown.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use testbed::session::{SERVICES, TIMEOUT, text};
use testbed::wire::{Wire, request};
use testbed::{Home, Server};

const JSON: (&str, &str) = ("Content-Type", "application/json");
/// The largest body that Kubernetes reads.
const LARGEST: usize = 3 * 1024 * 1024;

/// A request that is on its way: the server has its headers and half of its body.
struct Half {
    wire: Wire,
    rest: Vec<u8>,
}

impl Half {
    /// Sends half of the request that creates a Service, and waits until the server requests the other half.
    fn of_a_service(server: &Server, name: &str) -> Self {
        let body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}).to_string();
        // With this header a server sends `100 Continue` when it begins to read: the request is in progress from there on.
        let mut bytes = request("POST", SERVICES, &[JSON, ("Expect", "100-continue")], body.as_bytes());
        let rest = bytes.split_off(bytes.len() - body.len() / 2);
        let mut wire = Wire::admin(server);
        wire.send(&bytes).expect("sent");
        assert_eq!(wire.head().expect("a first word").code, 100);
        Self { wire, rest }
    }

    /// Sends the rest and reads the code of the answer.
    fn finish(&mut self) -> u16 {
        self.wire.send(&self.rest).expect("sent");
        let head = self.wire.head().expect("an answer");
        self.wire.body(&head).expect("all of it");
        head.code
    }
}

/// Waits until a request is being answered.
fn until_in_flight(server: &Server) {
    let mut wire = Wire::admin(server);
    let begun = Instant::now();
    while !wire
        .ask("GET", "/metrics", &[], b"")
        .text()
        .lines()
        .any(|line| line == "apiserver_current_inflight_requests 1")
    {
        assert!(begun.elapsed() < TIMEOUT, "the request is not being answered");
    }
}

/// The credential of a node; its requests are limited, those of the administrator are not.
const NODE: (&str, &str) = ("Authorization", "Bearer n1");

/// A server that answers one request at a time of each kind of user, and lets others wait for a second.
fn narrow_server() -> (Server, TempDir) {
    let folder = testbed::folder();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "n1,system:node:n1,,system:nodes\n").expect("a file of tokens");
    let tokens = tokens.to_str().expect("a path");
    let home = Home::Own(testbed::folder());
    let arguments = ["--max-requests-inflight", "1", "--request-timeout", "4", "--token-auth-file", tokens];
    (Server::start_with(home, &arguments), folder)
}

#[test]
fn s01_more_requests_than_allowed_are_told_to_come_back() {
    let (server, _folder) = narrow_server();
    // A list of a revision that is still to come waits for it, for three seconds.
    let mut waiting = Wire::anonymous(&server);
    let list = format!("{SERVICES}?resourceVersion=1000000&resourceVersionMatch=NotOlderThan");
    waiting.send(&request("GET", &list, &[NODE], b"")).expect("sent");
    until_in_flight(&server);

    let mut wire = Wire::anonymous(&server);
    let refused = wire.ask("GET", SERVICES, &[NODE], b"");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let answer = refused.answer();
    assert_eq!((text(&answer.body, "/reason"), answer.code), ("TooManyRequests", 429), "{}", answer.body);
    assert_eq!(text(&answer.body, "/message"), "Too many requests, please try again later.");
    // Administrators must still have access.
    for path in ["/readyz", "/livez", "/version", "/metrics", SERVICES] {
        assert_eq!(Wire::admin(&server).ask("GET", path, &[], b"").code, 200, "{path}");
    }
    let head = waiting.head().expect("an answer");
    waiting.body(&head).expect("all of it");
    assert_eq!(head.code, 504, "the one that was first is answered");
    assert_eq!(wire.ask("GET", SERVICES, &[NODE], b"").code, 200, "and there is room again");
}

#[test]
fn s01_watches_do_not_use_up_the_requests_that_are_allowed() {
    let (server, _folder) = narrow_server();
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let mut watcher = Wire::anonymous(&server);
        watcher.send(&request("GET", &format!("{SERVICES}?watch=true"), &[NODE], b"")).expect("sent");
        assert_eq!(watcher.head().expect("a watch").code, 200);
        watchers.push(watcher);
    }
    assert_eq!(Wire::anonymous(&server).ask("GET", SERVICES, &[NODE], b"").code, 200);
}

#[test]
fn s01_a_server_that_is_asked_to_end_answers_what_it_has_begun() {
    let mut server = Server::start();
    let mut half = Half::of_a_service(&server, "late");
    let mut watcher = Wire::admin(&server);
    watcher.send(&request("GET", &format!("{SERVICES}?watch=true"), &[], b"")).expect("sent");
    watcher.head().expect("a watch");
    watcher.chunk().expect("the Services that are there").expect("an event");
    let mut idle = Wire::admin(&server);
    let mut silent = TcpStream::connect(&server.address).expect("a connection");
    silent.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    // Connections are accepted in order: when this one is answered, the silent one has been accepted.
    assert_eq!(Wire::admin(&server).ask("GET", "/readyz", &[], b"").code, 200);
    assert_eq!(idle.ask("GET", "/readyz", &[], b"").code, 200);

    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("its process");
    kill_process(pid, Signal::TERM).expect("signalled");
    assert_eq!(watcher.chunk().expect("a clean end"), None, "the watch ends as watches end");
    assert!(idle.closed());
    assert_eq!(silent.read(&mut [0]).expect("an end"), 0, "nor is there anything to wait for here");
    // It is shutting down: no new connections are accepted.
    let refused = TcpStream::connect(&server.address).expect_err("no new connections");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(half.finish(), 201, "what was begun is answered");

    let status = server.terminate();
    assert_eq!(status.code(), Some(0));
    let log = server.whole_log();
    assert!(!log.contains("drain timeout exceeded"), "{log}");
    let again = Server::start_with(Home::Kept(server.home().to_owned()), &[]);
    assert_eq!(Wire::admin(&again).ask("GET", &format!("{SERVICES}/late"), &[], b"").code, 200, "and was kept");
}

#[test]
fn s01_a_body_over_three_mebibytes_is_refused() {
    let server = Server::start();
    let too_large = "Request entity too large: limit is 3145728";
    let mut body = br#"{"metadata":{"name":"large"},"spec":{"ports":[{"port":80}]}}"#.to_vec();
    body.resize(LARGEST, b' ');
    assert_eq!(Wire::admin(&server).ask("POST", &format!("{SERVICES}?dryRun=All"), &[JSON], &body).code, 201);
    body.push(b' ');
    let patch = ("Content-Type", "application/merge-patch+json");
    let one = format!("{SERVICES}/kubernetes");
    for (method, path, kind) in
        [("POST", SERVICES, JSON), ("PUT", &one, JSON), ("PATCH", &one, patch), ("DELETE", &one, JSON)]
    {
        let reply = Wire::admin(&server).ask(method, path, &[kind], &body);
        assert_eq!(reply.refused(413), too_large, "{method}");
    }
    // Without a length the server finds out while it reads.
    let mut wire = Wire::admin(&server);
    let mut bytes = request("POST", SERVICES, &[JSON, ("Transfer-Encoding", "chunked")], b"");
    bytes.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(&body);
    wire.send(&bytes).expect("sent");
    let mut reply = wire.head().expect("an answer");
    reply.body = wire.body(&reply).expect("a body");
    assert_eq!(reply.refused(413), too_large);
    assert_eq!(Wire::admin(&server).ask("GET", &one, &[], b"").code, 200, "and nothing was deleted");
}

#[test]
fn s01_clients_that_stop_in_the_middle_keep_nobody_out() {
    let server = Server::start();
    let mut stuck = Vec::new();
    for number in 0..100 {
        let mut wire = Wire::admin(&server);
        let begun: &[u8] = match number % 3 {
            0 => b"GET /api/v1/services HTTP/1.1\r\nHost: local",
            1 => {
                b"POST /api/v1/namespaces/default/services HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            }
            _ => b"",
        };
        wire.send(begun).expect("sent");
        stuck.push(wire);
        stuck.last_mut().expect("one").send(b"").expect("still open");
    }
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&server.address).expect("a connection")).collect();
    for number in 0..10 {
        let body = json!({"metadata": {"name": format!("s{number}")}, "spec": {"ports": [{"port": 80}]}}).to_string();
        assert_eq!(Wire::admin(&server).ask("POST", SERVICES, &[JSON], body.as_bytes()).code, 201);
    }
    assert_eq!((stuck.len(), silent.len()), (100, 100), "all this time they were there");
}

#[test]
fn s01_a_watcher_that_does_not_read_holds_nobody_up() {
    let server = Server::start();
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut lazy = Wire::admin(&server);
    lazy.send(&request("GET", &format!("{maps}?watch=true"), &[], b"")).expect("sent");
    assert_eq!(lazy.head().expect("a watch").code, 200);
    let mut wire = Wire::admin(&server);
    let put = |wire: &mut Wire, number: usize| {
        let body = json!({"metadata": {"name": "big"}, "data": {"n": number.to_string(), "text": "x".repeat(400_000)}});
        wire.ask("PUT", &format!("{maps}/big"), &[JSON], body.to_string().as_bytes()).code
    };
    let body = json!({"metadata": {"name": "big"}}).to_string();
    assert_eq!(wire.ask("POST", maps, &[JSON], body.as_bytes()).code, 201);
    // Far more than the buffers between the two hold.
    for number in 0..50 {
        assert_eq!(put(&mut wire, number), 200);
    }
    // It reads on, and sees every change in order.
    let mut read = Vec::new();
    let begun = Instant::now();
    while !read.windows(8).any(|bytes| bytes == b"\"n\":\"49\"") {
        assert!(begun.elapsed() < TIMEOUT, "the last change does not come");
        read = read.split_off(read.len().saturating_sub(8));
        read.extend(lazy.chunk().expect("an event").expect("no end"));
    }
}
