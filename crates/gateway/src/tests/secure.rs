//! TLS towards clients and pods: certificate changes, self-signed pods, ALPN.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::pods::{Behaviour, Pod};
use super::*;

/// Self-signed certificate for `web.example`, and a client that trusts it.
fn identity() -> (Arc<CertifiedKey>, RootCertStore, (CertificateDer<'static>, PrivateKeyDer<'static>)) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["web.example".to_owned()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let der = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let signing = rustls::crypto::ring::sign::any_supported_type(&der).expect("a key that can sign");
    (Arc::new(CertifiedKey::new(vec![certificate.clone()], signing)), roots, (certificate, der))
}

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn client(port_under_test: &TestPort, roots: RootCertStore, protocols: &[&str]) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("web.example").expect("a name");
    let connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    rustls::StreamOwned::new(connection, port_under_test.connect())
}

fn ask(tls: &mut Tls) -> std::io::Result<String> {
    tls.write_all(b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")?;
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&all).to_lowercase().contains("x-forwarded-proto: https") {
        match tls.read(&mut piece)? {
            0 => break,
            count => all.extend_from_slice(&piece[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

#[test]
fn s48_certificate_changes_do_not_affect_connections() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test =
        TestPort::new(Port { front: ClientProtocol::Tls, number: 443, ..port(Mode::Http) }, &[pod.address]);
    let ((first, first_roots, _), (second, second_roots, _)) = (identity(), identity());
    let mut early = client(&port_under_test, first_roots.clone(), &[]);
    assert!(ask(&mut early).is_err(), "without a certificate there is no TLS");
    port_under_test.certificate.set(first);
    let mut old = client(&port_under_test, first_roots.clone(), &["http/1.1"]);
    let text = ask(&mut old).expect("an answer").to_lowercase();
    assert!(text.contains("x-forwarded-port: 443") && text.contains("x-forwarded-for: 127.0.0.1"), "{text}");
    port_under_test.certificate.set(second);
    assert!(ask(&mut client(&port_under_test, second_roots, &[])).is_ok(), "the new one for new connections");
    assert!(ask(&mut client(&port_under_test, first_roots, &[])).is_err(), "and the old one for none");
    assert!(ask(&mut old).is_ok_and(|text| text.starts_with("HTTP/1.1 200")), "what was there goes on");
    assert_eq!(old.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn alpn_offers_http_2_on_http_ports() {
    let pod = Pod::new(Behaviour::Good);
    let (key, roots, _) = identity();
    for (mode, wanted) in [(Mode::Http, Some(&b"h2"[..])), (Mode::Tcp, None)] {
        let port_under_test = TestPort::new(Port { front: ClientProtocol::Tls, ..port(mode) }, &[pod.address]);
        port_under_test.certificate.set(key.clone());
        let protocols: &[&str] = if mode == Mode::Http { &["h2", "http/1.1"] } else { &[] };
        let mut tls = client(&port_under_test, roots.clone(), protocols);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock).expect("a handshake");
        }
        assert_eq!(tls.conn.alpn_protocol(), wanted);
    }
}

/// TLS pod with a self-signed certificate that echoes.
fn tls_pod(answer: &'static str) -> SocketAddr {
    let (_, _, (certificate, key)) = identity();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config =
        Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).expect("a certificate"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let mut seen = [0; 4096];
            if tls.read(&mut seen).is_ok_and(|count| count > 0) {
                let _ = tls.write_all(answer.as_bytes());
            }
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    address
}

#[test]
fn s48_tls_to_pods_accepts_any_certificate() {
    let pod = tls_pod("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret");
    let port_under_test = TestPort::new(Port { back: BackendProtocol::Tls, ..port(Mode::Http) }, &[pod]);
    let answer = port_under_test.send_raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("secret"), "{answer}");
    let raw = TestPort::new(Port { back: BackendProtocol::Tls, ..port(Mode::Tcp) }, &[tls_pod("anything")]);
    let mut stream = raw.connect();
    stream.write_all(b"x").expect("sent");
    assert_eq!(rest_of(stream), "anything");
    let plain = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(Port { back: BackendProtocol::Tls, ..port(Mode::Http) }, &[plain.address]);
    let answer = port_under_test.send_raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 50"), "a pod that does not speak it is a failure: {answer}");
}
