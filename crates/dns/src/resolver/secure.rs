//! Whom we believe when an upstream speaks TLS, and what we show.
//!
//! In: files. Out: a TLS configuration, or why there is none. Without an authority of its own an upstream must be one that
//! this machine trusts; there is no way to skip that.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::Tls;

/// Where distributions keep the authorities that the machine trusts.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Reads the files.
pub(super) fn client(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let roots = match &tls.authority {
        Some(path) => roots(path)?,
        None => {
            let found = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
            roots(found.ok_or("this machine has no authorities; name one with `tls CA`")?)?
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = builder.with_root_certificates(roots);
    let Some((chain, key)) = &tls.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |error: rustls::pki_types::pem::Error| format!("{path}: {error}")
    };
    let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).map_err(said(chain))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(said(key))?;
    let config = builder.with_client_auth_cert(certificates, key_der).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| said(&error))? {
        roots.add(certificate.map_err(|error| said(&error))?).map_err(|error| said(&error))?;
    }
    if roots.is_empty() { Err(said(&"no certificate in it")) } else { Ok(roots) }
}
