//! Bad input: every request below gets a clear refusal, costs little, and leaves a server that answers.

use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use testbed::Server;
use testbed::session::SERVICES;
use testbed::wire::{Wire, request};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// How deep hostile documents are nested.
const DEPTH: usize = 100_000;
/// How much memory all of this may cost a server, in KiB.
const GROWTH: u64 = 100 * 1024;

/// A server that receives invalid requests, and at the end must be unchanged.
struct Victim {
    server: Server,
    before: u64,
}

impl Victim {
    fn new() -> Self {
        let server = Server::start();
        assert_eq!(Wire::admin(&server).ask("GET", SERVICES, &[], b"").code, 200);
        let before = resident(server.pid());
        Self { server, before }
    }

    /// A request on its own connection: the code, and the message of the Status or the text.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, media: &str, body: &[u8]) -> (u16, String) {
        let headers = [("Content-Type", media)];
        let headers = if media.is_empty() { &headers[..0] } else { &headers[..] };
        let reply = Wire::admin(&self.server).ask(method, path, headers, body);
        let status = reply.header("content-type") == Some(JSON) && reply.code >= 400 && !reply.body.is_empty();
        (reply.code, if status { reply.refused(reply.code) } else { reply.text() })
    }

    /// The server runs, responds, and has not grown.
    #[track_caller]
    fn is_well(&self) {
        let pid = i32::try_from(self.server.pid()).ok().and_then(Pid::from_raw).expect("a process");
        test_kill_process(pid).expect("it lives");
        let list = Wire::admin(&self.server).ask("GET", SERVICES, &[], b"").success();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "only the Service kubernetes: {list}");
        let after = resident(self.server.pid());
        assert!(after < self.before + GROWTH, "its memory went from {} to {after} KiB", self.before);
    }
}

/// The memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn nested(open: &str, close: &str) -> Vec<u8> {
    let mut out = open.repeat(DEPTH);
    out.push('1');
    out.push_str(&close.repeat(DEPTH));
    out.into_bytes()
}

/// A Service that would be made, were it not for one more field.
fn service_with(field: &str, value: &[u8]) -> Vec<u8> {
    let mut out = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"spec\":{{\"ports\":[{{\"port\":80}}]}},\"{field}\":")
        .into_bytes();
    out.extend_from_slice(value);
    out.push(b'}');
    out
}

#[test]
fn s01_malformed_bodies_are_refused_with_a_status() {
    let victim = Victim::new();
    let unreadable: [(&str, &[u8]); 19] = [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"{\"kind\":\"Service\""),
        (JSON, b"[]"),
        (JSON, b"\"text\""),
        (JSON, b"{} {}"),
        (JSON, b"{\"metadata\":{\"name\":\"\\ud800\\q\"}}"),
        (JSON, b"{\"metadata\":[]}"),
        (JSON, b"{\"spec\":{\"ports\":{\"port\":80}}}"),
        (JSON, b"{\"spec\":{\"ports\":[{\"port\":1e99}]}}"),
        (JSON, &[0; 64]),
        (JSON, &[0xff; 64]),
        (YAML, b"a: [b"),
        (YAML, b"a: b: c"),
        (YAML, b"- just\n- a list\n"),
        (PROTOBUF, b"not protobuf"),
        (PROTOBUF, b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (PROTOBUF, b"k8s\0\x12\xff\xff\xff\xff\x0f"),
        (PROTOBUF, b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Service\x12\x02\x0a\x7f"),
    ];
    for (media, body) in unreadable {
        let (code, message) = victim.ask("POST", SERVICES, media, body);
        assert_eq!(code, 400, "{media} {:?}: {message}", String::from_utf8_lossy(body));
        assert!(!message.is_empty());
    }
    let patches: [(&str, &[u8], u16); 8] = [
        ("application/merge-patch+json", b"{", 400),
        ("application/merge-patch+json", b"[]", 400),
        ("application/json-patch+json", b"{}", 400),
        ("application/json-patch+json", b"[{\"op\":\"frob\",\"path\":\"/a\"}]", 422),
        ("application/json-patch+json", b"[{\"op\":\"remove\",\"path\":\"/none\"}]", 422),
        ("application/strategic-merge-patch+json", b"{\"spec\":{\"ports\":[{\"$patch\":\"frob\"}]}}", 500),
        ("application/apply-patch+yaml", b"a: [b", 400),
        ("application/frob", b"{}", 415),
    ];
    for (media, body, expected) in patches {
        let (code, message) = victim.ask("PATCH", &format!("{SERVICES}/kubernetes?fieldManager=x"), media, body);
        assert_eq!(code, expected, "{media} {:?}: {message}", String::from_utf8_lossy(body));
    }
    victim.is_well();
}

#[test]
fn s01_a_key_that_is_there_twice_is_said_or_refused() {
    let victim = Victim::new();
    let body = br#"{"metadata":{"name":"twice","name":"twice"},"spec":{"ports":[{"port":80}]}}"#;
    let reply =
        Wire::admin(&victim.server).ask("POST", &format!("{SERVICES}?dryRun=All"), &[("Content-Type", JSON)], body);
    assert_eq!((reply.code, reply.header("warning")), (201, Some("299 - \"duplicate field \\\"metadata.name\\\"\"")));
    let strict = format!("{SERVICES}?fieldValidation=Strict");
    let (code, message) = victim.ask("POST", &strict, JSON, body);
    assert!(code == 400 && message.contains("duplicate field \"metadata.name\""), "{code} {message}");
    let yaml = b"metadata:\n  name: twice\n  name: twice\nspec:\n  ports:\n  - port: 80\n";
    let (code, message) = victim.ask("POST", &strict, YAML, yaml);
    assert!(code == 400 && message.contains("\"name\" already set in map"), "{code} {message}");
    victim.is_well();
}

#[test]
fn s01_documents_nested_a_hundred_thousand_levels_are_refused() {
    let victim = Victim::new();
    let (objects, lists) = (nested("{\"a\":", "}"), nested("[", "]"));
    let patch = format!("{SERVICES}/kubernetes?fieldManager=x");
    let labelled = service_with("metadata", &[b"{\"labels\":", &*objects, b"}"].concat());
    let bodies: [(&str, &str, &str, Vec<u8>); 12] = [
        ("POST", SERVICES, JSON, objects.clone()),
        ("POST", SERVICES, JSON, lists.clone()),
        ("POST", SERVICES, JSON, service_with("unknown", &objects)),
        ("POST", SERVICES, JSON, service_with("unknown", &lists)),
        ("POST", SERVICES, JSON, labelled),
        ("POST", SERVICES, YAML, objects.clone()),
        ("POST", SERVICES, YAML, nested("- ", "")),
        ("PATCH", &patch, "application/merge-patch+json", objects.clone()),
        ("PATCH", &patch, "application/strategic-merge-patch+json", objects.clone()),
        ("PATCH", &patch, "application/json-patch+json", lists.clone()),
        ("PATCH", &patch, "application/apply-patch+yaml", objects.clone()),
        ("DELETE", &patch, JSON, objects.clone()),
    ];
    for (method, path, media, body) in bodies {
        let (code, message) = victim.ask(method, path, media, &body);
        let begin = String::from_utf8_lossy(&body[..60]).into_owned();
        assert!(code == 400 && message.len() < 4096, "{method} {media} {begin}: {code} {message}");
    }
    // The same in protobuf: managedFields would be JSON, and a message in a message is as deep as its schema.
    let mut deep = Vec::new();
    for _ in 0..DEPTH / 100 {
        let mut outer = vec![0x0a];
        let mut length = deep.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).expect("seven bits"));
        outer.append(&mut deep);
        deep = outer;
    }
    let (code, message) = victim.ask("POST", SERVICES, PROTOBUF, &[b"k8s\0", &*deep].concat());
    assert!((400..500).contains(&code), "{code} {message}");
    victim.is_well();
}

#[test]
fn s01_small_bodies_that_would_grow_are_stopped() {
    let victim = Victim::new();
    let mut laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        laughs.push_str(&format!("{name}: &{name} [{}]\n", [format!("*{of}").as_str(); 9].join(",")));
    }
    let (code, message) = victim.ask("POST", SERVICES, YAML, laughs.as_bytes());
    assert!(code == 400 && message.contains("excessive aliasing"), "{code} {message}");
    let copies: Vec<_> =
        (0..60).map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/c{n}")})).collect();
    let path = format!("{SERVICES}/kubernetes");
    let (code, message) =
        victim.ask("PATCH", &path, "application/json-patch+json", json!(copies).to_string().as_bytes());
    assert!((400..500).contains(&code), "{code} {message}");
    for selector in ["(".repeat(50_000), "a,".repeat(20_000) + "a", "a in (".to_owned() + &"b,".repeat(20_000) + "b)"] {
        let path = format!("{SERVICES}?labelSelector={}", selector.replace(' ', "%20"));
        let (code, message) = victim.ask("GET", &path, "", b"");
        assert!([200, 400].contains(&code), "{code} {message}");
    }
    victim.is_well();
}

#[test]
fn s01_a_hundred_thousand_headers_are_refused() {
    let victim = Victim::new();
    let many: String = (0..DEPTH).map(|number| format!("h{number}: 1\r\n")).collect();
    let long = format!("h: {}\r\n", "a".repeat(4 << 20));
    let folded = format!("h: a\r\n{}", " b\r\n".repeat(DEPTH));
    for headers in [many, long, folded] {
        let mut wire = Wire::admin(&victim.server);
        // The server may stop reading, and close, before all is sent.
        let _ = wire.send(format!("GET /version HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
        if let Ok(reply) = wire.head() {
            assert!([400, 431].contains(&reply.code), "{}", reply.code);
        }
        assert!(wire.closed());
    }
    victim.is_well();
}

#[test]
fn s01_http_2_has_the_same_limits() {
    let victim = Victim::new();
    let home = testbed::folder();
    let file = |name: &str, bytes: &[u8]| {
        let path = home.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        format!("@{}", path.display())
    };
    // Far more than a request has; many more take curl itself a minute.
    let many: String = (0..3000).map(|number| format!("h{number}: 1\n")).collect();
    let many = file("headers", many.as_bytes());
    let refused = super::curl(&victim.server, "--http2", &["--header", &many], "/version");
    assert!(!refused.ok || refused.out.ends_with("2 431"), "{refused:?}");
    let few: String = (0..50).map(|number| format!("h{number}: 1\n")).collect();
    let few = file("few", few.as_bytes());
    let answered = super::curl(&victim.server, "--http2", &["--header", &few], "/version").success();
    assert!(answered.ends_with("2 200"), "{answered}");

    let large = file("body", &[b' '; 3 * 1024 * 1024 + 1]);
    let json = "Content-Type: application/json";
    let sent = super::curl(&victim.server, "--http2", &["--header", json, "--data-binary", &large], SERVICES).success();
    assert!(sent.contains("Request entity too large: limit is 3145728") && sent.ends_with("2 413"), "{sent}");
    victim.is_well();
}

#[test]
fn s01_bytes_that_are_no_request_end_the_connection() {
    let victim = Victim::new();
    let cases: [&[u8]; 9] = [
        b"\r\n\r\n\r\n\r\nfrob\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /api HTTP/9.9\r\n\r\n",
        b"GET /api HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /api/v1/namespaces/default/services HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for bytes in cases {
        let mut wire = Wire::admin(&victim.server);
        let _ = wire.send(bytes);
        if let Ok(reply) = wire.head() {
            assert!((400..500).contains(&reply.code), "{:?}: {}", String::from_utf8_lossy(bytes), reply.code);
        }
        assert!(wire.closed(), "{:?}", String::from_utf8_lossy(bytes));
    }
    victim.is_well();
}

#[test]
fn s01_unknown_paths_and_wrong_methods() {
    let victim = Victim::new();
    let nothing = "the server could not find the requested resource";
    for path in [
        "/api/v2",
        "/api/v1/frobs",
        "/api/v1/namespaces/default/frobs",
        "/api/v1/services/kubernetes",
        "/api/v1//services",
        "/api/v1/namespaces//services",
        "/api/v1/namespaces/default/services/kubernetes/frob",
        "/apis/discovery.k8s.io/v9",
        "/apis/discovery.k8s.io/v1/frobs",
        "/api/v1/namespaces/default/services/kubernetes/status/more",
    ] {
        assert_eq!(victim.ask("GET", path, "", b""), (404, nothing.to_owned()), "{path}");
    }
    for path in ["/frob", "/apis/frob", "/apis/frob/v1/things", "//api/v1", "/apiss", "/openapi/v9", "/readyz/frob"] {
        assert_eq!(victim.ask("GET", path, "", b""), (404, "404 page not found\n".to_owned()), "{path}");
    }
    let one = format!("{SERVICES}/kubernetes");
    let not_allowed = "the server does not allow this method on the requested resource";
    for (method, path) in [
        ("POST", one.as_str()),
        ("OPTIONS", &one),
        ("FROB", &one),
        ("PUT", SERVICES),
        ("PATCH", SERVICES),
        ("TRACE", SERVICES),
        ("POST", "/api/v1/services"),
        ("DELETE", "/api/v1/services"),
        ("POST", "/api"),
        ("DELETE", "/apis"),
        ("PUT", "/openapi/v2"),
        ("POST", "/version"),
        ("DELETE", "/version"),
        ("POST", "/readyz"),
        ("DELETE", "/livez"),
        ("PUT", "/healthz"),
        ("POST", "/metrics"),
    ] {
        assert_eq!(victim.ask(method, path, "", b""), (405, not_allowed.to_owned()), "{method} {path}");
    }
    assert_eq!(victim.ask("HEAD", &one, "", b""), (405, String::new()));
    victim.is_well();
}

#[test]
fn s01_paths_with_odd_percent_encoding() {
    let victim = Victim::new();
    // What is encoded without need means what it would mean otherwise.
    assert_eq!(victim.ask("GET", "/api/v1/namespaces/default/services/%6Bubernetes", "", b"").0, 200);
    for (name, message) in [
        ("..", ""),
        ("%2e%2e", "Name parameter invalid: \"..\": may not be '..'"),
        ("%2E", "Name parameter invalid: \".\": may not be '.'"),
        ("a%25b", "Name parameter invalid: \"a%b\": may not contain '%'"),
    ] {
        let (code, said) = victim.ask("GET", &format!("{SERVICES}/{name}"), "", b"");
        assert!([400, 404].contains(&code) && (message.is_empty() || said == message), "{name}: {code} {said}");
    }
    for path in [
        "/%",
        "/%zz",
        "/api/v1/namespaces/%00/services/x",
        "/api/v1/namespaces/%ff%fe/services/x",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/namespaces/default/services/%00",
        "/api/v1/namespaces/default/services/%f0%9f%92%a9",
        "/api/v1/../version",
        "/api/v1/namespaces/default/services/%c0%af",
        "/api/v1/namespaces/default/services/kubernetes%2Fstatus%2Fx",
        "/api/v1/namespaces/default/services/x%0d%0aSet-Cookie:%20a",
        "http://elsewhere/frob",
        "*",
    ] {
        let (code, said) = victim.ask("GET", path, "", b"");
        assert!([400, 404].contains(&code), "{path}: {code} {said}");
    }
    for query in [
        "limit=x",
        "limit=99999999999999999999",
        "continue=%ff",
        "resourceVersion=%00",
        "fieldSelector=%00",
        "watch=%ff&limit=x",
    ] {
        let (code, said) = victim.ask("GET", &format!("{SERVICES}?{query}"), "", b"");
        assert!([400, 422].contains(&code), "{query}: {code} {said}");
    }
    victim.is_well();
}

#[test]
fn s01_many_bad_requests_at_once_cost_little() {
    let victim = Victim::new();
    let mut large = nested("{\"a\":", "}");
    large.resize(3 * 1024 * 1024 - 1, b' ');
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let mut wire = Wire::admin(&victim.server);
                    wire.send(&request("POST", SERVICES, &[("Content-Type", JSON)], &large)).expect("sent");
                    assert_eq!(wire.head().expect("an answer").code, 400);
                }
            });
        }
    });
    victim.is_well();
}
