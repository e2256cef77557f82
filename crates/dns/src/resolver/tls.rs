//! TLS client configuration for upstreams.
//!
//! In: files. Out: a TLS configuration, or an error. Without a CA file the host's trust store is used; verification
//! cannot be disabled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::Tls;

/// Trust store paths of common distributions.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why TLS cannot be used for an upstream.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No CA file is configured and the host has no trust store.
    #[error("no CA bundle found on this host; set one with `tls CA`")]
    NoSystemRoots,
    /// The CA file has no certificate.
    #[error("{}: no certificate found", .0.display())]
    NoCertificate(PathBuf),
    /// A file cannot be read or is not PEM.
    #[error("{path}: {1}", path = .0.display())]
    Pem(PathBuf, pem::Error),
    /// A certificate of the CA file is invalid.
    #[error("{path}: {1}", path = .0.display())]
    Root(PathBuf, rustls::Error),
    /// The settings, or the client certificate and its key, are invalid.
    #[error(transparent)]
    Config(#[from] rustls::Error),
    /// The configuration was made without its files.
    #[error("TLS files not loaded")]
    NotLoaded,
    /// The server name is invalid.
    #[error("{0}: {1}")]
    ServerName(String, InvalidDnsNameError),
}

/// Loads the files.
pub(super) fn client(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &tls.authority {
        Some(path) => roots(path)?,
        None => {
            let found = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
            roots(found.ok_or(TlsError::NoSystemRoots)?)?
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let Some((chain, key)) = &tls.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).map_err(in_file(chain))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(in_file(key))?;
    Ok(Arc::new(builder.with_client_auth_cert(certificates, key_der)?))
}

fn in_file(path: &Path) -> impl Fn(pem::Error) -> TlsError {
    move |error| TlsError::Pem(path.to_owned(), error)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(in_file(path))? {
        let certificate = certificate.map_err(in_file(path))?;
        roots.add(certificate).map_err(|error| TlsError::Root(path.to_owned(), error))?;
    }
    if roots.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(roots) }
}
