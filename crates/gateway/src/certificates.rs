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
use rustls::pki_types::pem::PemObject as _;
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
    pub fn parse(certificate: &str, namespace: &str) -> Result<Self, String> {
        let Some(path) = certificate.strip_prefix(DIRECT) else {
            return Ok(Self::Claimed { namespace: namespace.to_owned(), arn: certificate.to_owned(), secret: None });
        };
        match path.split('/').collect::<Vec<_>>()[..] {
            [place, name] if !place.is_empty() && !name.is_empty() => {
                Ok(Self::Named { namespace: place.to_owned(), name: name.to_owned() })
            }
            [name] if !name.is_empty() => Ok(Self::Named { namespace: namespace.to_owned(), name: name.to_owned() }),
            _ => Err(format!("invalid certificate reference `{certificate}`; use secret://NAMESPACE/NAME")),
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
    ) -> Result<&'a Secret, String> {
        let fits = |secret: &&Secret| match self {
            Self::Named { name, .. } => *secret.metadata.name == **name,
            Self::Claimed { arn, .. } => {
                let meta = &secret.metadata;
                let claims = [meta.annotations.get(CLAIM), meta.labels.get(CLAIM)];
                claims.into_iter().flatten().any(|claim| claim.trim() == arn)
            }
        };
        let found = secrets.filter(fits).min_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let secret = found.ok_or_else(|| self.missing())?;
        if self.namespace() != for_namespace && !allows(secret, for_namespace) {
            return Err(format!(
                "Secret {self} does not allow namespace {for_namespace}; allow it with `kubectl -n {} annotate secret \
                 {} {ALLOWED}={for_namespace}`",
                self.namespace(),
                secret.metadata.name
            ));
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
pub fn load(secret: &Secret, now: Timestamp) -> Result<Loaded, String> {
    let name = secret.metadata.key();
    if &*secret.kind != TYPE {
        return Err(format!("Secret {name} has type `{}`, not {TYPE}", secret.kind));
    }
    let part = |key: &str| -> Result<Vec<u8>, String> {
        let text = secret.data.get(key).ok_or_else(|| format!("Secret {name} has no {key}"))?;
        STANDARD.decode(text).map_err(|error| format!("{key} of Secret {name} is not base64: {error}"))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&part("tls.crt")?)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("tls.crt of Secret {name} is not PEM: {error}"))?;
    let leaf = chain.first().ok_or_else(|| format!("tls.crt of Secret {name} has no certificate"))?;
    let ends = ends(leaf).ok_or_else(|| format!("tls.crt of Secret {name} has no valid certificate"))?;
    let warning = (ends <= now).then(|| format!("the certificate of Secret {name} expired at {ends}"));
    let key = PrivateKeyDer::from_pem_slice(&part("tls.key")?)
        .map_err(|error| format!("tls.key of Secret {name} is not PEM: {error}"))?;
    let key =
        any_supported_type(&key).map_err(|error| format!("tls.key of Secret {name} is not supported: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => return Err(format!("tls.key of Secret {name} is not the key of its tls.crt")),
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
