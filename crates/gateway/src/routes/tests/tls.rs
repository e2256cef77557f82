//! TLS: certificates by server name, misdirected requests, passthrough, termination, certificates of clients, TLS to
//! backends.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use routing::model::{ClientValidation, SubjectName};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::super::trust::ConfigMap;
use super::*;

/// A CA, and certificates that it signs.
pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate with its key, as PEM.
pub(super) struct Identity {
    chain: String,
    key: String,
}

impl Ca {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "CA of a test");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    pub(super) fn sign(&self, names: &[&str]) -> Identity {
        let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(uri.try_into().expect("text")));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }

    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("a root");
        roots
    }
}

impl Identity {
    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        use rustls::pki_types::pem::PemObject as _;
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<_, _>>();
        (chain.expect("a chain"), PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key"))
    }
}

/// A Secret of namespace `shop`.
pub(super) fn secret_of(name: &str, identity: &Identity) -> Value {
    let data = json!({"tls.crt": STANDARD.encode(&identity.chain), "tls.key": STANDARD.encode(&identity.key)});
    let metadata = json!({"namespace": "shop", "name": name});
    json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data})
}

/// Adds a Secret of namespace `shop`.
pub(super) fn secret(trust: &mut Trust, name: &str, identity: &Identity) {
    let secret = serde_json::from_value(secret_of(name, identity)).expect("a Secret");
    let state = trust.apply_secret(&format!("shop/{name}").into(), Some(&secret));
    assert_eq!(state, Some(routing::cluster::SecretState::Certificate));
}

/// Adds a ConfigMap of namespace `shop`.
fn config_map(trust: &mut Trust, name: &str, pem: &str) {
    let map = json!({"metadata": {"namespace": "shop", "name": name}, "data": {"ca.crt": pem}});
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    let state = trust.apply_config_map(&format!("shop/{name}").into(), Some(&map));
    assert_eq!(state, Some(routing::cluster::CaState::Bundle));
}

pub(super) type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

pub(super) fn client(gateway: &TestGateway, ca: &Ca, name: &str, own: Option<&Identity>) -> Tls {
    over(gateway.connect(), ca, name, own)
}

/// TLS for a server name.
pub(super) fn over(stream: TcpStream, ca: &Ca, name: &str, own: Option<&Identity>) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(ca.roots());
    let config = match own.map(Identity::parts) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("a certificate"),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    rustls::StreamOwned::new(connection, stream)
}

pub(super) fn ask(mut tls: Tls, text: &str) -> std::io::Result<String> {
    tls.write_all(text.as_bytes())?;
    let mut all = Vec::new();
    match tls.read_to_end(&mut all) {
        Err(error) if all.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&all).into_owned()),
    }
}

/// Response to a GET for this host over a connection for that server name.
fn get(gateway: &TestGateway, ca: &Ca, server_name: &str, host: &str) -> std::io::Result<String> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    ask(client(gateway, ca, server_name, None), &request)
}

#[test]
fn misdirected_requests_are_421() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    let hosts = [None, Some("second-example.org"), Some("*.wildcard.org"), Some("fourth.wildcard.org")];
    let listeners: Vec<ListenerConfig> =
        (0..).zip(hosts).map(|(index, host)| listener(&format!("l{index}"), ListenerProtocol::Https, host)).collect();
    for index in 0..4 {
        let names = ["example.org", "second-example.org", "third.wildcard.org", "fourth.wildcard.org"];
        secret(&mut trust, &format!("l{index}"), &ca.sign(&names));
    }
    let mut gateway = TestGateway::with(&listeners, trust);
    gateway.service("one", &[named("one")]);
    for (index, host) in [(1, "second-example.org"), (2, "*.wildcard.org"), (3, "fourth.wildcard.org")] {
        gateway.simple(&format!("l{index}"), &format!("r{index}"), &[host], &["one"]);
    }
    for (server_name, host, expected) in [
        ("example.org", "unknown.org", 404),
        ("second-example.org", "second-example.org", 200),
        ("second-example.org", "unknown.org", 421),
        ("third.wildcard.org", "fourth.wildcard.org", 421),
        ("third.wildcard.org", "fifth.wildcard.org", 200),
        ("example.org", "second-example.org", 421),
    ] {
        let answer = get(&gateway, &ca, server_name, host).expect("an answer");
        assert_eq!(code(&answer), expected, "{server_name} {host}: {answer}");
    }
    let answer = get(&gateway, &ca, "second-example.org", "second-example.org").expect("an answer").to_lowercase();
    assert!(answer.contains("x-forwarded-proto: https\r\n") && answer.contains("x-forwarded-port: 443\r\n"));
}

#[test]
fn the_server_name_selects_one_of_several_certificates() {
    let (ca, other, mut trust) = (Ca::new(), Ca::new(), Trust::default());
    secret(&mut trust, "https", &ca.sign(&["a.example"]));
    secret(&mut trust, "more", &other.sign(&["*.b.example"]));
    let mut config = listener("https", ListenerProtocol::Https, None);
    config.certificates.push("shop/more".into());
    let mut gateway = TestGateway::with(&[config], trust);
    gateway.service("one", &[named("one")]);
    gateway.simple("https", "web", &[], &["one"]);
    assert_eq!(code(&get(&gateway, &ca, "a.example", "a.example").expect("an answer")), 200);
    assert_eq!(code(&get(&gateway, &other, "x.b.example", "x.b.example").expect("an answer")), 200);
    assert!(get(&gateway, &ca, "x.b.example", "x.b.example").is_err(), "another CA");
}

/// TLS server that answers what it gets with its name, and requires a certificate of a client if there is a CA for it.
pub(super) fn tls_server(name: &'static str, identity: &Identity, clients: Option<&Ca>) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.expect("versions");
    let builder = match clients {
        Some(ca) => {
            let roots = Arc::new(ca.roots());
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = identity.parts();
    let config = Arc::new(builder.with_single_cert(chain, key).expect("a certificate"));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let mut seen = [0; 4096];
            if tls.read(&mut seen).is_ok_and(|count| count > 0) {
                let server_name = tls.conn.server_name().unwrap_or_default().to_owned();
                let _ = tls.write_all(response(200, &format!("{name} {server_name}")).as_bytes());
            }
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    address
}

#[test]
fn passthrough_and_terminate_share_a_port() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    secret(&mut trust, "terminate", &ca.sign(&["end.example"]));
    let listeners = [
        listener("pass", ListenerProtocol::TlsPassthrough, Some("*.pass.example")),
        listener("terminate", ListenerProtocol::TlsTerminate, Some("end.example")),
    ];
    let mut gateway = TestGateway::with(&listeners, trust);
    gateway.service("secure", &[tls_server("secure", &ca.sign(&["a.pass.example", "b.pass.example"]), None)]);
    gateway.service("plain", &[named("plain")]);
    gateway.service("empty", &[]);
    gateway.stream("pass", RouteKind::Tls, "a", &["a.pass.example"], &[json!({"name": "secure"})]);
    gateway.stream("pass", RouteKind::Tls, "c", &["c.pass.example"], &[json!({"name": "empty"})]);
    gateway.stream("terminate", RouteKind::Tls, "end", &["end.example"], &[json!({"name": "plain"})]);
    let passed = get(&gateway, &ca, "a.pass.example", "a").expect("an answer");
    assert!(passed.ends_with("secure a.pass.example"), "{passed}");
    let mut stream = client(&gateway, &ca, "end.example", None);
    stream.write_all(b"GET /end HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("plain GET /end") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).expect("more");
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..count]);
    }
    for name in ["b.pass.example", "c.pass.example", "other.example"] {
        assert!(get(&gateway, &ca, name, "a").is_err(), "{name} has no rule or no endpoint");
    }
}

#[test]
fn certificates_of_clients_are_required_or_requested() {
    let (ca, clients, strangers) = (Ca::new(), Ca::new(), Ca::new());
    let (known, unknown) = (clients.sign(&["client"]), strangers.sign(&["client"]));
    for (insecure_fallback, allowed) in [(false, [true, false, false]), (true, [true, true, true])] {
        let mut trust = Trust::default();
        secret(&mut trust, "https", &ca.sign(&["a.example"]));
        config_map(&mut trust, "clients", &clients.pem);
        let authorities = vec!["shop/clients".into()];
        let validation = Some(ClientValidation { authorities, insecure_fallback });
        let config =
            ListenerConfig { client_validation: validation, ..listener("https", ListenerProtocol::Https, None) };
        let mut gateway = TestGateway::with(&[config], trust);
        gateway.service("one", &[named("one")]);
        gateway.simple("https", "web", &[], &["one"]);
        for (own, allowed) in [Some(&known), Some(&unknown), None].into_iter().zip(allowed) {
            let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            let answer = ask(client(&gateway, &ca, "a.example", own), request);
            assert_eq!(answer.is_ok_and(|answer| code(&answer) == 200), allowed, "fallback {insecure_fallback}");
        }
    }
}

#[test]
fn certificates_of_backends_are_verified() {
    let (ca, other) = (Ca::new(), Ca::new());
    let mut trust = Trust::default();
    config_map(&mut trust, "ca", &ca.pem);
    secret(&mut trust, "own", &ca.sign(&["gateway"]));
    let mut gateway = TestGateway::with(&[listener("http", ListenerProtocol::Http, None)], trust);
    let names = ["web.internal", "spiffe://cluster/web"];
    gateway.service("good", &[tls_server("good", &ca.sign(&names), None)]);
    gateway.service("strange", &[tls_server("strange", &other.sign(&names), None)]);
    gateway.service("plain", &[named("plain")]);
    let san = |kind: fn(Box<str>) -> SubjectName, name: &str| vec![kind(name.into())];
    for (index, (service, hostname, subject_alt_names, expected)) in [
        ("good", "web.internal", vec![], 200),
        ("good", "other.internal", vec![], 502),
        ("strange", "web.internal", vec![], 502),
        ("plain", "web.internal", vec![], 502),
        ("good", "sni.internal", san(SubjectName::Hostname, "web.internal"), 200),
        ("good", "sni.internal", san(SubjectName::Uri, "spiffe://cluster/web"), 200),
        ("good", "web.internal", san(SubjectName::Uri, "spiffe://cluster/other"), 502),
    ]
    .into_iter()
    .enumerate()
    {
        let authorities = vec!["shop/ca".into()];
        let tls = BackendTls { hostname: hostname.into(), authorities, subject_alt_names, verify: true };
        let mut to = rule(&json!({"backends": [{"name": service}]}));
        to.backends[0].target = Target::Service(target_by(service, BackendProtocol::Http1, Some(tls)));
        let host = format!("host{index}");
        gateway.route("http", &host, &[&host], vec![to]);
        let answer = gateway.get(&host, "/");
        assert_eq!(code(&answer), expected, "{service} {hostname}: {answer}");
        assert!(expected != 200 || answer.ends_with(&format!("good {hostname}")), "{answer}");
    }
}

#[test]
fn another_ca_takes_effect_for_known_backends_and_the_gateway_shows_its_certificate() {
    let (ca, other) = (Ca::new(), Ca::new());
    let mut trust = Trust::default();
    config_map(&mut trust, "ca", &ca.pem);
    secret(&mut trust, "own", &ca.sign(&["gateway"]));
    let mut gateway = TestGateway::with(&[listener("http", ListenerProtocol::Http, None)], trust);
    gateway.service("one", &[tls_server("one", &ca.sign(&["web.internal"]), Some(&ca))]);
    let authorities = vec!["shop/ca".into()];
    let tls = BackendTls { hostname: "web.internal".into(), authorities, subject_alt_names: vec![], verify: true };
    let target = target_by("one", BackendProtocol::Http1, Some(tls));
    let own: Arc<str> = "shop/own".into();
    let mut to = rule(&json!({"backends": [{"name": "one"}]}));
    to.backends[0].target = Target::Service(Arc::clone(&target));
    gateway.route("http", "bare", &["bare"], vec![to.clone()]);
    assert_eq!(code(&gateway.get("bare", "/")), 502, "without a certificate of its own");
    let upstream = gateway.pools.upstream(&target, Some(&own), &gateway.trust);
    let metrics = gateway.metrics.routing().for_route("shop/public", &route_id("web"));
    let means = (&gateway.enforcer, &gateway.trust.passwords);
    let rule = Arc::new(CompiledRule::new(&to, |_| Some(Arc::clone(&upstream)), metrics, means));
    let state = RouteState {
        generation: 1,
        created: "".into(),
        parents: Vec::new(),
        rules: [Arc::new(to)].into(),
        stream: None,
    };
    let table = &gateway.tables["http"];
    let mut new = Tables::clone(&table.load());
    new.insert(&route_id("web"), (&state, &["web".into()]), |_| Arc::clone(&rule), None);
    table.store(Arc::new(new));
    assert_eq!(code(&gateway.get("web", "/")), 200);
    config_map(&mut gateway.trust, "ca", &other.pem);
    gateway.pools.trust_changed(&["shop/ca".into()].into(), &gateway.trust);
    assert_eq!(code(&gateway.get("web", "/")), 502);
}
