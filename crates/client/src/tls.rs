//! TLS of clients: the CAs that are trusted, and the verifier for servers that are not verified.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Where Linux distributions keep the CAs that the machine trusts.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// The bundle is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate is invalid.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    /// The bundle has no certificate.
    #[error("there is no certificate in it")]
    Empty,
    /// The machine has no bundle.
    #[error("the cluster has no certificate-authority, and this machine has no list of its own")]
    NoSystemBundle,
}

/// The CAs of a PEM bundle.
///
/// # Errors
/// When a certificate cannot be read, or there is none.
pub fn roots(pem: &[u8]) -> Result<RootCertStore, RootsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err(RootsError::Empty) } else { Ok(roots) }
}

/// The CAs that this machine trusts.
///
/// # Errors
/// When the machine has no CA bundle.
pub fn system_roots() -> Result<RootCertStore, RootsError> {
    let found = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok());
    let pem = found.ok_or(RootsError::NoSystemBundle)?;
    let mut roots = RootCertStore::empty();
    // Some of a machine's CAs are of kinds that are no longer trusted; the others are enough.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    Ok(roots)
}

/// Accepts any certificate, also those that webpki cannot parse (X.509 v1, unusual keys): the connection is encrypted, the server is
/// not verified. Signatures of the handshake are not checked either, as they prove nothing about an unverified certificate.
#[derive(Debug)]
pub struct InsecureSkipVerify(Arc<CryptoProvider>);

impl InsecureSkipVerify {
    /// The verifier; the provider names the signature schemes that are offered.
    #[must_use]
    pub const fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for InsecureSkipVerify {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
