//! The validation of hosts over real connections: HTTP-01 (RFC 8555, 8.3) and TLS-ALPN-01 (RFC 8737).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use client::tls::InsecureSkipVerify;
use ring::digest::{SHA256, digest};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use x509_parser::extensions::GeneralName;

use super::Connect;

/// Far more than an answer takes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// `acmeIdentifier`.
const OID: &str = "1.3.6.1.5.5.7.1.31";

fn open(connect: &Connect, host: &str, port: u16) -> Result<TcpStream, String> {
    let stream = connect(host, port).map_err(|error| format!("connecting to {host}:{port}: {error}"))?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Whether the resource for the token has the key authorization.
pub(super) fn http(connect: &Connect, host: &str, token: &str, key_authorization: &str) -> Result<(), String> {
    let mut stream = open(connect, host, 80)?;
    let request =
        format!("GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let read = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    read.map_err(|error| format!("reading from {host}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_ok = head.split(' ').nth(1) == Some("200") && body.trim_end() == key_authorization;
    if is_ok {
        Ok(())
    } else {
        Err(format!("the resource is not the key authorization: {}", head.lines().next().unwrap_or_default()))
    }
}

/// Whether the certificate for the protocol of validations has the digest of the key authorization.
pub(super) fn tls_alpn(connect: &Connect, host: &str, key_authorization: &str) -> Result<(), String> {
    let mut stream = open(connect, host, 443)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.dangerous();
    let verifier = Arc::new(InsecureSkipVerify::new(provider));
    let mut config = builder.with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).map_err(|error| format!("handshake with {host}: {error}"))?;
    }
    if tls.alpn_protocol() != Some(b"acme-tls/1") {
        return Err("the server does not speak acme-tls/1".to_owned());
    }
    let certificate = tls.peer_certificates().and_then(|all| all.first()).ok_or("no certificate")?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    let names = parsed.subject_alternative_name().ok().flatten().map(|names| names.value.general_names.clone());
    let extension = parsed.extensions().iter().find(|one| one.oid.to_id_string() == OID && one.critical);
    let expected = [&[4, 32][..], digest(&SHA256, key_authorization.as_bytes()).as_ref()].concat();
    let is_proof =
        names.as_deref() == Some(&[GeneralName::DNSName(host)]) && extension.is_some_and(|one| one.value == expected);
    if is_proof { Ok(()) } else { Err("the certificate does not prove the key authorization".to_owned()) }
}
