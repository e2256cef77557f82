//! Answers to ACME challenges at the Gateways of this node.
//!
//! In: the answers that the server has published. Out: the text for a token (HTTP-01), the TLS configuration for a host
//! (TLS-ALPN-01). An answer is given only at the Gateway that it is for: otherwise whoever has a Gateway on this node could
//! get certificates for the hosts of others. Connections read without locks.

use std::collections::HashMap;
use std::sync::Arc;

use api::acme::{self, Challenge};
use api::view::StringMap;
use arc_swap::ArcSwap;
use bytes::Bytes;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::tls::provider;

/// The answers, exchanged as a whole.
#[derive(Default)]
pub(crate) struct Challenges(ArcSwap<HashMap<Box<str>, Answers>>);

/// The answers of a Gateway.
#[derive(Default)]
struct Answers {
    /// Host and text by token.
    http: HashMap<Box<str>, (Box<str>, Bytes)>,
    /// By host.
    tls: HashMap<Box<str>, Proof>,
}

/// What proves the control of a host in a TLS handshake.
#[derive(Clone)]
struct Proof {
    key_authorization: Box<str>,
    config: Arc<ServerConfig>,
}

/// Why there is no proof, which is a bug or a host that cannot be in a certificate.
#[derive(Debug, thiserror::Error)]
enum ProofError {
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl Challenges {
    /// Replaces the answers by those in the data of a ConfigMap. Certificates of answers that stay are kept.
    pub(crate) fn set(&self, data: &StringMap) {
        let before = self.0.load();
        let mut all: HashMap<Box<str>, Answers> = HashMap::new();
        for (token, answer) in acme::answers(data) {
            let known = before.get(&answer.gateway).and_then(|answers| answers.tls.get(&answer.host));
            let answers = all.entry(answer.gateway).or_default();
            match answer.challenge {
                Challenge::Http => {
                    let text = Bytes::from(answer.key_authorization.into_string());
                    answers.http.insert(token.into(), (answer.host, text));
                }
                Challenge::TlsAlpn => {
                    let known = known.filter(|known| known.key_authorization == answer.key_authorization).cloned();
                    match known.map_or_else(|| Proof::new(&answer.host, &answer.key_authorization), Ok) {
                        Ok(proof) => drop(answers.tls.insert(answer.host, proof)),
                        Err(error) => tracing::warn!(host = &*answer.host, %error, "cannot answer ACME challenge"),
                    }
                }
            }
        }
        self.0.store(Arc::new(all));
    }

    /// The answer to an HTTP-01 challenge for a host, in lower case, at a Gateway.
    pub(crate) fn http(&self, gateway: &str, host: &str, token: &str) -> Option<Bytes> {
        let all = self.0.load();
        let (of, text) = all.get(gateway)?.http.get(token)?;
        (**of == *host).then(|| text.clone())
    }

    /// The TLS configuration that answers a TLS-ALPN-01 challenge for a host, in lower case, at a Gateway.
    pub(crate) fn tls(&self, gateway: &str, host: &str) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.0.load().get(gateway)?.tls.get(host)?.config))
    }

    /// Whether there is an answer to a TLS-ALPN-01 challenge at a Gateway.
    pub(crate) fn has_tls(&self, gateway: &str) -> bool {
        self.0.load().get(gateway).is_some_and(|answers| !answers.tls.is_empty())
    }
}

impl Proof {
    /// A certificate for the host with the digest of the key authorization in a critical extension (RFC 8737).
    fn new(host: &str, key_authorization: &str) -> Result<Self, ProofError> {
        let mut params = CertificateParams::new([host.to_owned()])?;
        let digest = digest(&SHA256, key_authorization.as_bytes());
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let provider = provider();
        let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        // Not from DER: that parses the certificate, and refuses the extension because it is critical.
        let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.der().clone()], key));
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![acme::ALPN.to_vec()];
        Ok(Self { key_authorization: key_authorization.into(), config: Arc::new(config) })
    }
}
