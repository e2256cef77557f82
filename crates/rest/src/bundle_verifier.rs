//! Verification of webhooks' certificates against a CA bundle: webpki, and certificates that are in the bundle themselves.
//!
//! Many webhooks serve a self-signed certificate and name it as their CA bundle. kube-apiserver accepts it also when it is marked as a CA, as `openssl req -x509`
//! makes it; webpki does not accept a CA as the certificate of a server.

use std::sync::Arc;

use client::tls::{RootsError, roots};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    /// It has no valid certificate.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// Its certificates cannot be used as CAs.
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

/// Accepts what a CA of the bundle signed, and certificates of the bundle.
#[derive(Debug)]
pub(crate) struct BundleVerifier {
    chains: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    /// The verifier of a PEM bundle.
    ///
    /// # Errors
    /// When the bundle has no valid certificate.
    pub(crate) fn new(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, BundleError> {
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(pem)?), provider).build()?;
        Ok(Self { chains, bundle: CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect() })
    }
}

/// Checks a certificate that is trusted by itself: its names, its lifetime and its purpose.
fn verify_trusted(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    let unreadable = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(unreadable)?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(ServerCertVerified::assertion())
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if verified.is_err() && self.bundle.contains(end_entity) {
            return verify_trusted(end_entity, server_name, now);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;

    /// A moment in the lifetime of certificates of rcgen, which ends in 4096.
    const NOW: Duration = Duration::from_secs(1_800_000_000);

    /// A self-signed CA certificate for `localhost`.
    fn made(usages: Vec<ExtendedKeyUsagePurpose>) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = usages;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn verified(
        trusted: &rcgen::Certificate,
        served: &rcgen::Certificate,
        name: &str,
        now: Duration,
    ) -> Option<CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = BundleVerifier::new(trusted.pem().as_bytes(), provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(now);
        match verifier.verify_server_cert(served.der(), &[], &name, &[], now) {
            Ok(_) => None,
            Err(rustls::Error::InvalidCertificate(why)) => Some(why),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_certificate_of_the_bundle_is_accepted_even_if_it_is_a_ca() {
        let own = made(Vec::new());
        assert_eq!(verified(&own, &own, "localhost", NOW), None);
        let server = made(vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(verified(&server, &server, "localhost", NOW), None);
    }

    #[test]
    fn its_name_lifetime_and_purpose_are_checked() {
        let own = made(Vec::new());
        let wrong = verified(&own, &own, "example.com", NOW);
        assert!(matches!(
            wrong,
            Some(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })
        ));
        assert_eq!(verified(&own, &own, "localhost", Duration::ZERO), Some(CertificateError::NotValidYet));
        let late = Duration::from_secs(90_000_000_000);
        assert_eq!(verified(&own, &own, "localhost", late), Some(CertificateError::Expired));
        let of_clients = made(vec![ExtendedKeyUsagePurpose::ClientAuth]);
        assert_eq!(verified(&of_clients, &of_clients, "localhost", NOW), Some(CertificateError::InvalidPurpose));
    }

    #[test]
    fn another_self_signed_certificate_is_refused() {
        assert!(verified(&made(Vec::new()), &made(Vec::new()), "localhost", NOW).is_some());
    }
}
