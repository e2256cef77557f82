//! TLS client configuration for upstreams.
//!
//! In: files. Out: a TLS configuration, or an error. Without a CA file the host's trust store is used; verification
//! cannot be disabled.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::Tls;

/// Trust store paths of common distributions.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Loads the files.
pub(super) fn client(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let roots = match &tls.authority {
        Some(path) => roots(path)?,
        None => {
            let found = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
            roots(found.ok_or("no CA bundle found on this host; set one with `tls CA`")?)?
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = builder.with_root_certificates(roots);
    let Some((chain, key)) = &tls.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let summary = |path: &Path| {
        let path = path.display().to_string();
        move |error: rustls::pki_types::pem::Error| format!("{path}: {error}")
    };
    let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).map_err(summary(chain))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(summary(key))?;
    let config = builder.with_client_auth_cert(certificates, key_der).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let summary = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| summary(&error))? {
        roots.add(certificate.map_err(|error| summary(&error))?).map_err(|error| summary(&error))?;
    }
    if roots.is_empty() { Err(summary(&"no certificate found")) } else { Ok(roots) }
}
