//! Gateways and ListenerSets: class, addresses, and each listener with its certificates.
//!
//! In: the states of `routing`, the objects as written, and the Service of a Gateway. Out: findings.

use api::view::gateway_api::{Listener, ObjectRef};
use routing::cluster::{ListenerState, Verdict, service_name};

use super::attachment::{owner, owner_kind};
use super::grants::{self, Reference};
use super::objects::Kind;
use super::{Layer7, code, kubectl, name_of, namespace_of, near};
use crate::address;
use crate::finding::{Finding, Level};
use crate::words::list;

impl Layer7<'_> {
    /// The findings for a Gateway.
    pub(super) fn gateway_findings(&self, key: &str) -> Vec<Finding> {
        let Some(gateway) = self.objects.gateways.get(key) else { return Vec::new() };
        let class = &*gateway.spec.gateway_class_name;
        let Some(state) = self.cluster.gateway(key) else {
            return vec![match self.objects.classes.get(class) {
                None => self.class_missing(class, "spec.gatewayClassName:", key),
                Some(found) => {
                    let message =
                        format!("GatewayClass {class} is implemented by controller {}", found.spec.controller_name);
                    let fix = kubectl("describe", "gateway", key);
                    Finding::new(code::GATEWAY_CLASS_FOREIGN, message, fix).at(Level::Degraded)
                }
            }];
        };
        let mut found = Vec::new();
        if !state.accepted.holds() && state.accepted.reason != "ListenersNotValid" {
            let message = state.accepted.message.clone();
            let fix = match self.cluster.class(class).filter(|class| !class.accepted.holds()) {
                Some(_) => kubectl("edit", "gatewayclass", class),
                None => kubectl("edit", "gateway", key),
            };
            found.push(Finding::new(code::GATEWAY_NOT_ACCEPTED, message, fix));
        }
        if !state.resolved_refs.holds() && state.resolved_refs.reason != "ListenersNotResolved" {
            let reference = gateway.spec.tls.backend.client_certificate_ref.iter();
            found.push(self.certificate(Kind::Gateway, key, "spec.tls.backend", &state.resolved_refs, reference));
        }
        for (listener, state) in gateway.spec.listeners.iter().zip(&state.listeners) {
            found.extend(self.listener_findings(listener, state));
        }
        if found.is_empty() && !state.accepted.holds() {
            // Without listeners there is none to blame.
            let message = state.accepted.message.clone();
            found.push(Finding::new(code::GATEWAY_NOT_ACCEPTED, message, kubectl("edit", "gateway", key)));
        }
        if state.accepted.holds() && !state.programmed.holds() {
            found.push(self.not_programmed(key, &state.programmed));
        }
        found
    }

    /// The findings for a ListenerSet.
    pub(super) fn set_findings(&self, key: &str) -> Vec<Finding> {
        let Some(set) = self.objects.sets.get(key) else { return Vec::new() };
        let parent = set.spec.parent_ref.key(namespace_of(key));
        let Some(state) = self.cluster.listener_set(key) else {
            let Some(gateway) = self.objects.gateways.get(&*parent) else {
                return vec![self.parent_missing(Kind::ListenerSet, key, Kind::Gateway, &parent)];
            };
            let class = &*gateway.spec.gateway_class_name;
            return match self.objects.classes.get(class) {
                None => vec![self.class_missing(class, &format!("of Gateway {parent}"), &parent)],
                Some(_) => Vec::new(),
            };
        };
        if state.accepted.reason == "NotAllowed" {
            return vec![self.set_not_allowed(key)];
        }
        let listeners = set.spec.listeners.iter().zip(&state.listeners);
        let mut found: Vec<Finding> =
            listeners.flat_map(|(listener, state)| self.listener_findings(listener, state)).collect();
        if state.accepted.reason == "ParentNotAccepted" || state.programmed.reason == "ParentNotProgrammed" {
            let message = format!("Gateway {parent}, its parent, does not work: {}", state.programmed.message);
            let fix = format!("waypost explain gateway/{} -n {}", name_of(&parent), namespace_of(&parent));
            found.push(Finding::new(code::LISTENER_NOT_SERVED, message, fix));
        }
        found
    }

    /// A GatewayClass does not exist; `place` says who names it.
    pub(super) fn class_missing(&self, class: &str, place: &str, gateway: &str) -> Finding {
        let hint = near::hint(class, "GatewayClass", self.objects.classes.keys().map(|name| &**name));
        let message = format!("{place} GatewayClass {class} does not exist{hint}");
        Finding::new(code::GATEWAY_CLASS_MISSING, message, kubectl("edit", "gateway", gateway))
    }

    /// A ListenerSet that its Gateway does not allow.
    pub(super) fn set_not_allowed(&self, key: &str) -> Finding {
        let parent =
            self.objects.sets.get(key).map(|set| set.spec.parent_ref.key(namespace_of(key))).unwrap_or_default();
        let gateway = self.objects.gateways.get(&*parent);
        let from = gateway.and_then(|gateway| gateway.spec.allowed_listeners.namespaces.from.as_deref());
        let message = format!(
            "Gateway {parent} does not allow ListenerSets of namespace {}: spec.allowedListeners.namespaces.from is {}",
            namespace_of(key),
            from.unwrap_or("None")
        );
        Finding::new(code::LISTENER_SET_NOT_ALLOWED, message, kubectl("edit", "gateway", &parent))
    }

    /// A Gateway without address, with the cause that its Service names.
    fn not_programmed(&self, key: &str, programmed: &Verdict) -> Finding {
        let service = format!("{}/{}", namespace_of(key), service_name(name_of(key)));
        let cause = self.snapshot.services().get(&service).map(address::find);
        let (message, fix) = match cause {
            Some(Err(cause)) => (format!("{}: {}", programmed.message, cause.message), cause.fix),
            Some(Ok(_)) => (programmed.message.clone(), kubectl("describe", "service", &service)),
            None => {
                let message =
                    format!("Service {service}, which carries the addresses of the Gateway, does not exist yet");
                (message, kubectl("describe", "gateway", key))
            }
        };
        Finding::new(code::GATEWAY_NOT_PROGRAMMED, message, fix)
    }

    /// The findings for a listener.
    pub(super) fn listener_findings(&self, listener: &Listener, state: &ListenerState) -> Vec<Finding> {
        let (kind, key) = (owner_kind(&state.id), owner(&state.id));
        let place = format!("listener {}", listener.name);
        let edit = || kubectl("edit", kind.name(), key);
        if state.conflicted.holds() {
            let others = self.listeners_on(state);
            let message = format!(
                "{place}: {}; port {} has {}",
                state.conflicted.message,
                state.port,
                list(&others, near::NAMED)
            );
            return vec![Finding::new(code::LISTENER_CONFLICTED, message, edit())];
        }
        let mut found = Vec::new();
        let references = || listener.tls.iter().flat_map(|tls| &tls.certificate_refs);
        if !state.resolved_refs.holds() {
            found.push(match state.resolved_refs.reason {
                "InvalidRouteKinds" => {
                    Finding::new(code::LISTENER_INVALID, format!("{place}: {}", state.resolved_refs.message), edit())
                }
                _ => self.certificate(kind, key, &place, &state.resolved_refs, references()),
            });
        } else if let Some((_, message)) = self.objects.reported(kind, key, &listener.name) {
            // The controllers judge what only the shape of was seen here.
            found.push(Finding::new(code::CERTIFICATE_INVALID, format!("{place}: {message}"), edit()));
        }
        if !state.accepted.holds() {
            found.push(Finding::new(code::LISTENER_INVALID, format!("{place}: {}", state.accepted.message), edit()));
        }
        found
    }

    /// A reference to a Secret or a ConfigMap that leads nowhere.
    fn certificate<'r>(
        &self,
        kind: Kind,
        key: &str,
        place: &str,
        verdict: &Verdict,
        mut references: impl Iterator<Item = &'r ObjectRef>,
    ) -> Finding {
        let own = namespace_of(key);
        let unpermitted = references.find_map(|reference| {
            let target = reference.key(own);
            let to = reference.kind_or("Secret");
            let one = Reference { from: kind.name(), own: key, to, key: &target };
            (!self.permits(one)).then(|| grants::missing(one, place))
        });
        if let Some(finding) = unpermitted.filter(|_| verdict.reason == "RefNotPermitted") {
            return finding;
        }
        let missing = verdict.message.strip_suffix(" does not exist");
        let secret = missing.and_then(|rest| rest.strip_prefix("Secret \"")?.strip_suffix('"')?.split_once('/'));
        let fix = match secret {
            Some((namespace, name)) => {
                format!("kubectl create secret tls {name} -n {namespace} --cert=FILE --key=FILE")
            }
            None => kubectl("edit", kind.name(), key),
        };
        Finding::new(code::CERTIFICATE_INVALID, format!("{place}: {}", verdict.message), fix)
    }

    /// The other listeners on the port of one, of its Gateway and all ListenerSets of that.
    fn listeners_on(&self, state: &ListenerState) -> Vec<String> {
        let gateway = &state.id.gateway;
        let own = self.objects.gateways.get(gateway).map(|one| (Kind::Gateway, &**gateway, &one.spec.listeners));
        let sets = self
            .objects
            .sets
            .iter()
            .filter(|(key, _)| self.cluster.listener_set(key).is_some_and(|set| set.gateway == *gateway));
        let all = own.into_iter().chain(sets.map(|(key, set)| (Kind::ListenerSet, &**key, &set.spec.listeners)));
        let on_port = all.flat_map(|(kind, key, listeners)| listeners.iter().map(move |one| (kind, key, one)));
        let others = on_port.filter(|(_, key, one)| {
            one.port == state.port && (*one.name != *state.id.name || *key != &**owner(&state.id))
        });
        others
            .map(|(kind, key, one)| {
                let host = one.host().map(|host| format!(" for {host}")).unwrap_or_default();
                format!("listener {} of {} {key} ({}{host})", one.name, kind.name(), one.protocol)
            })
            .collect()
    }
}
