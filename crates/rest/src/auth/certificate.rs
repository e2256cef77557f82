//! Client certificates: the common name is the user, each organization a group.
//!
//! In: a certificate whose chain the TLS handshake has verified. Out: its user. Expiry is checked again, because connections and
//! resumed sessions outlive handshakes.

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{CREDENTIAL_ID, User};
use crate::authz::node;

/// The group of nodes with a client certificate: they run proxy, DNS server and announcer besides the agent. The ClusterRole
/// `system:waypost:node` has the permissions for that.
const WAYPOST_NODES: &str = "system:waypost:nodes";

/// Why a certificate is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificateError {
    /// It is not X.509.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// It has expired.
    #[error("the client certificate has expired")]
    Expired,
}

/// The user of a certificate; `None` when it has no common name.
///
/// # Errors
/// When it cannot be read or has expired.
pub fn user(der: &[u8], now: Timestamp) -> Result<Option<User>, CertificateError> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| CertificateError::Unreadable)?;
    if parsed.validity().not_after.timestamp() < now.as_second() {
        return Err(CertificateError::Expired);
    }
    let subject = parsed.subject();
    let Some(name) = subject.iter_common_name().filter_map(|part| part.as_str().ok()).last() else { return Ok(None) };
    if name.is_empty() {
        return Ok(None);
    }
    let groups = subject.iter_organization().filter_map(|part| part.as_str().ok()).map(str::to_owned).collect();
    let credential = format!("X509SHA256={}", hex(digest(&SHA256, der).as_ref()));
    let extra = [(CREDENTIAL_ID.to_owned(), vec![credential])].into();
    let mut user = User { name: name.to_owned(), uid: String::new(), groups, extra };
    if node::name_of(&user).is_some() {
        user.add_group(WAYPOST_NODES);
    }
    Ok(Some(user))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::pki::scratch::Scratch;
    use crate::pki::{ServingNames, load_or_create};

    #[test]
    fn subject_becomes_user_until_it_expires() {
        let scratch = Scratch::new();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let pki = load_or_create(scratch.path(), &ServingNames::default(), now).unwrap();
        let issued = pki.issue_client("system:node:n1", "system:nodes", now).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let found = user(&der, now).unwrap().unwrap();
        assert_eq!(
            (found.name.as_str(), found.groups.as_slice()),
            ("system:node:n1", &["system:nodes".to_owned(), WAYPOST_NODES.to_owned()][..])
        );
        let id = &found.extra[CREDENTIAL_ID][0];
        assert!(id.strip_prefix("X509SHA256=").is_some_and(|hex| hex.len() == 64), "{id}");

        let later = Timestamp::from_second(1_800_000_000 + 366 * 86_400).unwrap();
        assert_eq!(user(&der, later), Err(CertificateError::Expired));
        assert_eq!(user(&der[..der.len() - 1], now), Err(CertificateError::Unreadable));
        assert_eq!(user(b"", now), Err(CertificateError::Unreadable));
    }

    #[test]
    fn a_certificate_without_a_common_name_has_no_user() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let made = params.self_signed(&key).unwrap();
        assert_eq!(user(made.der(), Timestamp::UNIX_EPOCH), Ok(None));
    }
}
