//! Lists keys and certificates: `waypost certs list`.
//!
//! In: the directory, which is only read, and the time. Out: one [`Entry`] for each certificate and token key, whether a server runs or not.

use std::path::Path;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::load::{self, LEAF_REMEDY, SIGNING_KEY_REMEDY};
use super::{DAY, PkiError, certs, files, signing_keys};
use crate::auth::service_account::subject_public_key_info;

/// Certificates that expire within this many days cause a warning.
pub const WARN_DAYS: i64 = 30;

/// The role of a certificate or key in a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// In use.
    Current,
    /// Replaced, and still accepted.
    Previous,
    /// Created by an interrupted rotation.
    Next,
}

impl Role {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Previous => "previous",
            Self::Next => "next",
        }
    }
}

/// A certificate, or a key that has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name in `waypost certs rotate`, or that of its files.
    pub name: &'static str,
    /// The file.
    pub file: String,
    /// Its role in a rotation.
    pub role: Role,
    /// The subject; empty for keys.
    pub subject: String,
    /// The issuer; empty for keys.
    pub issuer: String,
    /// SHA-256, in hexadecimal digits: of the certificate, or of the public key (SubjectPublicKeyInfo) where there is none.
    pub fingerprint: String,
    /// The start of its validity; `None` for former token keys.
    pub not_before: Option<Timestamp>,
    /// The end of its validity.
    pub not_after: Option<Timestamp>,
    /// When a former token key was replaced.
    pub retired: Option<Timestamp>,
}

impl Entry {
    /// Whole days until it expires, negative afterwards; `None` without expiry.
    #[must_use]
    pub fn days_left(&self, now: Timestamp) -> Option<i64> {
        self.not_after.map(|end| end.as_second().saturating_sub(now.as_second()).div_euclid(DAY))
    }

    /// Whether it expires within [`WARN_DAYS`].
    #[must_use]
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        self.days_left(now).is_some_and(|days| days < WARN_DAYS)
    }
}

/// Name in `rotate`, file, role.
const CERTIFICATES: [(&str, &str, Role); 7] = [
    ("ca", "ca.crt", Role::Current),
    ("ca", "ca-previous.crt", Role::Previous),
    ("agent-ca", "agent-ca.crt", Role::Current),
    ("agent-ca", "agent-ca-previous.crt", Role::Previous),
    ("serving", "server.crt", Role::Current),
    ("serving", "agents.crt", Role::Current),
    ("admin", "admin.crt", Role::Current),
];

/// All entries of the directory.
///
/// # Errors
/// When the directory does not exist, or a file in it cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Entry>, PkiError> {
    let _lock = files::lock(dir)?;
    let mut entries = Vec::new();
    for (name, file, role) in CERTIFICATES {
        let path = dir.join(file);
        let Some(pem) = files::read(&path)? else { continue };
        let damaged = || PkiError::Damaged {
            path: path.clone(),
            why: "it holds no certificate".to_owned(),
            remedy: "start `waypost server`, which reports the remedy",
        };
        entries.push(certificate(name, file, role, &pem).ok_or_else(damaged)?);
    }
    for (name, file) in [("ca", "ca-next.key"), ("agent-ca", "agent-ca-next.key")] {
        if let Some(key) = load::key(&dir.join(file), LEAF_REMEDY)? {
            entries.push(public_key(name, file, Role::Next, key.public_key_raw(), None));
        }
    }
    if let Some(key) = load::key(&dir.join(signing_keys::KEY), SIGNING_KEY_REMEDY)? {
        entries.push(public_key("signing", signing_keys::KEY, Role::Current, key.public_key_raw(), None));
    }
    for key in signing_keys::retired(dir)? {
        let retired = Some(key.retired);
        entries.push(public_key("signing", signing_keys::PREVIOUS, Role::Previous, &key.public, retired));
    }
    Ok(entries)
}

fn certificate(name: &'static str, file: &str, role: Role, pem: &[u8]) -> Option<Entry> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some(Entry {
        name,
        file: file.to_owned(),
        role,
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        fingerprint: certs::hex(digest(&SHA256, &der).as_ref()),
        not_before: at(parsed.validity().not_before),
        not_after: at(parsed.validity().not_after),
        retired: None,
    })
}

fn public_key(name: &'static str, file: &str, role: Role, point: &[u8], retired: Option<Timestamp>) -> Entry {
    Entry {
        name,
        file: file.to_owned(),
        role,
        subject: String::new(),
        issuer: String::new(),
        fingerprint: certs::hex(digest(&SHA256, &subject_public_key_info(point)).as_ref()),
        not_before: None,
        not_after: None,
        retired,
    }
}
