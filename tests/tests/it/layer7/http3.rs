//! HTTP/3: UDP ports of the Service, real packets through the rules of the proxy, the same pods and headers as over TCP.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use client::tls::InsecureSkipVerify;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use testbed::net::eventually;

use super::stage::{ADDRESS, Page, Stage, rule};

/// The Service of the class.
const SERVICE: &str = "/api/v1/namespaces/waypost-system/services/ingress-waypost";
/// Far more than a response takes.
const TIMEOUT: Duration = Duration::from_secs(10);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The answer to a GET over HTTP/3 from outside, if the server shows this certificate.
fn get(stage: &Stage, host: &str, certificate: &CertificateDer<'static>) -> Result<Page, Failed> {
    stage.outside.in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, exchange(host, certificate)).await? })
    })
}

async fn exchange(host: &str, certificate: &CertificateDer<'static>) -> Result<Page, Failed> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let verifier = Arc::new(InsecureSkipVerify::new(provider));
    let mut tls = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut endpoint = quinn::Endpoint::client(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)));
    let address: IpAddr = ADDRESS.parse()?;
    let connection = endpoint.connect(SocketAddr::new(address, 443), host)?.await?;
    let shown = connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
    if shown.is_none_or(|shown| shown.first() != Some(certificate)) {
        return Err("another certificate is shown".into());
    }
    let (mut http, mut requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let driver = tokio::spawn(async move { poll_fn(|cx| http.poll_close(cx)).await });
    let request = hyper::Request::get(format!("https://{host}/path?query=1")).body(())?;
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    let answer = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    let lines = answer.headers().iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or("?")));
    let head: String = lines.collect::<String>().to_lowercase();
    driver.abort();
    endpoint.close(quinn::VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(Page { code: answer.status().as_u16(), head, body: String::from_utf8(body)? })
}

/// Protocols and numbers of the ports of the Service.
fn ports(stage: &Stage) -> Vec<(String, u64)> {
    let service = stage.served.session(|session| session.get(SERVICE).success());
    let port = |port: &Value| Some((port["protocol"].as_str()?.to_owned(), port["port"].as_u64()?));
    service["spec"]["ports"].as_array().into_iter().flatten().filter_map(port).collect()
}

#[test]
fn s51_https_hosts_are_served_over_http3_with_the_flag() {
    let stage = Stage::with(&["--gateway-http3"]);
    stage.backend("web");
    let mut certificates = Vec::new();
    for host in ["one", "two"] {
        stage.certificate(&format!("{host}-tls"), &format!("{host}.test"));
        let full = format!("{host}.test");
        let tls = json!([{"hosts": [full], "secretName": format!("{host}-tls")}]);
        stage.ingress(host, &[], &json!({"tls": tls, "rules": [rule(&full, "/", "Prefix", "web")]}));
        let file = stage.file(&format!("{host}-tls.crt"));
        certificates.push(CertificateDer::from_pem_file(file).expect("a certificate"));
    }
    stage.settle("http3");
    let expected = [("TCP", 80), ("TCP", 443), ("UDP", 443)].map(|(name, number)| (name.to_owned(), number));
    assert_eq!(ports(&stage), expected);
    for (host, certificate) in ["one.test", "two.test"].into_iter().zip(&certificates) {
        let mut answer = None;
        eventually("the host is served over HTTP/3", || {
            answer = Some(get(&stage, host, certificate));
            matches!(answer, Some(Ok(_)))
        });
        let page = answer.and_then(Result::ok).expect("an answer");
        assert_eq!((page.code, page.pod(), page.target()), (200, Some("web"), "/path?query=1"), "{page:?}");
        let client = stage.client();
        for (name, expected) in
            [("host", host), ("x-forwarded-for", &client), ("x-forwarded-proto", "https"), ("x-forwarded-port", "443")]
        {
            assert_eq!(page.heard(name), Some(expected), "{name}: {page:?}");
        }
        assert_eq!(page.header("alt-svc"), Some("h3=\":443\"; ma=3600"), "{page:?}");
        // That is how clients find it.
        let over_tcp = stage.get(&["--insecure", &format!("https://{host}/")]);
        assert_eq!(over_tcp.header("alt-svc"), Some("h3=\":443\"; ma=3600"), "{over_tcp:?}");
    }
    // The server name selects the certificate.
    assert!(get(&stage, "one.test", &certificates[1]).is_err());
}
