//! Authentication: versions of TLS and HTTP, certificates, tokens, and the limits of authenticated users.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use testbed::session::{SERVICES, TIMEOUT, text};
use testbed::wire::{Reply, Wire};
use testbed::{Home, Server};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A request with a bearer token, on a connection without a certificate.
fn with_token(server: &Server, token: &str, method: &str, path: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    Wire::anonymous(server).ask(method, path, &[("Authorization", &bearer)], b"")
}

#[test]
fn s01_tls_1_2_and_1_3_are_spoken() {
    let server = Server::start();
    for (version, name) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut wire = Wire::open(&server, Some(server.home()), &[version]).expect("a connection");
        assert_eq!(wire.version(), Some(name));
        assert_eq!(wire.ask("GET", SERVICES, &[], b"").success()["kind"], "ServiceList");
    }
}

#[test]
fn s01_tls_1_1_and_plain_http_are_refused() {
    let server = Server::start();
    let dial = || {
        let socket = TcpStream::connect(&server.address).expect("a connection");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    };
    // One ClientHello that differs only in its version: 1.2 is answered with a handshake, 1.1 with a fatal alert.
    for (minor, answered) in [(3, 0x16), (2, 0x15)] {
        let mut hello = vec![0x16, 3, 1, 0, 69, 1, 0, 0, 65, 3, minor];
        hello.extend_from_slice(&[7; 32]);
        // No session, ECDHE-ECDSA-AES128-GCM-SHA256, no compression.
        hello.extend_from_slice(&[0, 0, 2, 0xc0, 0x2b, 1, 0]);
        // Extensions: the group P-256, its points as they are, signatures by ECDSA with SHA-256.
        hello.extend_from_slice(&[0, 22, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3]);
        let mut socket = dial();
        socket.write_all(&hello).expect("sent");
        let mut first = [0];
        socket.read_exact(&mut first).expect("an answer");
        assert_eq!(first, [answered], "TLS 1.{}", minor - 1);
    }

    let mut socket = dial();
    socket.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    // Whether the close is clean does not matter; that nothing was sent in plain text does.
    let _ = socket.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|bytes| bytes == b"HTTP"), "{answer:?}");
}

/// curl as the administrator: the version of HTTP and the code, and the body.
fn curl(server: &Server, version: &str, arguments: &[&str], path: &str) -> (String, String) {
    let out = super::curl(server, version, arguments, path).success();
    let (body, said) = out.rsplit_once('\n').expect("what curl says at the end");
    (said.to_owned(), body.to_owned())
}

#[test]
fn s01_http_1_1_and_http_2_carry_writes_reads_and_watches() {
    let server = Server::start();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let name = format!("web-{}", version.replace('.', "-"));
        let body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}).to_string();
        let create = ["--header", "Content-Type: application/json", "--data-binary", body.as_str()];
        assert_eq!(curl(&server, flag, &create, SERVICES).0, format!("{version} 201"));
        let (said, list) = curl(&server, flag, &[], SERVICES);
        assert_eq!(said, format!("{version} 200"));
        assert!(list.contains(&name), "{list}");
        let selected = format!("{SERVICES}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}");
        let (said, events) = curl(&server, flag, &[], &selected);
        assert_eq!(said, format!("{version} 200"));
        let event: Value = serde_json::from_str(&events).expect("one event, then a clean end");
        assert_eq!((text(&event, "/type"), text(&event, "/object/metadata/name")), ("ADDED", name.as_str()));
        let (said, gone) = curl(&server, flag, &["--request", "DELETE"], &format!("{SERVICES}/{name}"));
        assert_eq!(said, format!("{version} 200"), "{gone}");
    }
}

#[test]
fn s01_a_certificate_of_another_authority_is_refused() {
    let (server, stranger) = (Server::start(), Server::start());
    for version in [&TLS12, &TLS13] {
        // With TLS 1.3 the client is done before the server has checked its certificate.
        let refused = match Wire::open(&server, Some(stranger.home()), &[version]) {
            Err(_) => true,
            Ok(mut wire) => {
                wire.send(&testbed::wire::request("GET", SERVICES, &[], b"")).is_err() || wire.head().is_err()
            }
        };
        assert!(refused, "{version:?}");
    }
    assert_eq!(Wire::admin(&server).ask("GET", SERVICES, &[], b"").code, 200);
}

#[test]
fn s01_nobody_in_particular_sees_health_and_version_and_nothing_else() {
    let server = Server::start();
    let mut wire = Wire::anonymous(&server);
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"] {
        assert_eq!(wire.ask("GET", path, &[], b"").code, 200, "{path}");
    }
    let one = format!("{SERVICES}/kubernetes");
    let paths = [
        "/",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/discovery.k8s.io",
        "/apis/discovery.k8s.io/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/api/v1",
        "/metrics",
        "/nowhere",
        "/api/v1/namespaces",
        SERVICES,
        &one,
        "/api/v1/services?watch=true",
        "/healthzx",
        "/livez/ping",
        "/version/../api",
    ];
    for path in paths {
        let refused = Wire::anonymous(&server).ask("GET", path, &[], b"").refused(403);
        assert!(refused.contains("User \"system:anonymous\" cannot "), "{path}: {refused}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let refused = Wire::anonymous(&server).ask(method, &one, &[JSON], b"{}").refused(403);
        assert!(refused.contains("User \"system:anonymous\" cannot "), "{method}: {refused}");
    }
}

#[test]
fn b02_without_anonymous_requests_everybody_shows_a_credential() {
    let server = Server::start_with(Home::temporary(), &["--anonymous-auth", "false"]);
    for path in ["/healthz", "/version", "/api", SERVICES] {
        assert_eq!(Wire::anonymous(&server).ask("GET", path, &[], b"").refused(401), "Unauthorized", "{path}");
    }
    assert_eq!(Wire::admin(&server).ask("GET", "/healthz", &[], b"").code, 200);
}

#[test]
fn s01_a_token_of_the_token_file_names_its_user_and_groups() {
    let home = testbed::folder();
    let tokens = home.path().join("tokens.csv");
    std::fs::write(&tokens, "r00t,root,1,\"system:masters\"\nr3ader,reader,2\n").expect("written");
    let arguments = ["--token-auth-file", tokens.to_str().expect("a path")];
    let server = Server::start_with(Home::Own(testbed::folder()), &arguments);

    assert_eq!(with_token(&server, "r00t", "GET", "/api/v1/namespaces/default/secrets").code, 200);
    assert_eq!(with_token(&server, "r00t", "DELETE", &format!("{SERVICES}/none")).code, 404);
    assert_eq!(with_token(&server, "r3ader", "GET", SERVICES).code, 403, "nothing is granted to this user yet");
    Wire::admin(&server).bind("view", "reader");
    assert_eq!(with_token(&server, "r3ader", "GET", SERVICES).code, 200);
    let forbidden = "services \"x\" is forbidden: User \"reader\" cannot delete resource \"services\" in API group \"\" \
                     in the namespace \"default\"";
    assert_eq!(with_token(&server, "r3ader", "DELETE", &format!("{SERVICES}/x")).refused(403), forbidden);
    let secrets = with_token(&server, "r3ader", "GET", "/api/v1/namespaces/default/secrets").refused(403);
    assert!(secrets.contains("cannot list resource \"secrets\""), "{secrets}");

    for token in ["r00", "r00tt", "R00T", "r00t,root"] {
        assert_eq!(with_token(&server, token, "GET", SERVICES).code, 401, "{token:?}");
    }
    // What is no token at all is not evaluated, as by kube-apiserver: the request is anonymous.
    for (headers, code) in [
        (&[("Authorization", "Bearer ")][..], 403),
        (&[("Authorization", "Basic cm9vdDpyMDB0")], 403),
        (&[("Authorization", "r00t")], 403),
        (&[("Authorization", "Bearer r00t"), ("Authorization", "Bearer r3ader")], 401),
    ] {
        assert_eq!(Wire::anonymous(&server).ask("GET", SERVICES, headers, b"").code, code, "{headers:?}");
    }
}

#[test]
fn s01_a_service_account_token_is_good_as_long_as_its_account() {
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    let account = br#"{"metadata":{"name":"robot"}}"#;
    let made = |admin: &mut Wire| admin.ask("POST", ACCOUNTS, &[JSON], account).success();
    let first = made(&mut admin);
    let path = format!("{ACCOUNTS}/robot/token");
    let answer = admin.ask("POST", &path, &[JSON], br#"{"spec":{"expirationSeconds":600}}"#).success();
    let token = text(&answer, "/status/token").to_owned();
    assert_eq!(token.split('.').count(), 3, "{answer}");

    admin.bind("view", "system:serviceaccount:default:robot");
    assert_eq!(with_token(&server, &token, "GET", SERVICES).code, 200);
    let me = Wire::anonymous(&server).ask(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &[("Authorization", &format!("Bearer {token}")), JSON],
        br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#,
    );
    let me = me.success();
    assert_eq!(text(&me, "/status/userInfo/username"), "system:serviceaccount:default:robot");
    assert_eq!(text(&me, "/status/userInfo/uid"), text(&first, "/metadata/uid"));
    for (method, path) in [
        ("DELETE", format!("{SERVICES}/kubernetes")),
        ("GET", "/api/v1/namespaces/default/secrets".to_owned()),
        ("POST", format!("{ACCOUNTS}/robot/token")),
        ("GET", "/metrics".to_owned()),
    ] {
        let message = with_token(&server, &token, method, &path).refused(403);
        assert!(message.contains("User \"system:serviceaccount:default:robot\" cannot"), "{message}");
    }

    // A token that was changed in any of its parts is no token.
    for at in [3, token.len() / 2, token.len() - 5] {
        let mut bent = token.clone().into_bytes();
        bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bent).expect("text");
        assert_eq!(with_token(&server, &bent, "GET", SERVICES).code, 401, "changed at {at}");
    }

    assert_eq!(admin.ask("DELETE", &format!("{ACCOUNTS}/robot"), &[], b"").code, 200);
    assert_eq!(with_token(&server, &token, "GET", SERVICES).code, 401, "the account is gone");
    let _ = made(&mut admin);
    assert_eq!(with_token(&server, &token, "GET", SERVICES).code, 401, "this is another account of the same name");
    // The responses on health and version do not depend on the user.
    assert_eq!(Wire::anonymous(&server).ask("GET", "/readyz", &[], b"").code, 200);
}

#[test]
fn s01_a_token_for_another_audience_is_not_for_us() {
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    assert_eq!(admin.ask("POST", ACCOUNTS, &[JSON], br#"{"metadata":{"name":"robot"}}"#).code, 201);
    let path = format!("{ACCOUNTS}/robot/token");
    let answer = admin.ask("POST", &path, &[JSON], br#"{"spec":{"audiences":["vault"]}}"#).success();
    let token = text(&answer, "/status/token").to_owned();
    assert_eq!(with_token(&server, &token, "GET", SERVICES).code, 401);
    let review = json!({"spec": {"token": token, "audiences": ["vault"]}}).to_string();
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = admin.ask("POST", reviews, &[JSON], review.as_bytes()).success();
    assert_eq!((&review["status"]["authenticated"], &review["status"]["audiences"]), (&json!(true), &json!(["vault"])));
}
