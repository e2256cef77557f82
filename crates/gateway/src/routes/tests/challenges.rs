//! ACME challenges: answered before any rule, and only at the Gateway that they are for.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use api::acme::{self, Answer, Challenge};
use api::view::StringMap;
use rustls::pki_types::{CertificateDer, ServerName};

use super::tls::{Ca, ask, secret};
use super::*;

/// The answer to a challenge for a host at a Gateway.
fn answer(challenge: Challenge, gateway: &str, host: &str, text: &str) -> String {
    let answer =
        Answer { challenge, gateway: gateway.into(), host: host.into(), key_authorization: text.into(), published: 0 };
    serde_json::to_string(&answer).expect("text")
}

fn publish(gateway: &TestGateway, answers: &[(&str, String)]) {
    let data: StringMap = answers.iter().map(|(token, text)| (*token, text.as_str())).collect();
    gateway.challenges.set(&data);
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn http_challenges_are_answered_before_redirects_and_other_tokens_go_to_the_routes() {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service("solver", &[named("solver")]);
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}});
    gateway.route("http", "web", &["a.example"], vec![rule(&json!({"filters": [redirect]}))]);
    // As cert-manager writes it: an exact path, and the host.
    let exact = json!([{"path": {"type": "Exact", "value": "/.well-known/acme-challenge/theirs"}}]);
    let solver = rule(&json!({"matches": exact, "backends": [{"name": "solver"}]}));
    gateway.route("http", "solver", &["a.example"], vec![solver]);
    publish(
        &gateway,
        &[
            ("ours", answer(Challenge::Http, "shop/public", "a.example", "ours.thumb")),
            ("foreign", answer(Challenge::Http, "blog/public", "a.example", "foreign.thumb")),
            ("tls", answer(Challenge::TlsAlpn, "shop/public", "a.example", "tls.thumb")),
        ],
    );
    let get = |host: &str, token: &str| gateway.get(host, &format!("/.well-known/acme-challenge/{token}"));
    let ours = get("A.example", "ours");
    assert_eq!((code(&ours), body(&ours)), (200, "ours.thumb"), "{ours}");
    assert_eq!(body(&get("a.example:80", "ours")), "ours.thumb");
    assert!(body(&get("a.example", "theirs")).starts_with("solver "), "the route of another ACME client");
    for (token, why) in
        [("foreign", "of another Gateway"), ("tls", "by TLS"), ("none", "unknown"), ("ours/x", "longer")]
    {
        assert_eq!(code(&get("a.example", token)), 301, "{why}");
    }
    assert_eq!(code(&get("b.example", "ours")), 404, "for another host");
    assert_eq!(code(&gateway.get("a.example", "/.well-known/acme-challengeours")), 301);
    let post = "POST /.well-known/acme-challenge/ours HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(code(&gateway.ask(post)), 301);
    publish(&gateway, &[]);
    assert_eq!(code(&get("a.example", "ours")), 301, "removed");
}

/// The certificate that is shown for a server name to a client that offers these protocols.
fn shown(gateway: &TestGateway, host: &str, protocols: &[&[u8]]) -> Option<CertificateDer<'static>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let verifier = Arc::new(client::tls::InsecureSkipVerify::new(provider));
    let builder = builder.expect("versions").dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = gateway.connect();
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).ok()?;
    }
    Some(connection.peer_certificates()?.first()?.clone().into_owned())
}

/// The digest in the `acmeIdentifier` of a certificate for a host.
fn proof(certificate: &CertificateDer<'_>, host: &str) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).expect("a certificate");
    let names = parsed.subject_alternative_name().ok()??;
    assert_eq!(names.value.general_names, [x509_parser::extensions::GeneralName::DNSName(host)]);
    let extension = parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31")?;
    assert!(extension.critical, "RFC 8737 demands it");
    let digest = extension.value.strip_prefix(&[4, 32])?;
    Some(digest.to_vec())
}

#[test]
fn tls_challenges_are_answered_for_validations_only() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    secret(&mut trust, "https", &ca.sign(&["a.example", "b.example"]));
    let mut gateway = TestGateway::with(&[listener("https", ListenerProtocol::Https, None)], trust);
    gateway.service("one", &[named("one")]);
    gateway.simple("https", "web", &[], &["one"]);
    publish(
        &gateway,
        &[
            ("ours", answer(Challenge::TlsAlpn, "shop/public", "a.example", "ours.thumb")),
            ("foreign", answer(Challenge::TlsAlpn, "blog/public", "b.example", "foreign.thumb")),
        ],
    );
    let digest = ring::digest::digest(&ring::digest::SHA256, b"ours.thumb");
    let found = shown(&gateway, "a.example", &[acme::ALPN]).expect("a certificate");
    assert_eq!(proof(&found, "a.example").as_deref(), Some(digest.as_ref()));
    assert_eq!(shown(&gateway, "A.EXAMPLE", &[acme::ALPN]), Some(found.clone()), "the same certificate as before");
    assert_eq!(shown(&gateway, "b.example", &[acme::ALPN]), None, "it is for another Gateway");
    for protocols in [&[&b"http/1.1"[..]][..], &[], &[acme::ALPN, b"http/1.1"]] {
        let usual = shown(&gateway, "a.example", protocols).expect("a certificate");
        assert_ne!(usual, found, "{protocols:?}");
    }
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let served = ask(tls::client(&gateway, &ca, "a.example", None), request).expect("an answer");
    assert_eq!(code(&served), 200, "{served}");
    publish(&gateway, &[]);
    assert_eq!(shown(&gateway, "a.example", &[acme::ALPN]), None, "removed");
}

#[test]
fn connections_that_are_passed_on_keep_their_own_challenges() {
    let seen = Arc::new(AtomicUsize::new(0));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let count = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            count.fetch_add(1, Relaxed);
            drop(stream);
        }
    });
    let mut gateway = TestGateway::new(&[listener("tls", ListenerProtocol::TlsPassthrough, None)]);
    gateway.service("own", &[address]);
    gateway.stream("tls", RouteKind::Tls, "own", &["a.example"], &[json!({"name": "own"})]);
    publish(&gateway, &[("foreign", answer(Challenge::TlsAlpn, "blog/public", "a.example", "x.y"))]);
    assert_eq!(shown(&gateway, "a.example", &[acme::ALPN]), None);
    crate::tests::eventually("the backend gets the validation", || seen.load(Relaxed) > 0);
}
