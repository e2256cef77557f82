//! What is checked of a request, its conditions and its certificate.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::pem::Pem;

use super::request::Request;
use super::{APPROVAL, APPROVED, DENIED, FAILED};
use crate::field::{Errors, Path};
use crate::names;
use crate::value::ValueExt as _;

/// What a certificate may be for, sorted.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// The signer of old requests that named none.
const LEGACY: &str = "kubernetes.io/legacy-unknown";
const SHORTEST: i64 = 600;
const DOMAIN_MAX: usize = 253;

pub(super) fn spec(object: &Value, errors: &mut Errors) {
    let spec = Path::Root("spec");
    if let Err(why) = Request::of(object) {
        errors.invalid(&spec.child("request"), object.text("spec.request"), &why);
    }
    let usages = object.texts("spec.usages");
    let list = spec.child("usages");
    if usages.is_empty() {
        errors.required(&list, "");
    }
    for (index, usage) in usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
        errors.not_supported(&list.index(index), *usage, USAGES);
    }
    let mut seen = HashSet::new();
    for (index, usage) in usages.iter().enumerate() {
        if !seen.insert(*usage) {
            errors.duplicate(&list.index(index), *usage);
        }
    }
    signer_name(&spec.child("signerName"), object.text("spec.signerName"), errors);
    if let Some(seconds) = object.at("spec.expirationSeconds").as_i64().filter(|seconds| *seconds < SHORTEST) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&spec.child("expirationSeconds"), seconds, why);
    }
}

fn signer_name(path: &Path<'_>, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name == LEGACY {
        return errors.invalid(path, name, "the legacy signerName is not allowed via this API version");
    }
    let Some((domain, signer)) = name.split_once('/').filter(|(_, signer)| !signer.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, why);
    };
    if domain.len() > DOMAIN_MAX {
        errors.too_long(path, DOMAIN_MAX);
    }
    let mut check = |of: &str, label: &str, wrong: Vec<String>| {
        for why in wrong {
            errors.invalid(path, of, &format!("validating label {label:?}: {why}"));
        }
    };
    for label in domain.split('.') {
        check(domain, label, names::dns_label(label));
    }
    for label in signer.split('.') {
        check(signer, label, names::dns_subdomain(label));
    }
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
}

pub(super) fn status(object: &Value, errors: &mut Errors) {
    let list = Path::Root("status.conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in object.items("status.conditions").iter().enumerate() {
        let path = list.index(index);
        let (kind, status) = (condition.text("type"), condition.text("status"));
        if kind.is_empty() {
            errors.required(&path.child("type"), "");
        }
        let allowed: &[&str] =
            if [APPROVED, DENIED, FAILED].contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(&path.child("status"), "");
        } else if !allowed.contains(&status) {
            errors.not_supported(&path.child("status"), status, allowed);
        }
        let opposite = match kind {
            APPROVED => DENIED,
            DENIED => APPROVED,
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(&opposite) {
            errors.invalid(&path.child("type"), kind, "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        seen.push(kind);
    }
    if let Some(why) = certificate_problem(object.text("status.certificate")) {
        errors.invalid(&Path::Root("status.certificate"), "<certificate data>", why);
    }
}

fn certificate_problem(encoded: &str) -> Option<&'static str> {
    if encoded.is_empty() {
        return None;
    }
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    let blocks: Vec<Pem> = Pem::iter_from_buffer(&pem).filter_map(Result::ok).collect();
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block");
    }
    let is_certificate = |block: &Pem| block.label == "CERTIFICATE" && block.parse_x509().is_ok();
    (!blocks.iter().all(is_certificate)).then_some("only CERTIFICATE PEM blocks are allowed")
}

/// What a change may not do, whatever part it is of; `part` is empty for the object itself.
pub(super) fn change(part: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let conditions = Path::Root("status.conditions");
    let of = |object: &Value, kind: &str| -> Vec<Value> {
        object.items("status.conditions").iter().filter(|condition| condition.text("type") == kind).cloned().collect()
    };
    for kind in [APPROVED, DENIED, FAILED] {
        let (now, before) = (of(new, kind), of(old, kind));
        let fixed = part != APPROVAL && kind != FAILED;
        let verb = if now.len() < before.len() {
            "remove"
        } else if fixed && now.len() > before.len() {
            "add"
        } else if fixed && now != before {
            "modify"
        } else {
            continue;
        };
        errors.forbidden(&conditions, &format!("updates may not {verb} a condition of type {kind:?}"));
    }
    let (now, before) = (new.text("status.certificate"), old.text("status.certificate"));
    if now != before {
        let path = Path::Root("status.certificate");
        if part != "status" {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}
