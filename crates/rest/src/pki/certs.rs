//! Certificates: creation and inspection.
//!
//! In: keys, a purpose, the time. Out: certificates, and their properties (key, issuer, names, validity). Pure: file access is in
//! [`super`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{DAY, PkiError, ServingNames};

const AUTHORITY_LIFETIME: i64 = 3650 * DAY;
/// Certificates are backdated by this many seconds, because clocks differ and jump.
const BACKDATE: i64 = 3600;
/// A machine without a clock starts in 1970. Lifetimes are counted from here at least, or everything would have expired when the
/// clock is set. (1 January 2026.)
const EARLIEST_START: i64 = 1_767_225_600;
/// The last second in a certificate (in the year 9987): later ones cannot be encoded.
const LAST_SECOND: i64 = 253_000_000_000;

/// The purpose of a certificate.
pub(super) enum Purpose<'a> {
    /// A server with these names.
    Server { ips: BTreeSet<IpAddr>, dns: BTreeSet<String> },
    /// A client: a user in a group.
    Client { name: &'a str, organization: &'a str },
}

/// A parsed certificate.
pub(super) struct Certificate {
    pem: String,
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
    common_name: String,
    is_ca: bool,
    not_before: i64,
    not_after: i64,
    ips: BTreeSet<IpAddr>,
    dns: BTreeSet<String>,
}

/// A CA: its key and its certificate.
pub(super) struct Authority {
    name: &'static str,
    key: KeyPair,
    certificate: Certificate,
    fingerprint: String,
    key_id: String,
}

// === impl Purpose ===

impl<'a> Purpose<'a> {
    /// A server with those of the names that are valid in a certificate.
    pub(super) fn server(names: &ServingNames) -> Self {
        let mut dns = BTreeSet::new();
        for name in &names.dns {
            match DnsName::try_from(name.to_ascii_lowercase()) {
                Ok(name) => _ = dns.insert(name.as_ref().to_owned()),
                Err(_) => tracing::warn!(name, "omit invalid DNS name from the serving certificate"),
            }
        }
        Self::Server { ips: names.ips.iter().copied().filter(|ip| !ip.is_unspecified()).collect(), dns }
    }

    /// Whether a certificate has all the names.
    pub(super) fn is_served_by(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Server { ips, dns } => ips.is_subset(&certificate.ips) && dns.is_subset(&certificate.dns),
            Self::Client { name, .. } => certificate.common_name == *name,
        }
    }

    fn params(&self) -> Result<CertificateParams, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        match self {
            Self::Server { ips, dns } => {
                params.distinguished_name.push(DnType::CommonName, "waypost-server");
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params.subject_alt_names = ips.iter().map(|ip| SanType::IpAddress(*ip)).collect();
                for name in dns {
                    params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
                }
            }
            Self::Client { name, organization } => {
                params.distinguished_name.push(DnType::OrganizationName, *organization);
                params.distinguished_name.push(DnType::CommonName, *name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// Why a file is not a certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error("it holds no certificate ({0})")]
    NoCertificate(rustls::pki_types::pem::Error),
    #[error("it is not a PEM file")]
    NoPem,
    #[error("its certificate cannot be read ({0})")]
    Certificate(x509_parser::error::X509Error),
}

// === impl Certificate ===

impl Certificate {
    /// Parses a PEM file.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, ParseError> {
        let der = CertificateDer::from_pem_slice(pem).map_err(ParseError::NoCertificate)?;
        let text = std::str::from_utf8(pem).map_err(|_| ParseError::NoPem)?.to_owned();
        Self::from_parts(text, &der).map_err(ParseError::Certificate)
    }

    fn made(certificate: &rcgen::Certificate) -> Result<Self, PkiError> {
        Self::from_parts(certificate.pem(), certificate.der())
            .map_err(|_| PkiError::Make(rcgen::Error::CouldNotParseCertificate))
    }

    fn from_parts(pem: String, der: &CertificateDer<'static>) -> Result<Self, x509_parser::error::X509Error> {
        let (_, parsed) = X509Certificate::from_der(der)?;
        let (mut ips, mut dns) = (BTreeSet::new(), BTreeSet::new());
        for name in parsed.subject_alternative_name()?.into_iter().flat_map(|ext| &ext.value.general_names) {
            match name {
                GeneralName::IPAddress(bytes) => ips.extend(ip_of(bytes)),
                GeneralName::DNSName(name) => _ = dns.insert(name.to_ascii_lowercase()),
                _ => {}
            }
        }
        let common_name = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).last();
        Ok(Self {
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            common_name: common_name.unwrap_or_default().to_owned(),
            is_ca: parsed.is_ca(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            ips,
            dns,
            pem,
            der: der.clone(),
        })
    }

    /// Parses a certificate from a handshake.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        Self::from_parts(String::new(), &CertificateDer::from(der.to_vec())).ok()
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The purpose of a server with this certificate.
    pub(super) fn serving_purpose(&self) -> Purpose<'static> {
        Purpose::Server { ips: self.ips.clone(), dns: self.dns.clone() }
    }

    /// Its SHA-256 fingerprint, in hexadecimal digits.
    pub(super) fn fingerprint(&self) -> String {
        hex(digest(&SHA256, &self.der).as_ref())
    }

    /// Whether both have the same key.
    pub(super) fn has_key_of(&self, other: &Self) -> bool {
        self.public_key == other.public_key
    }

    /// Whether it has all these names.
    pub(super) fn has_names(&self, dns: &str, ips: &[IpAddr]) -> bool {
        self.dns.contains(&dns.to_ascii_lowercase()) && ips.iter().all(|ip| self.ips.contains(ip))
    }

    /// Whether it has this key.
    pub(super) fn is_for(&self, key: &KeyPair) -> bool {
        self.public_key == key.public_key_raw()
    }

    /// Whether it is the CA of this name.
    pub(super) fn is_ca_named(&self, name: &str) -> bool {
        self.is_ca && self.common_name == name
    }

    /// Whether the key of another certificate, one of our CAs, signed it.
    pub(super) fn is_signed_by(&self, issuer: &Self) -> bool {
        self.verifies_with(&issuer.public_key)
    }

    fn verifies_with(&self, public_key: &[u8]) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else { return false };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key)
            .verify(parsed.tbs_certificate.as_ref(), &parsed.signature_value.data)
            .is_ok()
    }

    /// The remaining validity, in seconds.
    pub(super) fn remaining(&self, now: Timestamp) -> i64 {
        self.not_after.saturating_sub(now.as_second())
    }

    /// Whether it is not valid yet: the clock was set back.
    pub(super) fn starts_after(&self, now: Timestamp) -> bool {
        self.not_before > now.as_second()
    }
}

// === impl Authority ===

impl Authority {
    pub(super) fn new(name: &'static str, key: KeyPair, certificate: Certificate) -> Self {
        let (fingerprint, key_id) = (certificate.fingerprint(), key_ids(&certificate.der).0.unwrap_or_default());
        Self { name, key, certificate, fingerprint, key_id }
    }

    pub(super) fn pem(&self) -> &str {
        &self.certificate.pem
    }

    /// Its key, PEM.
    pub(super) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Its certificate's SHA-256 fingerprint.
    pub(super) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Its key identifier.
    pub(super) fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.certificate.der
    }

    /// Whether this CA signed a certificate.
    pub(super) fn certified(&self, certificate: &Certificate) -> bool {
        certificate.verifies_with(self.key.public_key_raw())
    }

    /// Signs a certificate for a purpose, for so many seconds but not beyond the validity of the CA.
    pub(super) fn certify(
        &self,
        purpose: &Purpose<'_>,
        key: &KeyPair,
        lifetime: i64,
        now: Timestamp,
    ) -> Result<Certificate, PkiError> {
        self.certify_params(purpose.params()?, key, lifetime, now)
    }

    /// Signs a certificate with these parameters.
    pub(super) fn certify_params(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        lifetime: i64,
        now: Timestamp,
    ) -> Result<Certificate, PkiError> {
        let end = now.as_second().max(EARLIEST_START).saturating_add(lifetime).min(self.certificate.not_after);
        set_validity(&mut params, now, end);
        let issuer_params = authority_params(self.name);
        let issuer = Issuer::from_params(&issuer_params, &self.key);
        Certificate::made(&params.signed_by(key, &issuer)?)
    }
}

/// The certificate of a CA.
pub(super) fn certify_authority(name: &str, key: &KeyPair, now: Timestamp) -> Result<Certificate, PkiError> {
    let mut params = authority_params(name);
    set_validity(&mut params, now, now.as_second().max(EARLIEST_START).saturating_add(AUTHORITY_LIFETIME));
    Certificate::made(&params.self_signed(key)?)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A renewed certificate has the key of the old one, so the serial number is not derived from the key.
fn set_validity(params: &mut CertificateParams, now: Timestamp, end: i64) {
    let mut serial = *uuid::Uuid::new_v4().as_bytes();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |second: i64| {
        epoch + std::time::Duration::from_secs(second.clamp(0, LAST_SECOND).try_into().unwrap_or_default())
    };
    params.not_before = at(now.as_second() - BACKDATE);
    params.not_after = at(end);
}

/// The subject and authority key identifiers of a certificate, in hexadecimal digits, if present.
pub(super) fn key_ids(der: &[u8]) -> (Option<String>, Option<String>) {
    let (mut own, mut issuer) = (None, None);
    let Ok((_, parsed)) = X509Certificate::from_der(der) else { return (None, None) };
    for extension in parsed.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => own = Some(hex(id.0)),
            ParsedExtension::AuthorityKeyIdentifier(id) => issuer = id.key_identifier.as_ref().map(|id| hex(id.0)),
            _ => {}
        }
    }
    (own, issuer)
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
