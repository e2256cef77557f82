//! BackendTLSPolicies: whether one holds, and which of them applies to a port of a Service.
//!
//! Of several policies for one target (Service and port) the older one applies, then the first by name; one for a port
//! before one for the whole Service. A policy that applies but is not valid makes its target unreachable: traffic never
//! goes on without TLS.

use std::cmp::Ordering;
use std::sync::Arc;

use api::view::Service;
use api::view::gateway_api::{BackendTlsPolicy, BackendTlsValidation, ObjectRef, PolicyTarget, SubjectAltName};

use crate::cluster::objects::namespace_of;
use crate::cluster::{CaState, Reader, Verdict};
use crate::model::{BackendTls, SubjectName};

/// Whether a policy holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PolicyVerdict {
    pub(crate) accepted: Verdict,
    pub(crate) resolved_refs: Verdict,
    /// What it says; none when connections must fail.
    pub(crate) tls: Option<Arc<BackendTls>>,
}

/// Judges a policy; none when it does not exist.
pub(crate) fn judge(reader: &Reader<'_>, key: &Arc<str>) -> Option<PolicyVerdict> {
    let policy = reader.policy(key)?;
    let validation = &policy.spec.validation;
    let (authorities, resolved_refs) = authorities(reader, key, validation);
    let has_authorities = !authorities.is_empty() || validation.ca_certificate_refs.is_empty();
    let invalid = invalid(validation);
    let names = subject_names(&validation.subject_alt_names);
    let tls = (has_authorities && invalid.is_none()).then(|| {
        Arc::new(BackendTls {
            hostname: validation.hostname.clone(),
            authorities,
            subject_alt_names: names,
            verify: true,
        })
    });
    let accepted = invalid.or_else(|| judge_targets(reader, key, policy)).unwrap_or_else(|| {
        if has_authorities {
            Verdict::good("Accepted", "The policy is accepted")
        } else {
            Verdict::bad("NoValidCACertificate", "No CA certificate is valid; see ResolvedRefs")
        }
    });
    Some(PolicyVerdict { accepted, resolved_refs, tls })
}

fn invalid(validation: &BackendTlsValidation) -> Option<Verdict> {
    let well_known = validation.well_known_ca_certificates.as_deref();
    let problem = match (well_known, validation.ca_certificate_refs.is_empty()) {
        (Some("System"), true) | (None, false) => None,
        (Some("System"), false) => Some("caCertificateRefs and wellKnownCACertificates exclude each other".to_owned()),
        (Some(other), _) => Some(format!("wellKnownCACertificates \"{other}\" is not known; use System")),
        (None, true) => Some("One of caCertificateRefs and wellKnownCACertificates is required".to_owned()),
    };
    let names = &validation.subject_alt_names;
    let unknown = names.iter().find(|name| subject_name(name).is_none());
    let unknown = unknown.map(|name| format!("subjectAltNames of type \"{}\" are not known", name.kind));
    problem.or(unknown).map(|message| Verdict::bad("Invalid", message))
}

fn subject_name(name: &SubjectAltName) -> Option<SubjectName> {
    match &*name.kind {
        "Hostname" => Some(SubjectName::Hostname(name.hostname.clone())),
        "URI" => Some(SubjectName::Uri(name.uri.clone())),
        _ => None,
    }
}

fn subject_names(names: &[SubjectAltName]) -> Vec<SubjectName> {
    names.iter().filter_map(subject_name).collect()
}

/// The ConfigMaps that are valid, and the condition `ResolvedRefs`.
fn authorities(reader: &Reader<'_>, key: &str, validation: &BackendTlsValidation) -> (Vec<Arc<str>>, Verdict) {
    let mut problem = None;
    let mut found = Vec::new();
    for reference in &validation.ca_certificate_refs {
        match authority(reader, namespace_of(key), reference) {
            Ok(key) => found.push(key),
            Err(bad) => {
                problem.get_or_insert(bad);
            }
        }
    }
    (found, problem.unwrap_or_else(|| Verdict::good("ResolvedRefs", "All references are resolved")))
}

/// References of policies are local: they have no namespace.
fn authority(reader: &Reader<'_>, own: &str, reference: &ObjectRef) -> Result<Arc<str>, Verdict> {
    let (group, kind) = (reference.group(), reference.kind_or("ConfigMap"));
    if !group.is_empty() || kind != "ConfigMap" {
        let message = format!("CA certificates cannot be in an object of kind {group}/{kind}; use a ConfigMap");
        return Err(Verdict::bad("InvalidKind", message));
    }
    let key: Arc<str> = format!("{own}/{}", reference.name).into();
    let bad = |why: &str| Verdict::bad("InvalidCACertificateRef", format!("ConfigMap \"{key}\" {why}"));
    match reader.config_map(&key) {
        Some(CaState::Bundle) => Ok(key),
        Some(CaState::Invalid(why)) => Err(bad(&format!("has no CA certificates: {why}"))),
        None => Err(bad("does not exist")),
    }
}

/// What is wrong with the targets: none exists, or other policies have all of them.
fn judge_targets(reader: &Reader<'_>, key: &Arc<str>, policy: &BackendTlsPolicy) -> Option<Verdict> {
    let targets = &policy.spec.target_refs;
    let exists = |target: &&PolicyTarget| {
        let service = target_key(key, target).and_then(|service| reader.service(&service));
        service.is_some_and(|service| has_section(service, target.section_name.as_deref()))
    };
    let existing: Vec<_> = targets.iter().filter(exists).collect();
    if existing.is_empty() {
        let names: Vec<_> = targets.iter().map(describe).collect();
        return Some(Verdict::bad("TargetNotFound", format!("Not found: {}", names.join(", "))));
    }
    let mut winner = None;
    for target in &existing {
        let service = target_key(key, target)?;
        let first = first_for(reader, &service, target.section_name.as_deref())?;
        if first == key {
            return None;
        }
        winner = Some(first);
    }
    let message = format!("Policy \"{}\" is older, or first by name, and has the same target", winner?);
    Some(Verdict::bad("Conflicted", message))
}

fn describe(target: &PolicyTarget) -> String {
    match &target.section_name {
        Some(section) => format!("{} \"{}\" port \"{section}\"", target.kind, target.name),
        None => format!("{} \"{}\"", target.kind, target.name),
    }
}

fn has_section(service: &Service, section: Option<&str>) -> bool {
    section.is_none_or(|section| service.spec.ports.iter().any(|port| *port.name == *section))
}

/// The Service that a target names.
fn target_key(policy: &str, target: &PolicyTarget) -> Option<String> {
    let is_service = target.group.is_empty() && &*target.kind == "Service";
    is_service.then(|| format!("{}/{}", namespace_of(policy), target.name))
}

/// The policy that applies to exactly this target.
fn first_for<'a>(reader: &Reader<'a>, service: &str, section: Option<&str>) -> Option<&'a Arc<str>> {
    let names_it = |(key, policy): &(&Arc<str>, &Arc<BackendTlsPolicy>)| {
        policy.spec.target_refs.iter().any(|target| {
            target.section_name.as_deref() == section && target_key(key, target).is_some_and(|key| key == service)
        })
    };
    let first = reader.policies_of(service).filter(names_it).min_by(|one, other| precedence(*one, *other))?;
    Some(first.0)
}

fn precedence(
    (one_key, one): (&Arc<str>, &Arc<BackendTlsPolicy>),
    (other_key, other): (&Arc<str>, &Arc<BackendTlsPolicy>),
) -> Ordering {
    let one_age = (&one.metadata.creation_timestamp, one_key);
    one_age.cmp(&(&other.metadata.creation_timestamp, other_key))
}

/// TLS towards a port of a Service: none without a policy.
///
/// # Errors
/// When a policy applies that is not valid.
pub(crate) fn tls_for(reader: &Reader<'_>, service: &str, port: &str) -> Result<Option<Arc<BackendTls>>, ()> {
    let own = Some(port).filter(|port| !port.is_empty());
    let first = own.and_then(|port| first_for(reader, service, Some(port)));
    let Some(first) = first.or_else(|| first_for(reader, service, None)) else { return Ok(None) };
    reader.verdict(first).and_then(|verdict| verdict.tls.clone()).map(Some).ok_or(())
}
