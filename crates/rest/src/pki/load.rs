//! Loads keys and certificates: reads and checks them, creates missing ones, renews outdated ones.
//!
//! In: a directory, file names, the time. Out: CAs and leaf certificates with their keys. Files that this program did not write are reported
//! by name, and left alone.

use std::iter;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::RootCertStore;

use super::certs::{self, Authority, Certificate, Purpose};
use super::{DAY, Identity, PkiError, files};

/// A certificate is renewed this many seconds before it expires.
const RENEW_BEFORE: i64 = 30 * DAY;
/// A CA is renewed earlier, so that the certificates it signs are valid long enough.
const RENEW_AUTHORITY_BEFORE: i64 = 365 * DAY;

/// The CA that signs, and the previous one while it is trusted.
pub(super) struct Authorities {
    pub(super) current: Arc<Authority>,
    pub(super) previous: Option<Arc<Authority>>,
    bundle: String,
}

impl Authorities {
    fn new(current: Authority, previous: Option<Authority>) -> Self {
        let pem = |authority: &Authority| authority.pem().trim_end().to_owned() + "\n";
        let bundle = iter::once(&current).chain(&previous).map(pem).collect();
        Self { current: Arc::new(current), previous: previous.map(Arc::new), bundle }
    }

    /// All trusted CAs, the one that signs first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Authority> {
        iter::once(&*self.current).chain(self.previous.as_deref())
    }

    /// All trusted CAs, PEM.
    pub(super) fn bundle(&self) -> &str {
        &self.bundle
    }

    /// All trusted CAs, as trust anchors.
    pub(super) fn roots(&self) -> Result<RootCertStore, PkiError> {
        let mut roots = RootCertStore::empty();
        for authority in self.all() {
            roots.add(authority.der().clone())?;
        }
        Ok(roots)
    }
}

/// Loads a CA, and the previous one.
pub(super) fn authorities(dir: &Path, ca: &Ca, now: Timestamp) -> Result<Authorities, PkiError> {
    Ok(Authorities::new(authority(dir, ca, now)?, previous(dir, ca)?))
}

/// The CA that is being replaced, if any: it is trusted until the rotation is finished.
fn previous(dir: &Path, ca: &Ca) -> Result<Option<Authority>, PkiError> {
    let cert_path = dir.join(format!("{}-previous.crt", ca.stem));
    let Some(certificate) = certificate(&cert_path, PREVIOUS_REMEDY)? else { return Ok(None) };
    let damaged =
        |why: &str| PkiError::Damaged { path: cert_path.clone(), why: why.to_owned(), remedy: PREVIOUS_REMEDY };
    let key = key(&dir.join(format!("{}-previous.key", ca.stem)), PREVIOUS_REMEDY)?;
    let key = key.filter(|key| certificate.is_for(key)).ok_or_else(|| damaged("its key is missing"))?;
    if !certificate.is_ca_named(ca.name) {
        return Err(damaged("it is not a CA of this program"));
    }
    Ok(Some(Authority::new(ca.name, key, certificate)))
}

const PREVIOUS_REMEDY: &str = "put the original file back, or remove the previous CA with `waypost certs finish ca` or `waypost certs \
                               finish agent-ca`";

/// A CA: its files, its subject, and the remedy for a damaged file.
pub(super) struct Ca {
    pub(super) stem: &'static str,
    pub(super) name: &'static str,
    pub(super) remedy: &'static str,
}

/// The CA that clients of the API trust, and that signs for clients.
pub(super) const CLUSTER_CA: Ca = Ca {
    stem: "ca",
    name: "waypost-ca",
    remedy: "put the original file back, or move the whole directory away to start with a new CA (every kubeconfig, node and \
             ServiceAccount token must then be created again)",
};

/// The CA of serving certificates of agents, which only this server trusts.
pub(super) const AGENT_CA: Ca = Ca {
    stem: "agent-ca",
    name: "waypost-agent-ca",
    remedy: "put the original file back, or remove agent-ca.key and agent-ca.crt to start with a new CA for agents (then remove \
             node/serving.crt in the data directory of every node and restart it)",
};

pub(super) const SIGNING_KEY_REMEDY: &str = "put the original file back, or remove it to start with a new key (ServiceAccount \
                                  tokens signed so far are then refused)";
pub(super) const LEAF_REMEDY: &str = "remove this file; the next start creates it again";

fn authority(dir: &Path, ca: &Ca, now: Timestamp) -> Result<Authority, PkiError> {
    let Ca { stem, name, remedy } = *ca;
    let (key_path, cert_path) = (dir.join(format!("{stem}.key")), dir.join(format!("{stem}.crt")));
    if !key_path.exists() && cert_path.exists() {
        let why = format!("the key of this CA, {}, is missing", key_path.display());
        return Err(PkiError::Damaged { path: cert_path, why, remedy });
    }
    let key = key_or_new(&key_path, remedy)?;
    let damaged = |why: String| PkiError::Damaged { path: cert_path.clone(), why, remedy };
    if let Some(certificate) = certificate(&cert_path, remedy)? {
        if !certificate.is_for(&key) {
            return Err(damaged(format!("it belongs to another key than {stem}.key")));
        }
        if !certificate.is_ca_named(name) {
            return Err(damaged("it is not a CA of this program".to_owned()));
        }
        if certificate.remaining(now) >= RENEW_AUTHORITY_BEFORE {
            return Ok(Authority::new(name, key, certificate));
        }
        tracing::warn!(file = %cert_path.display(), "renew CA certificate with the same key: it expires soon");
    }
    let certificate = certs::certify_authority(name, &key, now)?;
    files::write_private(&cert_path, certificate.pem().as_bytes())?;
    Ok(Authority::new(name, key, certificate))
}

/// A key with its certificate.
pub(super) struct Leaf {
    pub(super) key: KeyPair,
    pub(super) certificate: Certificate,
}

impl Leaf {
    pub(super) fn pem(&self) -> &str {
        self.certificate.pem()
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { certificate_pem: self.certificate.pem().to_owned(), key_pem: self.key.serialize_pem() }
    }
}

/// A key and its certificate, renewed when needed.
pub(super) fn leaf(
    dir: &Path,
    stem: &str,
    authority: &Authority,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<Leaf, PkiError> {
    let cert_path = dir.join(format!("{stem}.crt"));
    let key = key_or_new(&dir.join(format!("{stem}.key")), LEAF_REMEDY)?;
    if let Some(certificate) = certificate(&cert_path, LEAF_REMEDY)? {
        let problem = if !certificate.is_for(&key) || !authority.certified(&certificate) {
            Some("it does not match its key or the CA")
        } else if !purpose.is_served_by(&certificate) {
            Some("a name is missing")
        } else if certificate.remaining(now) < RENEW_BEFORE || certificate.starts_after(now) {
            Some("it expires within 30 days or is not valid yet")
        } else {
            None
        };
        let Some(problem) = problem else { return Ok(Leaf { key, certificate }) };
        tracing::info!(file = %cert_path.display(), reason = problem, "renew certificate");
    }
    let certificate = authority.certify(purpose, &key, i64::MAX, now)?;
    files::write_private(&cert_path, certificate.pem().as_bytes())?;
    Ok(Leaf { key, certificate })
}

/// The key in a file, created if missing.
pub(super) fn key_or_new(path: &Path, remedy: &'static str) -> Result<KeyPair, PkiError> {
    if let Some(key) = key(path, remedy)? {
        return Ok(key);
    }
    let key = KeyPair::generate()?;
    files::write_private(path, key.serialize_pem().as_bytes())?;
    Ok(key)
}

/// The key in a file, if there is one.
pub(super) fn key(path: &Path, remedy: &'static str) -> Result<Option<KeyPair>, PkiError> {
    let Some(pem) = files::read(path)? else { return Ok(None) };
    files::tighten(path)?;
    let damaged = |why: &str| PkiError::Damaged { path: path.into(), why: why.into(), remedy };
    let pem = std::str::from_utf8(&pem).map_err(|_| damaged("it is not a PEM file"))?;
    let key = KeyPair::from_pem(pem).map_err(|error| damaged(&format!("it holds no usable private key ({error})")))?;
    if key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
        Ok(Some(key))
    } else {
        Err(damaged("it is not a P-256 key"))
    }
}

pub(super) fn certificate(path: &Path, remedy: &'static str) -> Result<Option<Certificate>, PkiError> {
    let Some(pem) = files::read(path)? else { return Ok(None) };
    Certificate::parse(&pem).map(Some).map_err(|error| PkiError::Damaged {
        path: path.into(),
        why: error.to_string(),
        remedy,
    })
}
