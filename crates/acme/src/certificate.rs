//! Keys, requests and certificates.
//!
//! In: hosts, chains of a CA. Out: requests, pairs of key and chain, what a certificate says. Each certificate has a key of its own (ECDSA P-256).

use std::collections::BTreeSet;

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::Error;

/// A private key and its certificate with the chain, as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The private key.
    pub key: String,
    /// The chain, the certificate of the key first.
    pub chain: String,
}

/// What a certificate says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Its hosts, in lower case.
    pub hosts: BTreeSet<Box<str>>,
    /// The start of its validity.
    pub from: Timestamp,
    /// The end of its validity.
    pub until: Timestamp,
}

/// A request for a certificate, with its key.
pub(crate) struct Request {
    key: KeyPair,
    pub(crate) der: Vec<u8>,
}

/// A request for these hosts, with a new key.
pub(crate) fn request(hosts: &BTreeSet<Box<str>>) -> Result<Request, Error> {
    let (params, key) = prepare(hosts)?;
    let request = params.serialize_request(&key).map_err(invalid)?;
    Ok(Request { der: request.der().to_vec(), key })
}

impl Request {
    /// The identity with the chain of the CA, whose first certificate must be that of the key.
    pub(crate) fn identity(self, chain: String) -> Result<Identity, Error> {
        let leaf = first(chain.as_bytes());
        let is_for_key = leaf.as_ref().is_some_and(|leaf| {
            let parsed = X509Certificate::from_der(leaf);
            parsed.is_ok_and(|(_, parsed)| parsed.public_key().subject_public_key.data == self.key.der_bytes())
        });
        if !is_for_key {
            return Err(Error::Certificate("the certificate of the CA is not for the key of the request".to_owned()));
        }
        Ok(Identity { key: self.key.serialize_pem(), chain })
    }
}

/// A self-signed certificate for these hosts.
///
/// # Errors
/// When a host cannot be in a certificate.
pub fn temporary(hosts: &BTreeSet<Box<str>>) -> Result<Identity, Error> {
    let (params, key) = prepare(hosts)?;
    let certificate = params.self_signed(&key).map_err(invalid)?;
    Ok(Identity { key: key.serialize_pem(), chain: certificate.pem() })
}

fn prepare(hosts: &BTreeSet<Box<str>>) -> Result<(CertificateParams, KeyPair), Error> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).map_err(invalid)?;
    params.distinguished_name = DistinguishedName::new();
    Ok((params, KeyPair::generate().map_err(invalid)?))
}

/// Reads the first certificate of a chain.
#[must_use]
pub fn read(chain: &[u8]) -> Option<Contents> {
    let leaf = first(chain)?;
    let (_, parsed) = X509Certificate::from_der(&leaf).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(host) => Some(host.to_ascii_lowercase().into()),
        _ => None,
    };
    let hosts = names.value.general_names.iter().filter_map(host).collect();
    let at = |seconds| Timestamp::from_second(seconds).ok();
    let validity = parsed.validity();
    Some(Contents { hosts, from: at(validity.not_before.timestamp())?, until: at(validity.not_after.timestamp())? })
}

fn first(chain: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(chain).next()?.ok()
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn invalid(error: rcgen::Error) -> Error {
    Error::Certificate(format!("cannot make a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_for_the_key_and_the_hosts_of_the_request() {
        let hosts = BTreeSet::from(["a.example".into(), "b.example".into()]);
        let own = temporary(&hosts).expect("a certificate");
        let contents = read(own.chain.as_bytes()).expect("a certificate");
        assert_eq!(contents.hosts, hosts);
        assert!(contents.from < contents.until);
        let request = request(&hosts).expect("a request");
        assert!(request.identity(own.chain).is_err(), "of another key");
        assert_eq!(read(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), None);
        assert_eq!(read(b""), None);
        assert!(
            temporary(&BTreeSet::from(["ä.example".into()])).is_err(),
            "a host in another script is not a DNS name"
        );
    }
}
