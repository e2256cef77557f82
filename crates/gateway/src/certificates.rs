//! Which Secret holds a certificate, and what it comes to. Pure, but for the cryptography.
//!
//! In: the name in the annotation and the Secrets that may be looked at. Out: a key that can be served, or a sentence that says what is
//! missing and what to type. A Secret of another namespace must allow its use: otherwise who may write Services could serve with
//! anybody's key.

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

/// Where a certificate is to be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In this Secret.
    Named {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// In a Secret of this namespace that claims this name.
    Claimed {
        /// The namespace.
        namespace: String,
        /// The name that is claimed.
        arn: String,
        /// The Secret that does, if somebody who sees them all has said so: no other needs to be looked at.
        secret: Option<String>,
    },
}

/// A certificate that can be served.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The chain and its key.
    pub key: Arc<CertifiedKey>,
    /// What is wrong with it all the same.
    pub warning: Option<String>,
}

impl Place {
    /// Reads the name of a certificate, for a Service of this namespace.
    ///
    /// # Errors
    /// When it says where the Secret is, and says it wrongly.
    pub fn read(certificate: &str, namespace: &str) -> Result<Self, String> {
        let Some(path) = certificate.strip_prefix(DIRECT) else {
            return Ok(Self::Claimed { namespace: namespace.to_owned(), arn: certificate.to_owned(), secret: None });
        };
        match path.split('/').collect::<Vec<_>>()[..] {
            [place, name] if !place.is_empty() && !name.is_empty() => {
                Ok(Self::Named { namespace: place.to_owned(), name: name.to_owned() })
            }
            [name] if !name.is_empty() => Ok(Self::Named { namespace: namespace.to_owned(), name: name.to_owned() }),
            _ => Err(format!("the certificate `{certificate}` must be written as secret://NAMESPACE/NAME")),
        }
    }

    /// The same, where it is said which Secret claims the name.
    #[must_use]
    pub fn with(mut self, found: Option<&str>) -> Self {
        if let Self::Claimed { secret, .. } = &mut self {
            *secret = found.map(str::to_owned);
        }
        self
    }

    /// The namespace in which to look.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Named { namespace, .. } | Self::Claimed { namespace, .. } => namespace,
        }
    }

    /// Chooses among the Secrets of the namespace, for a Service of another, perhaps. Of several the first by name.
    ///
    /// # Errors
    /// What is missing.
    pub fn choose<'a>(
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
                "the Secret {self} is not for the namespace {for_namespace}; allow it with `kubectl -n {} annotate secret \
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
                "there is no Secret {self} of type {TYPE}; make it with `kubectl -n {namespace} create secret tls {name} \
                 --cert=FILE --key=FILE`"
            ),
            Self::Claimed { namespace, arn, .. } => format!(
                "no Secret of type {TYPE} in the namespace {namespace} is the certificate {arn}; say which one is with \
                 `kubectl -n {namespace} annotate secret NAME {CLAIM}={arn}`"
            ),
        }
    }
}

impl fmt::Display for Place {
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

/// Makes a certificate of a Secret.
///
/// # Errors
/// Why it is none.
pub fn load(secret: &Secret, now: Timestamp) -> Result<Loaded, String> {
    let name = secret.metadata.key();
    if &*secret.kind != TYPE {
        return Err(format!("the Secret {name} is of type `{}`, not {TYPE}", secret.kind));
    }
    let part = |key: &str| -> Result<Vec<u8>, String> {
        let text = secret.data.get(key).ok_or_else(|| format!("the Secret {name} has no {key}"))?;
        STANDARD.decode(text).map_err(|error| format!("{key} of the Secret {name} is no base64: {error}"))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&part("tls.crt")?)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("tls.crt of the Secret {name} is no PEM: {error}"))?;
    let leaf = chain.first().ok_or_else(|| format!("tls.crt of the Secret {name} holds no certificate"))?;
    let ends =
        ends(leaf).ok_or_else(|| format!("tls.crt of the Secret {name} holds no certificate that can be read"))?;
    let warning = (ends <= now).then(|| format!("the certificate of the Secret {name} has been invalid since {ends}"));
    let key = PrivateKeyDer::from_pem_slice(&part("tls.key")?)
        .map_err(|error| format!("tls.key of the Secret {name} is no PEM: {error}"))?;
    let key =
        any_supported_type(&key).map_err(|error| format!("tls.key of the Secret {name} cannot be used: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => return Err(format!("tls.key of the Secret {name} is not the key of its tls.crt")),
    }
    Ok(Loaded { key: Arc::new(certified), warning })
}

/// When a certificate ends.
fn ends(leaf: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests;
