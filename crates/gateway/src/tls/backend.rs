//! TLS towards endpoints whose certificate is verified, as a BackendTLSPolicy says.
//!
//! In: server name, CAs, the names of which the certificate must have one, a client certificate. Out: configurations.

use std::net::IpAddr;
use std::sync::Arc;

use client::tls::InsecureSkipVerify;
use routing::model::SubjectName;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;

use super::{UpstreamTls, provider};

/// The certificate that is expected.
pub(crate) struct Expected<'a> {
    /// Server name, and the name to verify unless there are `names`.
    pub(crate) name: &'a str,
    /// Names of which the certificate must have one.
    pub(crate) names: &'a [SubjectName],
    /// Whether the certificate is verified at all.
    pub(crate) verify: bool,
}

/// The configurations towards endpoints.
pub(crate) fn config(
    expected: &Expected<'_>,
    roots: Arc<RootCertStore>,
    client: Option<Arc<CertifiedKey>>,
) -> UpstreamTls {
    let name = ServerName::try_from(expected.name.to_owned()).ok();
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match expected.verify {
        true => Arc::new(Verifier {
            provider: Arc::clone(&provider),
            roots,
            name: name.clone(),
            names: expected.names.to_vec(),
        }),
        false => Arc::new(InsecureSkipVerify::new(Arc::clone(&provider))),
    };
    // The provider supports both versions.
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(rustls::ALL_VERSIONS);
    let builder = builder.unwrap_or_else(|_| ClientConfig::builder());
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = match client {
        Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        None => builder.with_no_client_auth(),
    };
    UpstreamTls::of(name, config)
}

/// Verifies the chain, and one of several names.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    name: Option<ServerName<'static>>,
    names: Vec<SubjectName>,
}

impl Verifier {
    fn has_name(&self, certificate: &CertificateDer<'_>, parsed: &ParsedCertificate<'_>) -> bool {
        if self.names.is_empty() {
            return self.name.as_ref().is_some_and(|name| verify_server_name(parsed, name).is_ok());
        }
        self.names.iter().any(|name| match name {
            SubjectName::Hostname(host) => is_named(certificate, parsed, host),
            SubjectName::Uri(uri) => {
                has_general_name(certificate, |general| matches!(general, GeneralName::URI(have) if *have == &**uri))
            }
            SubjectName::Address(ip) => verify_server_name(parsed, &ServerName::from(IpAddr::clone(ip))).is_ok(),
        })
    }
}

/// Whether a certificate is for a host; for a wildcard, whether it names the same wildcard.
fn is_named(certificate: &CertificateDer<'_>, parsed: &ParsedCertificate<'_>, host: &str) -> bool {
    if host.starts_with("*.") {
        let is_it = |general: &GeneralName<'_>| matches!(general, GeneralName::DNSName(have) if have.eq_ignore_ascii_case(host));
        return has_general_name(certificate, is_it);
    }
    ServerName::try_from(host).is_ok_and(|name| verify_server_name(parsed, &name).is_ok())
}

fn has_general_name(certificate: &CertificateDer<'_>, is_it: impl Fn(&GeneralName<'_>) -> bool) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(is_it)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if !self.has_name(end_entity, &parsed) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
