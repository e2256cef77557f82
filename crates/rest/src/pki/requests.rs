//! Certificate signing, and CertificateSigningRequests.
//!
//! In: an approved subject, usages and a public key; or, on the other side, names and a key. Out: a certificate; or a request (PKCS #10).
//! Authorization happens elsewhere.

use std::net::IpAddr;
use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use jiff::Timestamp;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType, SubjectPublicKeyInfo,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certs::{Authority, Certificate, key_ids};
use super::{Identity, PkiError};

/// A signer.
#[derive(Clone)]
pub struct Signing {
    pub(super) authority: std::sync::Arc<Authority>,
}

impl Signing {
    /// Signs a request for these usages (as in CertificateSigningRequests), for at most so long.
    ///
    /// # Errors
    /// When the key type is not supported, or a usage is not one of clients and servers.
    pub fn sign(
        &self,
        request: &Request,
        usages: &[&str],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for organization in &request.organizations {
            params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
        }
        params.distinguished_name.push(DnType::CommonName, request.common_name.as_str());
        params.subject_alt_names = names(&request.dns, &request.ips)?;
        for usage in usages {
            match *usage {
                "client auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth),
                "server auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth),
                "digital signature" => params.key_usages.push(KeyUsagePurpose::DigitalSignature),
                "key encipherment" => params.key_usages.push(KeyUsagePurpose::KeyEncipherment),
                other => return Err(PkiError::Usage(other.to_owned())),
            }
        }
        params.use_authority_key_identifier_extension = true;
        let key = SubjectPublicKeyInfo::from_der(&request.public_key)?;
        let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        self.authority.certify_params(params, &key, seconds, now).map(|certificate| certificate.pem().to_owned())
    }
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signing").finish_non_exhaustive()
    }
}

fn names(dns: &[String], ips: &[IpAddr]) -> Result<Vec<SanType>, PkiError> {
    let mut out: Vec<SanType> = ips.iter().map(|ip| SanType::IpAddress(*ip)).collect();
    for name in dns {
        out.push(SanType::DnsName(name.as_str().try_into()?));
    }
    Ok(out)
}

/// A key to request a certificate for.
pub struct OwnKey(KeyPair);

impl OwnKey {
    /// A new key.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn generate() -> Result<Self, PkiError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// A stored key.
    ///
    /// # Errors
    /// When the text is not a key.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        Ok(Self(KeyPair::from_pem(pem)?))
    }

    /// The key, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A request (PKCS #10, PEM) for a certificate of this key, for a subject and names.
    ///
    /// # Errors
    /// When a name is not valid in a certificate.
    pub fn request(&self, name: &str, organization: &str, dns: &[String], ips: &[IpAddr]) -> Result<String, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = names(dns, ips)?;
        Ok(params.serialize_request(&self.0)?.pem()?)
    }

    /// This key with a certificate for it.
    ///
    /// # Errors
    /// When the certificate cannot be read, or is for another key.
    pub fn certified(&self, certificate_pem: &str) -> Result<Identity, PkiError> {
        use rcgen::PublicKeyData as _;
        let unfit = || PkiError::Tls(rustls::Error::General("the certificate does not fit the key".to_owned()));
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|_| unfit())?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| unfit())?;
        if parsed.public_key().subject_public_key.data.as_ref() != self.0.der_bytes() {
            return Err(unfit());
        }
        Ok(Identity { certificate_pem: certificate_pem.to_owned(), key_pem: self.pem() })
    }
}

/// Whether a certificate is valid for serving under a name and these addresses.
#[must_use]
pub fn serves(certificate_pem: &str, dns: &str, ips: &[IpAddr]) -> bool {
    Certificate::parse(certificate_pem.as_bytes()).is_ok_and(|certificate| certificate.has_names(dns, ips))
}

/// Whether a CA, one of ours, signed a certificate: the first one of the text, if it has several. False if it cannot be parsed.
#[must_use]
pub fn signed_by(certificate_pem: &str, ca_pem: &str) -> bool {
    let parsed = (Certificate::parse(certificate_pem.as_bytes()), Certificate::parse(ca_pem.as_bytes()));
    matches!(parsed, (Ok(certificate), Ok(ca)) if certificate.is_signed_by(&ca))
}

/// The authority key identifier of a certificate.
#[must_use]
pub fn issuer_key_id(certificate_pem: &str) -> Option<String> {
    let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
    key_ids(&der).1
}

/// The validity of a certificate; `None` when it cannot be parsed.
#[must_use]
pub fn validity(certificate_pem: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
    validity_of_der(&der)
}

/// The same of a certificate in DER.
#[must_use]
pub fn validity_of_der(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some((at(parsed.validity().not_before)?, at(parsed.validity().not_after)?))
}

/// The time until a certificate is renewed: when four fifths of its lifetime are over.
#[must_use]
pub fn until_renewal(certificate_pem: &str, now: Timestamp) -> Duration {
    let Some((start, end)) = validity(certificate_pem) else { return Duration::ZERO };
    let life = end.as_second().saturating_sub(start.as_second());
    let due = start.as_second().saturating_add(life / 5 * 4);
    Duration::from_secs(u64::try_from(due.saturating_sub(now.as_second())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::certificate;
    use crate::pki::scratch::Scratch;
    use crate::pki::{ServingNames, load_or_create};

    #[test]
    fn requests_are_signed() {
        let scratch = Scratch::new();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let pki = load_or_create(scratch.path(), &ServingNames::default(), now).unwrap();
        let key = OwnKey::generate().unwrap();
        let pem =
            key.request("system:node:n1", "system:nodes", &["n1".into()], &["192.0.2.7".parse().unwrap()]).unwrap();
        let request = Request::parse(pem.as_bytes()).unwrap();
        assert_eq!((request.common_name.as_str(), &request.dns[..]), ("system:node:n1", &["n1".to_owned()][..]));

        let usages = ["digital signature", "client auth"];
        let made = pki.signing().sign(&request, &usages, Duration::from_secs(1000), now).unwrap();
        let identity = key.certified(&made).unwrap();
        let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
        let user = certificate::user(&der, now).unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.join(" ")),
            ("system:node:n1", "system:nodes system:waypost:nodes".into())
        );
        let (start, end) = validity(&made).unwrap();
        assert_eq!((end.as_second(), start < now), (1_800_001_000, true));
        assert!(OwnKey::generate().unwrap().certified(&made).is_err(), "that is another key");
        assert!(pki.signing().sign(&request, &["cert sign"], Duration::from_secs(1000), now).is_err());
        // Certificates begin an hour early: 4600 s of life, of which 3680 s are four fifths.
        assert_eq!(until_renewal(&made, now), Duration::from_secs(80));
        assert_eq!(until_renewal(&made, end), Duration::ZERO);
    }
}
