//! What a cluster says of itself to machines that are about to join: where it is, and who its authority is.
//!
//! In and out: the text of a kubeconfig with one cluster and no user, as kubeadm writes and reads it in the ConfigMap
//! `kube-public/cluster-info`.

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// What stands before the digits of the hash of a key.
const HASH_PREFIX: &str = "sha256:";

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterInfo {
    /// `https://host:port`.
    pub server: String,
    /// The certificate of the authority.
    pub ca_pem: String,
}

/// Why a text is no description of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClusterInfoError {
    /// It is not YAML.
    #[error("it is no kubeconfig: {0}")]
    NotYaml(String),
    /// It has no cluster.
    #[error("it names no server")]
    NoServer,
    /// It has no authority, or one that cannot be read.
    #[error("its certificate-authority-data cannot be read")]
    NoAuthority,
}

impl ClusterInfo {
    /// Reads a kubeconfig.
    ///
    /// # Errors
    /// When it says neither where the cluster is nor who its authority is.
    pub fn parse(text: &str) -> Result<Self, ClusterInfoError> {
        let parsed = api::yaml::from_yaml(text.as_bytes());
        let (config, _) = parsed.map_err(|error| ClusterInfoError::NotYaml(error.to_string()))?;
        let cluster = config.items("clusters").first().ok_or(ClusterInfoError::NoServer)?.at("cluster");
        let server = cluster.text("server").to_owned();
        if server.is_empty() {
            return Err(ClusterInfoError::NoServer);
        }
        let ca = STANDARD.decode(cluster.text("certificate-authority-data")).ok();
        let ca_pem = ca.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(ClusterInfoError::NoAuthority)?;
        let info = Self { server, ca_pem };
        info.ca_hash().map(|_| info)
    }

    /// The kubeconfig.
    #[must_use]
    pub fn render(&self) -> String {
        let (server, ca) = (serde_json::Value::from(self.server.as_str()), STANDARD.encode(&self.ca_pem));
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: \"\"
  cluster:
    server: {server}
    certificate-authority-data: {ca}
contexts: []
users: []
current-context: \"\"
"
        )
    }

    /// The hash of the authority's public key: it stays the same when the authority is certified anew.
    ///
    /// # Errors
    /// When the authority cannot be read.
    pub fn ca_hash(&self) -> Result<String, ClusterInfoError> {
        let der = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(|_| ClusterInfoError::NoAuthority)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| ClusterInfoError::NoAuthority)?;
        let hash = digest(&SHA256, parsed.public_key().raw);
        let digits: String = hash
            .as_ref()
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or('0'))
            .collect();
        Ok(format!("{HASH_PREFIX}{digits}"))
    }

    /// Whether only the server's own machine can reach it.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        let uri: Option<Uri> = self.server.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let ip: Option<std::net::IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        host == "localhost" || ip.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::scratch::Scratch;
    use crate::pki::{ServingNames, load_or_create};

    #[test]
    fn what_is_written_is_read() {
        let scratch = Scratch::new();
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let pki = load_or_create(scratch.path(), &ServingNames::default(), now).unwrap();
        let info = ClusterInfo { server: "https://192.0.2.1:6443".into(), ca_pem: pki.ca_pem().into() };
        assert_eq!(ClusterInfo::parse(&info.render()).as_ref(), Ok(&info));
        let hash = info.ca_hash().unwrap();
        assert!(hash.len() == 71 && hash.starts_with("sha256:"), "{hash}");
        for (server, own) in [("https://[::1]:1", true), ("https://127.0.0.1:1", true), ("https://[fd00::1]:1", false)]
        {
            assert_eq!(ClusterInfo { server: server.into(), ..info.clone() }.is_on_loopback(), own, "{server}");
        }
        assert_eq!(ClusterInfo::parse("clusters: []"), Err(ClusterInfoError::NoServer));
        let nobody = ClusterInfo { ca_pem: "x".into(), ..info };
        assert_eq!(ClusterInfo::parse(&nobody.render()), Err(ClusterInfoError::NoAuthority));
    }
}
