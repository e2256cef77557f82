//! The content of a certificate request (PKCS #10).
//!
//! In: its PEM. Out: the names in it and the key it is for, once its signature proves possession of that key.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use crate::value::ValueExt as _;

/// The content of a request.
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
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// Whether there are names of other kinds, such as directory names.
    pub other_names: bool,
    /// The public key (SubjectPublicKeyInfo, DER).
    pub public_key: Vec<u8>,
}

impl Request {
    /// Parses the request of an object.
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
                    GeneralName::RFC822Name(name) => out.emails.push((*name).to_owned()),
                    GeneralName::URI(name) => out.uris.push((*name).to_owned()),
                    _ => out.other_names = true,
                }
            }
        }
        out
    }

    /// The subject and the other names on one line, for people who decide about the request.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = self.organizations.iter().map(|name| format!("O={name}")).collect();
        parts.push(format!("CN={}", self.common_name));
        parts.extend(self.dns.iter().map(|name| format!("DNS:{name}")));
        parts.extend(self.ips.iter().map(|ip| format!("IP:{ip}")));
        parts.extend(self.emails.iter().map(|name| format!("email:{name}")));
        parts.extend(self.uris.iter().map(|name| format!("URI:{name}")));
        if self.other_names {
            parts.push("other names".to_owned());
        }
        // The requester chose every byte of this: control characters must not reach a terminal.
        parts.join(", ").chars().map(|char| if char.is_control() { '?' } else { char }).collect()
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
