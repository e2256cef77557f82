//! The TLS settings of a kubeconfig: whom to trust, and which certificate to show.
//!
//! In: the cluster's and the user's entry. Out: a connector. A cluster without an authority of its own is trusted as the
//! machine trusts others. A cluster whose entry says `insecure-skip-tls-verify` is believed whatever it shows: the traffic is
//! still encrypted, to somebody.

use std::path::Path;
use std::sync::Arc;

use api::value::ValueExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::access::material;
use crate::pki::Anybody;

/// Where distributions keep the authorities that the machine trusts.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How to speak TLS to one server.
pub(crate) struct Tls {
    /// The name its certificate must have.
    pub(crate) name: ServerName<'static>,
    /// For HTTP/1.1.
    pub(crate) plain: TlsConnector,
    /// For HTTP/2, if the server has it.
    pub(crate) multiplexed: TlsConnector,
}

pub(super) fn connect_as(name: String, cluster: &Value, user: &Value, folder: &Path) -> Result<Tls, String> {
    let name = ServerName::try_from(name).map_err(said("tls-server-name"))?;
    let config = settings(cluster, user, folder)?;
    let mut with_h2 = config.clone();
    with_h2.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = |config| TlsConnector::from(Arc::new(config));
    Ok(Tls { name, plain: connector(config), multiplexed: connector(with_h2) })
}

fn settings(cluster: &Value, user: &Value, folder: &Path) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let authority = material(cluster, "certificate-authority", folder)?;
    let builder = match (authority, cluster.at("insecure-skip-tls-verify") == true) {
        (Some(_), true) => return Err("a certificate-authority and insecure-skip-tls-verify cannot both be had".into()),
        (None, true) => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
        (Some(pem), false) => builder.with_root_certificates(roots(&pem).map_err(said("certificate-authority"))?),
        (None, false) => builder.with_root_certificates(system_roots()?),
    };
    let pair = (material(user, "client-certificate", folder)?, material(user, "client-key", folder)?);
    match pair {
        (Some(chain), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
            let chain = chain.map_err(said("client-certificate"))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(said("client-key"))?;
            builder.with_client_auth_cert(chain, key).map_err(said("client-certificate"))
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err("client-certificate and client-key belong together, and one is missing".to_owned()),
    }
}

fn said<E: std::fmt::Display>(part: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{part}: {error}")
}

/// The authorities of a PEM bundle.
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

/// The authorities that the machine trusts.
pub(crate) fn system_roots() -> Result<RootCertStore, String> {
    let found = SYSTEM_AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok());
    let pem = found.ok_or("the cluster has no certificate-authority, and this machine has no list of its own")?;
    let mut roots = RootCertStore::empty();
    // Some of a machine's authorities are of kinds that are no longer trusted; the others are enough.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    Ok(roots)
}
