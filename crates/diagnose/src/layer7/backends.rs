//! Backends of routes: references that lead nowhere, with what was probably meant, and backends without ready endpoints.
//!
//! In: the references as written, and the targets that `routing` found for them. Out: findings.

use std::sync::Arc;

use api::view::gateway_api::{BackendRef, Filter, FilterKind, ObjectRef};
use api::view::service::TargetPort;
use routing::model::{InvalidTarget, RouteId, RouteKind, Rule, ServiceTarget, Target};

use super::grants::{self, Reference};
use super::objects::Route;
use super::rules::describe;
use super::{Layer7, code, kubectl, name_of, namespace_of, near};
use crate::finding::{Finding, Level};
use crate::model::Service;
use crate::words::list;

/// Where a reference is: of which route, and in which rule.
#[derive(Clone, Copy)]
struct Place<'a> {
    id: &'a RouteId,
    rule: &'a str,
    level: Level,
}

impl Layer7<'_> {
    /// The findings for the backends of a route.
    pub(super) fn backend_findings(&self, id: &RouteId, route: &Route) -> Vec<Finding> {
        let mut found = Vec::new();
        for (index, rule) in route.rules().into_iter().enumerate() {
            let Some((targets, mirrors)) = self.targets(id, index) else { continue };
            let what = describe(index, rule.name);
            // With another backend that works, only a share of the requests fails.
            let works = |(backend, target): (&BackendRef, &Target)| {
                backend.weight > 0 && matches!(target, Target::Service(target) if self.has_ready(target))
            };
            let any_works = rule.backends.iter().zip(&targets).any(works);
            let level = if any_works { Level::Degraded } else { Level::NotWorking };
            let place = Place { id, rule: &what, level };
            for (backend, target) in rule.backends.iter().zip(&targets) {
                found.extend(self.target_finding(place, &backend.object, target, backend.weight > 0));
            }
            let place = Place { level: Level::Degraded, ..place };
            for (reference, target) in mirrored(rule.filters).zip(&mirrors) {
                found.extend(self.target_finding(place, reference, target, true));
            }
        }
        found
    }

    /// The targets of the backends and of the mirrors of a rule; none for a rule that was dropped.
    pub(super) fn targets(&self, id: &RouteId, rule: usize) -> Option<(Vec<Target>, Vec<Target>)> {
        let state = self.cluster.route(id)?;
        let of = |backends: &[routing::model::Backend]| backends.iter().map(|one| one.target.clone()).collect();
        if let Some(stream) = state.stream.as_ref().filter(|_| rule == 0) {
            return Some((of(&stream.backends), Vec::new()));
        }
        let rule = state.rules.iter().find(|one| one.index == rule)?;
        Some((of(&rule.backends), rule.mirrors.clone()))
    }

    fn target_finding(
        &self,
        place: Place<'_>,
        reference: &ObjectRef,
        target: &Target,
        is_used: bool,
    ) -> Option<Finding> {
        let finding = match target {
            Target::Service(target) if is_used => self.not_ready(target, place.rule)?,
            Target::Service(_) => return None,
            Target::Invalid(why) => self.invalid(place, reference, *why),
        };
        Some(finding.at(place.level))
    }

    fn invalid(&self, place: Place<'_>, reference: &ObjectRef, why: InvalidTarget) -> Finding {
        let Place { id, rule, .. } = place;
        let key = reference.key(namespace_of(&id.key));
        let edit = kubectl("edit", id.kind.name(), &id.key);
        match why {
            InvalidTarget::RefNotPermitted => {
                let reference = Reference { from: id.kind.name(), own: &id.key, to: "Service", key: &key };
                grants::missing(reference, rule)
            }
            InvalidTarget::BackendNotFound => match self.snapshot.services().get(&*key) {
                None => self.service_missing(rule, &key, edit),
                Some(service) => port_missing(rule, service, reference.port, id.kind, edit),
            },
            InvalidTarget::InvalidKind => {
                let (group, kind) = (reference.group(), reference.kind_or("Service"));
                let what = match (group, kind) {
                    ("", "Service") => format!("Service {key} is of type ExternalName"),
                    ("", kind) => format!("backend {key} is a {kind}"),
                    (group, kind) => format!("backend {key} is a {kind} of {group}"),
                };
                let message = format!("{rule}: {what}; only Services with endpoints can be backends");
                Finding::new(code::BACKEND_NOT_SUPPORTED, message, edit)
            }
            InvalidTarget::UnsupportedProtocol => {
                let ports = self.snapshot.services().get(&*key).map(Service::ports).unwrap_or_default();
                let port = ports.iter().find(|port| Some(port.port) == reference.port);
                let app = port.and_then(|port| port.app_protocol.as_deref()).unwrap_or_default();
                let needs_tls = matches!(app.to_ascii_lowercase().as_str(), "https" | "grpcs" | "kubernetes.io/wss");
                let hint = if needs_tls { "; it needs a BackendTLSPolicy, which says whom to trust" } else { "" };
                let number = reference.port.unwrap_or_default();
                let kind = id.kind.name();
                let message = format!(
                    "{rule}: port {number} of Service {key} has appProtocol {app}, which {kind}s cannot use{hint}"
                );
                Finding::new(code::BACKEND_NOT_SUPPORTED, message, kubectl("edit", "service", &key))
            }
            InvalidTarget::InvalidTlsPolicy => {
                let names = self.policies_of(&key);
                let policy = names.first().copied().unwrap_or(&*key);
                let message = format!(
                    "{rule}: the BackendTLSPolicy {policy} of Service {key} is not valid, and without it \
                     nothing is sent"
                );
                let fix = format!("waypost explain backendtlspolicy/{} -n {}", name_of(policy), namespace_of(policy));
                Finding::new(code::TLS_POLICY_INVALID, message, fix)
            }
        }
    }

    /// A Service that does not exist, with the one that was probably meant.
    pub(super) fn service_missing(&self, place: &str, key: &str, fix: String) -> Finding {
        let services = || self.snapshot.services().keys().map(String::as_str);
        let hint = self.memo.hint("Service", key, || match near::key(key, services()) {
            Some(near) if namespace_of(near) == namespace_of(key) => format!("; did you mean {}?", name_of(near)),
            Some(near) => format!("; there is {near}"),
            None => String::new(),
        });
        Finding::new(code::BACKEND_MISSING, format!("{place}: Service {key} does not exist{hint}"), fix)
    }

    /// A backend without ready endpoint, with the cause that the diagnosis of its Service names.
    pub(super) fn not_ready(&self, target: &ServiceTarget, place: &str) -> Option<Finding> {
        if self.has_ready(target) {
            return None;
        }
        let key = &*target.service;
        let verdict = self.memo.cause(&target.service, || {
            let diagnosis = self.snapshot.diagnosis(key).filter(|_| self.has_pods)?;
            // The address does not count: the gateway sends to endpoints.
            let endpoints = diagnosis.endpoints?.err();
            diagnosis.pods.err().or(endpoints)
        });
        let message = format!("{place}: port {} of Service {key} has no ready endpoint", target.port);
        Some(match verdict {
            None => {
                let fix = format!("waypost explain svc/{} -n {}", name_of(key), namespace_of(key));
                Finding::new(code::BACKEND_NOT_READY, message, fix)
            }
            Some(verdict) => {
                let message = format!("{message}: {}", verdict.message);
                Finding { evidence: verdict.evidence, ..Finding::new(code::BACKEND_NOT_READY, message, verdict.fix) }
            }
        })
    }

    /// The BackendTLSPolicies with a Service as their target.
    pub(super) fn policies_of(&self, service: &str) -> Vec<&str> {
        let names = |key: &str, target: &api::view::gateway_api::PolicyTarget| {
            &*target.kind == "Service"
                && namespace_of(key) == namespace_of(service)
                && *target.name == *name_of(service)
        };
        let all = self.objects.policies.iter();
        all.filter(|(key, one)| one.spec.target_refs.iter().any(|target| names(key, target)))
            .map(|(key, _)| &**key)
            .collect()
    }

    /// The findings for the backends of an Ingress that have no ready endpoint.
    pub(super) fn ingress_backends(&self, key: &str) -> Vec<Finding> {
        let finding = |(host, rule): &(Option<Arc<str>>, Arc<Rule>)| {
            let place = format!("host {}", host.as_deref().unwrap_or("*"));
            let used = rule.backends.iter().filter(|backend| backend.weight > 0);
            used.filter_map(|backend| match &backend.target {
                Target::Service(target) => self.not_ready(target, &place),
                Target::Invalid(_) => None,
            })
            .collect::<Vec<_>>()
        };
        self.rules_of_ingress(key).iter().flat_map(finding).collect()
    }
}

/// The references of the mirrors among filters.
pub(super) fn mirrored(filters: &[Filter]) -> impl Iterator<Item = &ObjectRef> {
    let mirrors = filters.iter().filter(|filter| filter.kind == FilterKind::RequestMirror);
    mirrors.filter_map(|filter| filter.request_mirror.as_ref()).map(|mirror| &mirror.backend_ref.object)
}

fn port_missing(place: &str, service: &Service, number: Option<u16>, kind: RouteKind, fix: String) -> Finding {
    let key = service.metadata.key();
    let transport = if kind == RouteKind::Udp { "UDP" } else { "TCP" };
    let ports = || service.ports().iter();
    let each: Vec<String> = ports()
        .map(|port| {
            let name = if port.name.is_empty() { String::new() } else { format!(" ({})", port.name) };
            format!("{}/{}{name}", port.port, port.protocol.map_or("?", api::view::Protocol::as_str))
        })
        .collect();
    let Some(number) = number else {
        let message =
            format!("{place}: the backendRef of Service {key} names no port; it has {}", list(&each, near::NAMED));
        return Finding::new(code::BACKEND_PORT_MISSING, message, fix);
    };
    let of_pods = ports().find(|port| port.target() == TargetPort::Number(number));
    let hint = match of_pods {
        Some(port) => format!("; {number} is the port of the Pods, that of the Service is {}", port.port),
        None => String::new(),
    };
    let message =
        format!("{place}: Service {key} has no {transport} port {number}; it has {}{hint}", list(&each, near::NAMED));
    Finding::new(code::BACKEND_PORT_MISSING, message, fix)
}
