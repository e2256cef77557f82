//! Upstreams over TLS with a test CA.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::*;

/// CA certificate (PEM), and an upstream with a certificate of it for this name.
async fn upstream(subject: &str) -> (String, SocketAddr, Arc<AtomicUsize>) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("signed");
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().expect("a key");
    let certificate =
        CertificateParams::new(vec![subject.to_owned()]).expect("a name").signed_by(&key, &issuer).expect("signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).expect("they fit");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), count.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let behaviour: Arc<Behaviour> =
                    Arc::new(|_, question| Reply::Say(vec![reply(question).a(300, [192, 0, 2, 1]).done()]));
                let _ = serve_stream(stream, behaviour, Arc::default()).await;
            });
        }
    });
    (authority.pem(), address, accepted)
}

fn bench(pem: &str, address: SocketAddr, name: &str) -> Bench {
    let path = std::env::temp_dir().join(format!("waypost-ca-{}-{}", std::process::id(), address.port()));
    std::fs::write(&path, pem).expect("written");
    let ca = path.display();
    let bench =
        Bench::new(&format!("forward . tls://{address} {{\ntls {ca}\ntls_servername {name}\nread_timeout 5s\n}}"));
    std::fs::remove_file(&path).expect("removed");
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_share_one_tls_connection() {
    let (pem, address, accepted) = upstream("dns.example").await;
    let bench = bench(&pem, address, "dns.example");
    for number in 0..10 {
        let asked = format!("a{number}.example");
        assert_eq!(bench.ask(&asked).await.answers, [format!("{asked} 300 192.0.2.1")]);
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_certificate_must_match_its_name() {
    let (pem, address, _) = upstream("dns.example").await;
    let (other_pem, ..) = upstream("dns.example").await;
    for bench in [bench(&pem, address, "other.example"), bench(&other_pem, address, "dns.example")] {
        assert_eq!(bench.ask("a.example").await, ReplySummary { extended: Some(23), ..answer(Rcode::SERVFAIL, &[]) });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_tls_files_disable_the_upstream() {
    let bench = Bench::new("forward . tls://192.0.2.1 {\ntls nowhere/ca.pem\n}");
    assert_eq!(bench.ask("a.example").await, ReplySummary { extended: Some(22), ..answer(Rcode::SERVFAIL, &[]) });
    assert!(bench.resolver.not_ready()[0].contains("nowhere/ca.pem"), "{:?}", bench.resolver.not_ready());
}
