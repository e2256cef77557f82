//! TLS towards the clients of a Gateway: several certificates by server name, certificates of clients.
//!
//! In: certificates, and how certificates of clients are verified. Out: a configuration of a listener.

use std::sync::Arc;

use routing::hosts::HostMap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use x509_parser::extensions::GeneralName;

use super::{H1, H2, H3, provider};

/// What clients must show.
pub(crate) enum ClientCertificates {
    /// Nothing.
    None,
    /// A certificate, whatever it is.
    Requested,
    /// A certificate that one of these CAs has signed.
    Required(Arc<RootCertStore>),
}

/// Certificates of a listener, selected by server name.
pub(crate) struct Certificates {
    by_name: HostMap<Arc<CertifiedKey>>,
    first: Arc<CertifiedKey>,
}

impl Certificates {
    /// None without a certificate. The first is for clients whose server name none of them has.
    pub(crate) fn new(all: &[Arc<CertifiedKey>]) -> Option<Self> {
        let first = Arc::clone(all.first()?);
        let mut by_name = HostMap::default();
        // Of two certificates for one name, the first.
        for key in all.iter().rev().filter(|_| all.len() > 1) {
            for name in names(key) {
                by_name.insert(Some(&name), Arc::clone(key));
            }
        }
        Some(Self { by_name, first })
    }
}

/// Hosts that a certificate is for, in lower case.
fn names(key: &CertifiedKey) -> Vec<String> {
    let Some((_, parsed)) = key.cert.first().and_then(|leaf| x509_parser::parse_x509_certificate(leaf).ok()) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(host) => Some(host.to_ascii_lowercase()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(host).collect()
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates")
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.by_name.find(&name.to_ascii_lowercase()));
        Some(Arc::clone(named.unwrap_or(&self.first)))
    }
}

/// TLS configuration of a listener.
///
/// # Errors
/// When rustls rejects it: no CA in the store.
pub(crate) fn config(
    certificates: Arc<dyn ResolvesServerCert>,
    clients: ClientCertificates,
    is_http: bool,
) -> Result<Arc<ServerConfig>, ConfigError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        ClientCertificates::None => builder.with_no_client_auth(),
        ClientCertificates::Requested => builder.with_client_cert_verifier(Arc::new(AnyClient(provider()))),
        ClientCertificates::Required(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.ticketer = ring::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    if is_http {
        config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    }
    Ok(Arc::new(config))
}

/// The configuration of a listener for HTTP/3: without early data, which could be replayed.
pub(crate) fn for_http3(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    (config.alpn_protocols, config.max_early_data_size) = (vec![H3.to_vec()], 0);
    config
}

/// Why a listener has no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// rustls rejects the settings.
    #[error(transparent)]
    Tls(#[from] Error),
    /// The CAs for certificates of clients cannot be used.
    #[error(transparent)]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// Requests a certificate and accepts any, also none.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
