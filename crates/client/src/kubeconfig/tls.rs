//! The TLS settings of a kubeconfig: trusted CAs and the client certificate.
//!
//! In: the cluster's and the user's entry. Out: a connector. A cluster without a CA of its own is verified with the CAs of the
//! machine; with `insecure-skip-tls-verify` it is not verified.

use std::path::Path;
use std::sync::Arc;

use api::value::ValueExt as _;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::access::material;
use super::error::KubeconfigError;
use crate::tls::{InsecureSkipVerify, roots, system_roots};

/// The TLS settings for one server.
pub(crate) struct Tls {
    /// The name its certificate must have.
    pub(crate) name: ServerName<'static>,
    /// For HTTP/1.1.
    pub(crate) plain: TlsConnector,
    /// For HTTP/2, if the server supports it.
    pub(crate) multiplexed: TlsConnector,
}

pub(super) fn connect_as(name: String, cluster: &Value, user: &Value, folder: &Path) -> Result<Tls, KubeconfigError> {
    let name = ServerName::try_from(name).map_err(KubeconfigError::ServerName)?;
    let config = settings(cluster, user, folder)?;
    let mut with_h2 = config.clone();
    with_h2.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = |config| TlsConnector::from(Arc::new(config));
    Ok(Tls { name, plain: connector(config), multiplexed: connector(with_h2) })
}

fn settings(cluster: &Value, user: &Value, folder: &Path) -> Result<ClientConfig, KubeconfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?;
    let authority = material(cluster, "certificate-authority", folder)?;
    let builder = match (authority, cluster.at("insecure-skip-tls-verify") == true) {
        (Some(_), true) => return Err(KubeconfigError::CaAndInsecure),
        (None, true) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(InsecureSkipVerify::new(provider)))
        }
        (Some(pem), false) => {
            builder.with_root_certificates(roots(&pem).map_err(KubeconfigError::CertificateAuthority)?)
        }
        (None, false) => builder.with_root_certificates(system_roots()?),
    };
    let pair = (material(user, "client-certificate", folder)?, material(user, "client-key", folder)?);
    match pair {
        (Some(chain), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
            let chain = chain.map_err(|error| KubeconfigError::Pem("client-certificate", error))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| KubeconfigError::Pem("client-key", error))?;
            builder.with_client_auth_cert(chain, key).map_err(KubeconfigError::ClientCertificate)
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(KubeconfigError::HalfPair),
    }
}
