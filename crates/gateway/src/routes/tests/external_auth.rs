//! External authentication: what is sent to the server, what its answers mean, and what clients cannot change of it.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use api::view::Service;
use parking_lot::Mutex;
use routing::policy::{ExternalAuth, Policy};

use super::policies::{get_with, guard, guarded, has_line, refused};
use super::*;
use crate::tests::next_answer;

/// The Service `shop/auth` with port 4180, which leads to this server.
pub(super) fn auth_service(gateway: &mut TestGateway, server: SocketAddr) {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "auth"}, "spec": {"ports": [{"name": "", "port": 4180}]},
    }))
    .expect("a Service");
    gateway.pools.apply_service("shop/auth", Some(&service));
    gateway.service("auth", &[server]);
}

pub(super) fn by_server() -> ExternalAuth {
    ExternalAuth {
        signin: Some(ExternalAuth::signin_page("https://login.example/start", None).expect("a URL")),
        response_headers: vec!["X-User".into(), "X-Group".into()],
        ..ExternalAuth::new("http://auth.shop.svc.cluster.local:4180/check?from=$host").expect("a URL")
    }
}

/// A server that answers as the path of the request says, and what it was asked last.
pub(super) fn auth_server() -> (SocketAddr, Arc<Mutex<String>>) {
    let last = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&last);
    let address = scripted(move |request| {
        request.clone_into(&mut seen.lock());
        let url =
            request.lines().find_map(|line| line.to_lowercase().strip_prefix("x-original-url: ").map(str::to_owned));
        let code: u16 = url.and_then(|url| url.rsplit('/').next()?.parse().ok()).unwrap_or(200);
        let fields = "X-User: ann\r\nSet-Cookie: session=1\r\nWWW-Authenticate: Custom realm=\"x\"\r\nX-Secret: 1";
        format!("HTTP/1.1 {code} Said\r\n{fields}\r\nContent-Length: 5\r\n\r\nhello")
    });
    (address, last)
}

#[test]
fn another_server_authorises_requests() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    assert_eq!(code(&gateway.get("a", "/200")), 500, "the server is unknown");
    let (server, last) = auth_server();
    auth_service(&mut gateway, server);
    let lines =
        ["X-User: root", "X-Group: wheel", "X-Original-URL: http://x/", "Cookie: a=b", "Authorization: Bearer t"];
    let answer = get_with(&gateway, "/shop/200", &lines);
    assert_eq!(code(&answer), 200, "{answer}");
    assert!(has_line(&answer, "set-cookie: session=1"), "{answer}");
    assert!(has_line(&answer, "x-user: ann") && has_line(&answer, "authorization: Bearer t"), "{answer}");
    for absent in ["root", "wheel", "x-secret", "x-auth-request-redirect"] {
        assert!(!answer.to_lowercase().contains(absent), "{absent}: {answer}");
    }
    let asked = last.lock().clone();
    assert!(asked.starts_with("GET /check?from=web.example HTTP/1.1\r\n"), "{asked}");
    for line in [
        "host: auth.shop.svc.cluster.local:4180",
        "x-original-url: http://web.example/shop/200",
        "x-original-method: GET",
        "x-real-ip: 127.0.0.1",
        "x-forwarded-for: 127.0.0.1",
        "x-auth-request-redirect: /shop/200",
        "cookie: a=b",
        "authorization: Bearer t",
        "x-user: root",
    ] {
        assert!(has_line(&asked, line), "{line}: {asked}");
    }
}

#[test]
fn a_client_cannot_remove_what_servers_are_told_by_naming_it_in_connection() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let (server, last) = auth_server();
    auth_service(&mut gateway, server);
    let named = "Connection: X-User, X-Own, X-Original-URL, X-Original-Method, X-Real-IP, X-Auth-Request-Redirect, TE";
    let answer = get_with(&gateway, "/shop/200", &[named, "X-Own: 1", "X-User: root", "TE: trailers"]);
    assert!(code(&answer) == 200 && has_line(&answer, "x-user: ann"), "{answer}");
    assert!(!has_line(&answer, "x-own: 1") && has_line(&answer, "te: trailers"), "{answer}");
    let asked = last.lock().clone();
    for line in [
        "x-original-url: http://web.example/shop/200",
        "x-original-method: GET",
        "x-real-ip: 127.0.0.1",
        "x-auth-request-redirect: /shop/200",
    ] {
        assert!(has_line(&asked, line), "{line}: {asked}");
    }
    assert!(!has_line(&asked, "x-user: root"), "{asked}");
}

#[test]
fn a_client_cannot_describe_its_request_to_the_server_as_another_one() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let (server, last) = auth_server();
    auth_service(&mut gateway, server);
    let claims = [
        "Forwarded: host=public.example;proto=https",
        "X-Forwarded-Host: public.example",
        "X-Forwarded-Method: HEAD",
        "X-Forwarded-Path: /public",
        "X-Forwarded-Port: 444",
        "X-Forwarded-Prefix: /public",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Scheme: https",
        "X-Forwarded-Uri: /public",
        "X-Original-Host: public.example",
        "X-Original-Method: HEAD",
        "X-Original-URI: /public",
        "X-Original-URL: http://public.example/public",
        "X-Rewrite-URL: /public",
        "X-Scheme: https",
    ];
    let answer = get_with(&gateway, "/shop/200", &claims);
    assert_eq!(code(&answer), 200, "{answer}");
    let asked = last.lock().to_lowercase();
    for text in ["public", "https", "head", "444"] {
        assert!(!asked.contains(text), "{text}: {asked}");
    }
    for line in ["x-forwarded-host: web.example", "x-forwarded-proto: http", "x-forwarded-port: 80"] {
        assert!(has_line(&asked, line), "{line}: {asked}");
    }
    // Backends know which headers they believe.
    assert!(has_line(&answer, "x-forwarded-uri: /public"), "{answer}");
}

#[test]
fn headers_with_underscores_do_not_pass_a_server_that_grants_headers() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let (server, last) = auth_server();
    auth_service(&mut gateway, server);
    let answer = get_with(&gateway, "/200", &["X_User: root", "X_Original_URL: http://x/", "X-Kept: 1"]);
    assert!(has_line(&answer, "x-user: ann") && has_line(&answer, "x-kept: 1"), "{answer}");
    for text in [answer, last.lock().clone()] {
        assert!(!text.to_lowercase().contains("x_"), "{text}");
    }
    let auth = ExternalAuth { response_headers: vec!["X_Secret".into()], ..by_server() };
    guard(&mut gateway, Policy { external_auth: Some(auth), ..Policy::default() });
    assert!(!get_with(&gateway, "/200", &["X_Secret: mine"]).contains("mine"));
    guard(&mut gateway, Policy::default());
    assert!(has_line(&get_with(&gateway, "/", &["X_User: ann"]), "x_user: ann"), "other rules");
}

#[test]
fn denials_are_passed_on_and_anything_else_is_closed() {
    let with_signin = by_server();
    let without = ExternalAuth { signin: None, always_set_cookie: true, ..by_server() };
    let mut gateway = guarded(Policy { external_auth: Some(with_signin), ..Policy::default() });
    auth_service(&mut gateway, auth_server().0);
    let answer = get_with(&gateway, "/401", &[]);
    let location = "location: https://login.example/start?rd=http://web.example%2F401";
    assert!(code(&answer) == 302 && has_line(&answer, location), "{answer}");
    assert!(has_line(&answer, "set-cookie: session=1"), "{answer}");
    for status in [403, 500, 302, 304, 404, 503] {
        let answer = get_with(&gateway, &format!("/{status}"), &[]);
        let expected = if status == 403 { 403 } else { 500 };
        assert_eq!(code(&answer), expected, "{answer}");
        assert!(!answer.contains("hello") && !answer.to_lowercase().contains("set-cookie"), "{answer}");
    }
    guard(&mut gateway, Policy { external_auth: Some(without), ..Policy::default() });
    let answer = get_with(&gateway, "/401", &[]);
    assert!(code(&answer) == 401 && has_line(&answer, "www-authenticate: Custom realm=\"x\""), "{answer}");
    assert!(has_line(&answer, "set-cookie: session=1"), "{answer}");
    gateway.service("auth", &[unused_address()]);
    assert_eq!(code(&get_with(&gateway, "/200", &[])), 500);
    refused(&gateway, "external-auth", 3);
    refused(&gateway, "auth-unavailable", 6);
}

#[test]
fn the_body_stays_with_the_request_that_is_authorised() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let (server, last) = auth_server();
    auth_service(&mut gateway, server);
    let answer = gateway.ask("POST /200 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nworld");
    assert!(code(&answer) == 200 && answer.ends_with("world"), "{answer}");
    let asked = last.lock().to_lowercase();
    assert!(!asked.contains("world") && !asked.contains("content-length"), "{asked}");
}

#[test]
fn connections_to_the_server_are_used_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, opened) = (server.local_addr().expect("an address"), Arc::clone(&count));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.accept() {
            opened.fetch_add(1, Relaxed);
            std::thread::spawn(move || {
                // Until the connection is closed.
                let mut head = Vec::new();
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let _ = stream.write_all(response(200, "").as_bytes());
                    }
                }
            });
        }
    });
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    auth_service(&mut gateway, address);
    let mut stream = gateway.connect();
    for _ in 0..10 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        assert!(next_answer(&mut stream).0.starts_with("http/1.1 200"));
    }
    assert_eq!(count.load(Relaxed), 1);
}

#[test]
fn a_server_at_an_address_of_the_node_is_not_asked() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let server = scripted(move |_| {
        seen.fetch_add(1, Relaxed);
        response(200, "")
    });
    for host in ["127.0.0.1", "localhost", "localhost.localdomain", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let auth = ExternalAuth::new(&format!("http://{host}:{}/", server.port())).expect("a URL");
        let gateway = guarded(Policy { external_auth: Some(auth), ..Policy::default() });
        assert_eq!(code(&gateway.get("a", "/")), 500, "{host}");
    }
    // A host that the client chooses.
    let auth = ExternalAuth::new("http://$http_x_host/").expect("a URL");
    let gateway = guarded(Policy { external_auth: Some(auth), ..Policy::default() });
    for value in [server.to_string(), format!("a@{server}"), String::new(), "auth.shop.svc".to_owned()] {
        assert_eq!(code(&get_with(&gateway, "/", &[&format!("X-Host: {value}")])), 500, "{value}");
    }
    assert_eq!(count.load(Relaxed), 0);
}

#[test]
fn a_server_behind_a_rule_that_asks_it_is_not_asked_for_ever() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let own = gateway.address;
    auth_service(&mut gateway, own);
    assert_eq!(code(&gateway.get("a", "/")), 500);
    refused(&gateway, "auth-unavailable", 4);
    // A client that says so itself is refused at once, and cannot remove what follows requests for it.
    let named = get_with(&gateway, "/", &["CDN-Loop: other, waypost", "CDN-Loop: waypost,waypost"]);
    assert_eq!(code(&named), 500);
    refused(&gateway, "auth-unavailable", 5);
    assert_eq!(code(&get_with(&gateway, "/", &["Connection: CDN-Loop"])), 500);
    refused(&gateway, "auth-unavailable", 9);
}

#[test]
fn trailers_of_clients_do_not_pass_a_server_that_grants_headers() {
    let mut gateway = guarded(Policy { external_auth: Some(by_server()), ..Policy::default() });
    let (sender, trailers) = std::sync::mpsc::channel();
    let pod = TcpListener::bind("127.0.0.1:0").expect("a port");
    gateway.service("one", &[pod.local_addr().expect("an address")]);
    std::thread::spawn(move || {
        for mut stream in pod.incoming().flatten() {
            let (mut all, mut byte) = (Vec::new(), [0]);
            // The last chunk, and what follows it.
            while !(all.windows(8).any(|end| end == b"5\r\nhello") && all.ends_with(b"\r\n\r\n")) {
                if stream.read_exact(&mut byte).is_err() {
                    break;
                }
                all.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&all).to_lowercase();
            sender.send(text).expect("the test waits");
            // It closes the connection, so the gateway must not keep it.
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").expect("sent");
        }
    });
    let request = "POST /200 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-User\r\n\r\n\
                   5\r\nhello\r\n0\r\nX-User: root\r\n\r\n";
    auth_service(&mut gateway, auth_server().0);
    assert_eq!(code(&gateway.ask(request)), 200);
    let heard = trailers.recv().expect("a request");
    assert!(heard.contains("x-user: ann") && !heard.contains("root") && !heard.contains("trailer:"), "{heard}");
    guard(&mut gateway, Policy::default());
    assert_eq!(code(&gateway.ask(request)), 200);
    let heard = trailers.recv().expect("a request");
    assert!(heard.contains("x-user: root"), "other rules pass them on: {heard}");
}
