//! The identity as a client sees it: chains, names, handshakes; and the effects of restarts and of damaged files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion};

use super::scratch::Scratch;
use super::*;

const YEAR: i64 = 365 * DAY;

/// The TLS library uses the real clock, so the certificates of handshake tests are issued for it.
fn real_now() -> Timestamp {
    Timestamp::now()
}

fn names() -> ServingNames {
    ServingNames {
        ips: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap(), "10.96.0.1".parse().unwrap()],
        dns: vec!["localhost".into(), "kubernetes.default.svc.cluster.local".into(), "Host_1".into()],
    }
}

fn file(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

/// A client of the API: it trusts the CA that every kubeconfig holds.
fn client(pki: &Pki, identity: Option<&Identity>, version: &'static SupportedProtocolVersion) -> ClientConfig {
    client_trusting(pki.ca_pem(), identity, version)
}

fn client_trusting(
    ca_pem: &str,
    identity: Option<&Identity>,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Runs a handshake in memory; returns the certificates that the server received from the client.
fn handshake(
    server: Arc<ServerConfig>,
    client: ClientConfig,
    name: &str,
) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let mut client = ClientConnection::new(Arc::new(client), name).map_err(|error| error.to_string())?;
    let mut server = ServerConnection::new(server).map_err(|error| error.to_string())?;
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));

    client.writer().write_all(b"ping").unwrap();
    let mut wire = Vec::new();
    client.write_tls(&mut wire).unwrap();
    server.read_tls(&mut wire.as_slice()).unwrap();
    server.process_new_packets().map_err(|error| format!("server: {error}"))?;
    let mut got = [0; 4];
    server.reader().read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
    Ok(server.peer_certificates().map(|chain| chain.iter().map(|der| der.clone().into_owned()).collect()))
}

#[test]
fn every_wanted_name_verifies_and_no_other() {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for name in ["127.0.0.1", "::1", "10.96.0.1", "localhost", "kubernetes.default.svc.cluster.local", "host_1"] {
            let seen = handshake(pki.server_config(), client(&pki, None, version), name);
            assert_eq!(seen, Ok(None), "{name}");
        }
        for name in ["10.96.0.2", "kubernetes.default.svc.cluster.example"] {
            let refused = handshake(pki.server_config(), client(&pki, None, version), name).unwrap_err();
            assert!(refused.contains("not valid for name"), "{refused}");
        }
    }
}

#[test]
fn agents_accept_only_the_server() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    let other = load_or_create(elsewhere.path(), &names(), real_now()).unwrap();
    let node = ServingNames { ips: vec!["192.0.2.7".parse().unwrap()], dns: Vec::new() };
    let identity = pki.issue_server(&node, real_now()).unwrap();
    let agent = || {
        let mut config = ServerConfig::clone(&agent_server_config(pki.ca_pem(), &identity).unwrap());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let server = |pki: &Pki| {
        let mut config = ClientConfig::clone(&pki.agents_config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    };
    let seen = handshake(agent(), server(&pki), "192.0.2.7").unwrap().unwrap();
    assert!(may_ask_agents(&seen[0], real_now()));
    assert!(handshake(agent(), server(&pki), "192.0.2.8").unwrap_err().contains("not valid for name"));
    assert!(handshake(agent(), server(&other), "192.0.2.7").is_err(), "a server of another cluster");
    let agent_ca = file(scratch.path(), "agent-ca.crt");
    let with = |identity| client_trusting(&agent_ca, identity, &rustls::version::TLS13);
    assert!(handshake(agent(), with(None), "192.0.2.7").is_err(), "no certificate");
    let admin = handshake(agent(), with(Some(pki.admin())), "192.0.2.7");
    assert!(!may_ask_agents(&admin.unwrap().unwrap()[0], real_now()), "a certificate, but not the server's");
}

/// The attack: an agent's certificate for a name of the API server, presented to a client of the API server.
#[test]
fn clients_of_the_api_do_not_trust_agents_whatever_their_certificate_says() {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    let key = OwnKey::generate().unwrap();
    let stolen = ["kubernetes.default.svc".to_owned()];
    let request = key.request("system:node:n1", "system:nodes", &stolen, &["127.0.0.1".parse().unwrap()]).unwrap();
    let request = api::kinds::certificatesigningrequest::request::Request::parse(request.as_bytes()).unwrap();
    let sign = |signing: Signing| {
        let pem = signing.sign(&request, &["server auth"], std::time::Duration::from_secs(1000), real_now()).unwrap();
        key.certified(&pem).unwrap()
    };
    let shown = |identity: &Identity| {
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    };
    let (of_agents, of_cluster) = (sign(pki.agent_signing()), sign(pki.signing()));
    let as_client = |identity: &Identity, name: &str| {
        handshake(shown(identity), client(&pki, Some(pki.admin()), &rustls::version::TLS13), name)
    };
    let as_server = |identity: &Identity| {
        let mut config = ClientConfig::clone(&pki.agents_config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        handshake(shown(identity), config, "127.0.0.1")
    };
    // With one CA for both, as it was, the attack succeeds.
    assert_eq!(as_client(&of_cluster, "kubernetes.default.svc"), Ok(None));
    for name in ["kubernetes.default.svc", "127.0.0.1"] {
        let refused = as_client(&of_agents, name).unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{name}: {refused}");
    }
    // The API server dials agents of the agent CA, and no others.
    assert_eq!(as_server(&of_agents), Ok(None));
    let refused = as_server(&of_cluster).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    // That is how a node recognises a certificate of the time before the agent CA.
    assert!(
        signed_by(&of_cluster.certificate_pem, pki.ca_pem()) && !signed_by(&of_agents.certificate_pem, pki.ca_pem())
    );
    // Nor is a certificate of the agent CA a client's.
    let own = client_trusting(pki.ca_pem(), Some(&of_agents), &rustls::version::TLS13);
    assert!(handshake(pki.server_config(), own, "localhost").is_err());
}

#[test]
fn an_upgraded_cluster_gets_an_agent_ca_and_keeps_everything_else() {
    let scratch = Scratch::new();
    let before = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    for name in ["agent-ca.key", "agent-ca.crt"] {
        fs::remove_file(scratch.path().join(name)).unwrap();
    }
    let kept = ["ca", "server", "admin", "agents"].map(|stem| file(scratch.path(), &format!("{stem}.crt")));
    let after = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    assert_eq!(kept, ["ca", "server", "admin", "agents"].map(|stem| file(scratch.path(), &format!("{stem}.crt"))));
    assert_eq!((before.ca_pem(), before.admin()), (after.ca_pem(), after.admin()));
    assert_ne!(file(scratch.path(), "agent-ca.crt"), file(scratch.path(), "ca.crt"));
    assert!(!after.ca_pem().contains(&file(scratch.path(), "agent-ca.crt")), "kubeconfigs hold the cluster's CA alone");
}

#[test]
fn foreign_client_certificates_fail_the_handshake() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    let other = load_or_create(elsewhere.path(), &names(), real_now()).unwrap();
    let node = pki.issue_client("system:node:n1", "system:nodes", real_now()).unwrap();
    let late = pki.issue_client("late", "g", Timestamp::from_second(1_600_000_000).unwrap()).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for good in [pki.admin(), &node] {
            let chain = handshake(pki.server_config(), client(&pki, Some(good), version), "localhost").unwrap();
            let expected = CertificateDer::from_pem_slice(good.certificate_pem.as_bytes()).unwrap();
            assert_eq!(chain.unwrap(), [expected]);
        }
        let refused = handshake(pki.server_config(), client(&pki, Some(other.admin()), version), "localhost");
        assert!(refused.clone().unwrap_err().starts_with("server: invalid peer certificate"), "{refused:?}");
    }
    // Issued while the clock was in 2020: counted from 2026, see EARLIEST_START.
    assert_eq!(parsed(&late), (1_600_000_000 - 3600, 1_767_225_600 + YEAR));
}

fn parsed(identity: &Identity) -> (i64, i64) {
    let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
    let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
    (cert.validity().not_before.timestamp(), cert.validity().not_after.timestamp())
}

#[test]
fn a_restart_reuses_everything() {
    let scratch = Scratch::new();
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let first = load_or_create(scratch.path(), &names(), start).unwrap();
    let pairs =
        ["ca", "agent-ca", "server", "admin", "agents"].map(|stem| [format!("{stem}.key"), format!("{stem}.crt")]);
    let all: Vec<String> = pairs.into_iter().flatten().chain(["service-account.key".to_owned()]).collect();
    let contents = || all.iter().map(|name| file(scratch.path(), name)).collect::<Vec<_>>();
    let before = contents();
    let later = Timestamp::from_second(1_800_000_000 + 8 * YEAR).unwrap();
    let second = load_or_create(scratch.path(), &names(), later).unwrap();
    assert_eq!(before, contents());
    assert_eq!(first.signing_key(), second.signing_key());
    assert_eq!(first.admin(), second.admin());
    for name in &all {
        let mode = fs::metadata(scratch.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(fs::metadata(scratch.path()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), all.len(), "no temporary files stay");
    assert_eq!(parsed(first.admin()).0, 1_800_000_000 - 3600);
}

#[test]
fn the_serving_certificate_follows_names_and_time() {
    let scratch = Scratch::new();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let start = 1_800_000_000;
    load_or_create(scratch.path(), &names(), at(start)).unwrap();
    let (key, old) = (file(scratch.path(), "server.key"), file(scratch.path(), "server.crt"));

    let fewer = ServingNames { ips: Vec::new(), dns: vec!["LOCALHOST".into(), "not a name".into()] };
    load_or_create(scratch.path(), &fewer, at(start)).unwrap();
    assert_eq!(old, file(scratch.path(), "server.crt"), "fewer names need no new certificate");

    let mut more = names();
    more.ips.push("192.0.2.7".parse().unwrap());
    more.ips.push("0.0.0.0".parse().unwrap());
    load_or_create(scratch.path(), &more, at(start)).unwrap();
    let renewed = file(scratch.path(), "server.crt");
    assert_ne!(old, renewed);
    assert_eq!(key, file(scratch.path(), "server.key"));
    load_or_create(scratch.path(), &more, at(start)).unwrap();
    assert_eq!(renewed, file(scratch.path(), "server.crt"), "an unspecified address is not asked for again");

    // The clock was set back: certificates that are not valid yet are reissued, the CA is kept.
    let authority = file(scratch.path(), "ca.crt");
    load_or_create(scratch.path(), &more, at(start - 10 * DAY)).unwrap();
    assert_ne!(renewed, file(scratch.path(), "server.crt"));
    assert_eq!(authority, file(scratch.path(), "ca.crt"));

    // The last year of the authority: the same key, ten more years; then the last month of the others.
    let authority_key = file(scratch.path(), "ca.key");
    let (serving, admin) = (file(scratch.path(), "server.crt"), file(scratch.path(), "admin.crt"));
    load_or_create(scratch.path(), &more, at(start + 3650 * DAY - 20 * DAY)).unwrap();
    assert_eq!(authority_key, file(scratch.path(), "ca.key"));
    assert_ne!(authority, file(scratch.path(), "ca.crt"));
    assert_ne!(serving, file(scratch.path(), "server.crt"));
    assert_ne!(admin, file(scratch.path(), "admin.crt"));
}

#[test]
fn client_certificates_outlive_the_renewal_of_the_ca() {
    let scratch = Scratch::new();
    let now = real_now();
    let long_ago = Timestamp::from_second(now.as_second() - 3650 * DAY + 60 * DAY).unwrap();
    let old = load_or_create(scratch.path(), &names(), long_ago).unwrap();
    let pki = load_or_create(scratch.path(), &names(), now).unwrap();
    assert_eq!(old.admin(), pki.admin());
    handshake(pki.server_config(), client(&pki, Some(pki.admin()), &rustls::version::TLS13), "localhost").unwrap();
}

#[test]
fn leftovers_of_a_crash_are_completed() {
    let stems = ["ca", "agent-ca", "server", "admin", "agents"];
    let pairs = stems.iter().flat_map(|stem| [format!("{stem}.key"), format!("{stem}.crt")]);
    let order: Vec<String> = pairs.chain(["service-account.key".to_owned()]).collect();
    for survivors in 0..order.len() {
        let scratch = Scratch::new();
        load_or_create(scratch.path(), &names(), real_now()).unwrap();
        let kept: Vec<String> = order[..survivors].iter().map(|name| file(scratch.path(), name)).collect();
        for name in &order[survivors..] {
            fs::remove_file(scratch.path().join(name)).unwrap();
        }
        fs::write(scratch.path().join(format!(".{}.new", order[survivors])), "half a li").unwrap();
        let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
        let again: Vec<String> = order[..survivors].iter().map(|name| file(scratch.path(), name)).collect();
        assert_eq!(kept, again);
        handshake(pki.server_config(), client(&pki, Some(pki.admin()), &rustls::version::TLS13), "localhost").unwrap();
    }
}

#[test]
fn a_new_ca_signs_the_existing_keys() {
    let scratch = Scratch::new();
    load_or_create(scratch.path(), &names(), real_now()).unwrap();
    for name in ["ca.key", "ca.crt"] {
        fs::remove_file(scratch.path().join(name)).unwrap();
    }
    let pki = load_or_create(scratch.path(), &names(), real_now()).unwrap();
    handshake(pki.server_config(), client(&pki, Some(pki.admin()), &rustls::version::TLS13), "localhost").unwrap();
}

#[test]
fn damage_is_named_and_left_alone() {
    let cases = [
        ("ca.key", "no usable private key", "new CA"),
        ("ca.crt", "holds no certificate", "new CA"),
        ("agent-ca.key", "no usable private key", "remove agent-ca.key and agent-ca.crt"),
        ("agent-ca.crt", "holds no certificate", "remove agent-ca.key and agent-ca.crt"),
        ("server.key", "no usable private key", "remove this file"),
        ("server.crt", "holds no certificate", "remove this file"),
        ("admin.crt", "holds no certificate", "remove this file"),
        ("service-account.key", "no usable private key", "remove it to start with a new key"),
    ];
    let scratch = Scratch::new();
    load_or_create(scratch.path(), &names(), real_now()).unwrap();
    for (name, why, remedy) in cases {
        let path = scratch.path().join(name);
        let good = fs::read(&path).unwrap();
        let pem = format!("-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n", "CERTIFICATE");
        for bad in [&b""[..], b"\xff\xfe", &good[..good.len() / 2], pem.as_bytes()] {
            fs::write(&path, bad).unwrap();
            let message = load_or_create(scratch.path(), &names(), real_now()).unwrap_err().to_string();
            assert!(message.contains(&path.display().to_string()), "{message}");
            assert!(message.contains(remedy), "{message}");
            assert_eq!(fs::read(&path).unwrap(), bad, "left as it was");
        }
        fs::write(&path, b"").unwrap();
        let message = load_or_create(scratch.path(), &names(), real_now()).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
        fs::write(&path, good).unwrap();
    }
    fs::remove_file(scratch.path().join("ca.key")).unwrap();
    let message = load_or_create(scratch.path(), &names(), real_now()).unwrap_err().to_string();
    assert!(message.contains("ca.key, is missing"), "{message}");
}

#[test]
fn a_foreign_authority_certificate_is_refused() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    load_or_create(scratch.path(), &names(), real_now()).unwrap();
    load_or_create(elsewhere.path(), &names(), real_now()).unwrap();
    fs::copy(elsewhere.path().join("ca.crt"), scratch.path().join("ca.crt")).unwrap();
    let message = load_or_create(scratch.path(), &names(), real_now()).unwrap_err().to_string();
    assert!(message.contains("another key than ca.key"), "{message}");
}

#[test]
fn permissions_of_other_users_are_removed_from_keys() {
    let scratch = Scratch::new();
    load_or_create(scratch.path(), &names(), real_now()).unwrap();
    let path = scratch.path().join("ca.key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    load_or_create(scratch.path(), &names(), real_now()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn certificates_of_a_machine_without_a_clock_stay_valid() {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &names(), Timestamp::UNIX_EPOCH).unwrap();
    let admin = pki.admin().clone();
    let pki = load_or_create(scratch.path(), &names(), Timestamp::from_second(1_800_000_000).unwrap()).unwrap();
    assert_eq!(&admin, pki.admin());
    assert_eq!(parsed(&admin), (0, 1_767_225_600 + 3650 * DAY));
    // And at the other end of time nothing breaks.
    load_or_create(&scratch.path().join("far"), &names(), Timestamp::MAX).unwrap();
}
