//! TLS Secrets: selection, access check, parsing.
//!
//! In: the annotation value and candidate Secrets. Out: a certified key, or a message that states what is missing and
//! the command that fixes it. A Secret of another namespace must allow its use; otherwise anyone who can create
//! Services could use any key.

use std::fmt;
use std::sync::Arc;

use api::balancer_certificate::DIRECT;
pub use api::balancer_certificate::{ALLOWED, CLAIM, FOUND, TYPE};
use api::view::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Reference to a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretRef {
    /// Secret by name.
    Named {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Secret of this namespace that claims an ARN.
    Claimed {
        /// Namespace.
        namespace: String,
        /// ARN.
        arn: String,
        /// Name of that Secret, if the controller has determined it; then no other needs to be watched.
        secret: Option<String>,
    },
}

/// Why a reference leads to no Secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The reference is malformed.
    #[error("invalid certificate reference `{0}`; use secret://NAMESPACE/NAME")]
    Malformed(String),
    /// There is no such Secret.
    #[error("{}", .0.missing())]
    Missing(SecretRef),
    /// The Secret does not allow the namespace.
    #[error(
        "Secret {secret_ref} does not allow namespace {namespace}; allow it with `kubectl -n {} annotate secret \
         {name} {ALLOWED}={namespace}`",
        secret_ref.namespace()
    )]
    NotAllowed {
        /// The reference.
        secret_ref: SecretRef,
        /// Name of the Secret.
        name: String,
        /// Namespace of the Service.
        namespace: String,
    },
}

/// Why the certificate of a Secret, which is named first, is invalid.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The Secret has another type.
    #[error("Secret {0} has type `{1}`, not {TYPE}")]
    Type(String, String),
    /// A key is missing.
    #[error("Secret {0} has no {1}")]
    NoKey(String, &'static str),
    /// A value is not base64.
    #[error("{1} of Secret {0} is not base64: {2}")]
    Base64(String, &'static str, base64::DecodeError),
    /// A value is not PEM.
    #[error("{1} of Secret {0} is not PEM: {2}")]
    Pem(String, &'static str, pem::Error),
    /// The chain is empty.
    #[error("tls.crt of Secret {0} has no certificate")]
    NoCertificate(String),
    /// The certificate cannot be parsed.
    #[error("tls.crt of Secret {0} has no valid certificate")]
    InvalidCertificate(String),
    /// The type of the private key is not supported.
    #[error("tls.key of Secret {0} is not supported: {1}")]
    UnsupportedKey(String, rustls::Error),
    /// Key and certificate do not match.
    #[error("tls.key of Secret {0} is not the key of its tls.crt")]
    KeyMismatch(String),
}

/// Loaded certificate.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Chain and private key.
    pub key: Arc<CertifiedKey>,
    /// Problem that does not prevent its use.
    pub warning: Option<String>,
}

impl SecretRef {
    /// Parses a certificate reference of a Service in `namespace`.
    ///
    /// # Errors
    /// When a `secret://` reference is malformed.
    pub fn parse(certificate: &str, namespace: &str) -> Result<Self, ReferenceError> {
        let Some(path) = certificate.strip_prefix(DIRECT) else {
            return Ok(Self::Claimed { namespace: namespace.to_owned(), arn: certificate.to_owned(), secret: None });
        };
        match path.split('/').collect::<Vec<_>>()[..] {
            [place, name] if !place.is_empty() && !name.is_empty() => {
                Ok(Self::Named { namespace: place.to_owned(), name: name.to_owned() })
            }
            [name] if !name.is_empty() => Ok(Self::Named { namespace: namespace.to_owned(), name: name.to_owned() }),
            _ => Err(ReferenceError::Malformed(certificate.to_owned())),
        }
    }

    /// Sets the Secret that claims the ARN.
    #[must_use]
    pub fn with(mut self, found: Option<&str>) -> Self {
        if let Self::Claimed { secret, .. } = &mut self {
            *secret = found.map(str::to_owned);
        }
        self
    }

    /// Namespace of the Secret.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Named { namespace, .. } | Self::Claimed { namespace, .. } => namespace,
        }
    }

    /// Selects the Secret for a Service in `for_namespace`. If several match, the first by name.
    ///
    /// # Errors
    /// When there is none, or it does not allow the namespace.
    pub fn select<'a>(
        &self,
        secrets: impl Iterator<Item = &'a Secret>,
        for_namespace: &str,
    ) -> Result<&'a Secret, ReferenceError> {
        let fits = |secret: &&Secret| match self {
            Self::Named { name, .. } => *secret.metadata.name == **name,
            Self::Claimed { arn, .. } => {
                let meta = &secret.metadata;
                let claims = [meta.annotations.get(CLAIM), meta.labels.get(CLAIM)];
                claims.into_iter().flatten().any(|claim| claim.trim() == arn)
            }
        };
        let found = secrets.filter(fits).min_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let secret = found.ok_or_else(|| ReferenceError::Missing(self.clone()))?;
        if self.namespace() != for_namespace && !allows(secret, for_namespace) {
            let (name, namespace) = (secret.metadata.name.to_string(), for_namespace.to_owned());
            return Err(ReferenceError::NotAllowed { secret_ref: self.clone(), name, namespace });
        }
        Ok(secret)
    }

    fn missing(&self) -> String {
        match self {
            Self::Named { namespace, name } => format!(
                "Secret {self} of type {TYPE} not found; create it with `kubectl -n {namespace} create secret tls {name} \
                 --cert=FILE --key=FILE`"
            ),
            Self::Claimed { namespace, arn, .. } => format!(
                "no Secret of type {TYPE} in namespace {namespace} claims certificate {arn}; claim it with \
                 `kubectl -n {namespace} annotate secret NAME {CLAIM}={arn}`"
            ),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Claimed { arn, .. } => f.write_str(arn),
        }
    }
}

fn allows(secret: &Secret, namespace: &str) -> bool {
    let list = secret.metadata.annotations.get(ALLOWED);
    list.is_some_and(|list| list.split(',').map(str::trim).any(|word| word == "*" || word == namespace))
}

/// Loads the certificate of a Secret.
///
/// # Errors
/// When it is invalid.
pub fn load(secret: &Secret, now: Timestamp) -> Result<Loaded, CertificateError> {
    let name = || secret.metadata.key();
    if &*secret.kind != TYPE {
        return Err(CertificateError::Type(name(), secret.kind.to_string()));
    }
    let part = |key| {
        let text = secret.data.get(key).ok_or_else(|| CertificateError::NoKey(name(), key))?;
        STANDARD.decode(text).map_err(|error| CertificateError::Base64(name(), key, error))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&part("tls.crt")?)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificateError::Pem(name(), "tls.crt", error))?;
    let leaf = chain.first().ok_or_else(|| CertificateError::NoCertificate(name()))?;
    let ends = ends(leaf).ok_or_else(|| CertificateError::InvalidCertificate(name()))?;
    let warning = (ends <= now).then(|| format!("the certificate of Secret {} expired at {ends}", name()));
    let key = PrivateKeyDer::from_pem_slice(&part("tls.key")?)
        .map_err(|error| CertificateError::Pem(name(), "tls.key", error))?;
    let key = any_supported_type(&key).map_err(|error| CertificateError::UnsupportedKey(name(), error))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => return Err(CertificateError::KeyMismatch(name())),
    }
    Ok(Loaded { key: Arc::new(certified), warning })
}

/// Expiry of a certificate.
fn ends(leaf: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests;
