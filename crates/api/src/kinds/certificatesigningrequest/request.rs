//! What a certificate request (PKCS #10) asks for.
//!
//! In: its PEM. Out: the names in it and the key it is for, once its signature shows that whoever asks has that key.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use crate::value::ValueExt as _;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// Whether there are names of other kinds, such as e-mail addresses.
    pub other_names: bool,
    /// The public key (SubjectPublicKeyInfo, DER).
    pub public_key: Vec<u8>,
}

impl Request {
    /// What an object asks for.
    ///
    /// # Errors
    /// What is wrong with its request.
    pub fn of(object: &Value) -> Result<Self, String> {
        let pem = STANDARD.decode(object.text("spec.request")).map_err(|error| error.to_string())?;
        Self::parse(&pem)
    }

    /// Reads the PEM of a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let block = Pem::iter_from_buffer(pem).next();
        let block = block.and_then(Result::ok).filter(|block| block.label == "CERTIFICATE REQUEST");
        let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        let (rest, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|error| format!("the certificate request cannot be read ({error})"))?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data".to_owned());
        }
        request.verify_signature().map_err(|_| "the signature of the certificate request does not fit its key")?;
        Ok(Self::read(&request))
    }

    fn read(request: &X509CertificationRequest<'_>) -> Self {
        let info = &request.certification_request_info;
        let mut out = Self { public_key: info.subject_pki.raw.to_vec(), ..Self::default() };
        let text = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str().ok().map(str::to_owned);
        out.common_name = info.subject.iter_common_name().filter_map(text).last().unwrap_or_default();
        out.organizations = info.subject.iter_organization().filter_map(text).collect();
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(name) => out.dns.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => match address(bytes) {
                        Some(ip) => out.ips.push(ip),
                        None => out.other_names = true,
                    },
                    _ => out.other_names = true,
                }
            }
        }
        out
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
