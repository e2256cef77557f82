//! cluster-info: the URL and the CAs of a cluster, for machines that join.
//!
//! In and out: a kubeconfig with one cluster and no user, as kubeadm writes and reads it in the ConfigMap `kube-public/cluster-info`.

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The cluster extension with the key identifier of the agent CA.
const AGENT_CA: &str = "waypost.dev/agent-ca";
/// The prefix of a key hash.
const HASH_PREFIX: &str = "sha256:";

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterInfo {
    /// `https://host:port`.
    pub server: String,
    /// The CAs to trust, PEM; the one that signs first.
    pub ca_pem: String,
    /// The key identifier of the agent CA, if published: an agent whose certificate has another requests a new one.
    pub agent_ca: Option<String>,
}

/// Why a text is not a valid cluster-info.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClusterInfoError {
    /// It is not YAML.
    #[error("not a kubeconfig: {0}")]
    NotYaml(String),
    /// It has no cluster.
    #[error("no server in it")]
    NoServer,
    /// It has no CA, or one that cannot be parsed.
    #[error("certificate-authority-data cannot be parsed")]
    NoAuthority,
}

impl ClusterInfo {
    /// Parses a kubeconfig.
    ///
    /// # Errors
    /// When it has no server or no CA.
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
        let extension = |entry: &&serde_json::Value| entry.text("name") == AGENT_CA;
        let agent_ca = cluster.items("extensions").iter().find(extension).map(|entry| entry.text("extension.keyId"));
        let info = Self { server, ca_pem, agent_ca: agent_ca.filter(|id| !id.is_empty()).map(str::to_owned) };
        info.ca_hash().map(|_| info)
    }

    /// The kubeconfig.
    #[must_use]
    pub fn render(&self) -> String {
        let (server, ca) = (serde_json::Value::from(self.server.as_str()), STANDARD.encode(&self.ca_pem));
        let extensions = self.agent_ca.as_ref().map_or_else(String::new, |id| {
            let id = serde_json::Value::from(id.as_str());
            format!("    extensions:\n    - name: {AGENT_CA}\n      extension:\n        keyId: {id}\n")
        });
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: \"\"
  cluster:
    server: {server}
    certificate-authority-data: {ca}
{extensions}contexts: []
users: []
current-context: \"\"
"
        )
    }

    /// The hash of the public key of the signing CA: it stays the same when the CA certificate is renewed.
    ///
    /// # Errors
    /// When a CA cannot be parsed.
    pub fn ca_hash(&self) -> Result<String, ClusterInfoError> {
        let first = self.authorities()?.into_iter().next();
        first.map(|(hash, _)| hash).ok_or(ClusterInfoError::NoAuthority)
    }

    /// The same cluster with only those CAs whose public key has this hash; `None` when there are none.
    ///
    /// # Errors
    /// When a CA cannot be parsed.
    pub fn pinned(&self, hash: &str) -> Result<Option<Self>, ClusterInfoError> {
        let fitting = self.authorities()?.into_iter().filter(|(own, _)| own == hash);
        let ca_pem: String = fitting.map(|(_, der)| pem(&der)).collect();
        Ok((!ca_pem.is_empty()).then(|| Self { ca_pem, ..self.clone() }))
    }

    /// Each CA with the hash of its public key.
    fn authorities(&self) -> Result<Vec<(String, CertificateDer<'static>)>, ClusterInfoError> {
        let certificates = CertificateDer::pem_slice_iter(self.ca_pem.as_bytes());
        let hashed = certificates.map(|der| {
            let der = der.map_err(|_| ClusterInfoError::NoAuthority)?;
            let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| ClusterInfoError::NoAuthority)?;
            let hash = digest(&SHA256, parsed.public_key().raw);
            let nibbles = hash.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
            let digits: String = nibbles.map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or('0')).collect();
            Ok((format!("{HASH_PREFIX}{digits}"), der))
        });
        hashed.collect()
    }

    /// Whether it is only reachable from its own machine.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        let uri: Option<Uri> = self.server.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let ip: Option<std::net::IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        host == "localhost" || ip.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
    }
}

/// A certificate as PEM (RFC 7468): lines of 64 characters.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::rotation::{self, Target};
    use crate::pki::scratch::Scratch;
    use crate::pki::{ServingNames, load_or_create};

    #[test]
    fn what_is_written_is_read() {
        let scratch = Scratch::new();
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let pki = load_or_create(scratch.path(), &ServingNames::default(), now).unwrap();
        let agent_ca = Some(pki.agent_ca_key_id().to_owned());
        let info = ClusterInfo { server: "https://192.0.2.1:6443".into(), ca_pem: pki.ca_pem().into(), agent_ca };
        assert_eq!(ClusterInfo::parse(&info.render()).as_ref(), Ok(&info));
        let hash = info.ca_hash().unwrap();
        assert!(hash.len() == 71 && hash.starts_with("sha256:"), "{hash}");
        for (server, own) in [("https://[::1]:1", true), ("https://127.0.0.1:1", true), ("https://[fd00::1]:1", false)]
        {
            assert_eq!(ClusterInfo { server: server.into(), ..info.clone() }.is_on_loopback(), own, "{server}");
        }
        assert_eq!(ClusterInfo::parse("clusters: []"), Err(ClusterInfoError::NoServer));
        let plain = ClusterInfo { agent_ca: None, ..info.clone() };
        assert_eq!(ClusterInfo::parse(&plain.render()).as_ref(), Ok(&plain));
        rotation::rotate(scratch.path(), &[Target::Ca], now).unwrap();
        let both = load_or_create(scratch.path(), &ServingNames::default(), now).unwrap();
        let both = ClusterInfo { ca_pem: both.ca_pem().into(), ..info.clone() };
        assert_ne!(both.ca_hash(), info.ca_hash(), "the new one is first");
        assert_eq!(both.pinned(&hash).unwrap().as_ref(), Some(&info), "only the one that was named");
        assert_eq!(info.pinned(&both.ca_hash().unwrap()), Ok(None));
        let nobody = ClusterInfo { ca_pem: "x".into(), ..info };
        assert_eq!(ClusterInfo::parse(&nobody.render()), Err(ClusterInfoError::NoAuthority));
    }
}
