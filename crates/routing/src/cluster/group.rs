//! The states of a Gateway and of its ListenerSets, and the configuration that follows.
//!
//! A Gateway may have thousands of sets, so the state of each depends on little beside itself: on the conflicts of its
//! listeners, and on whether the Gateway is accepted and programmed.

use std::sync::{Arc, OnceLock};

use api::view::annotations::PROXY_PROTOCOL_FROM;
use api::view::gateway_api::Gateway;

use super::claim::Claim;
use super::graph::{Input, Reader};
use super::objects::{name_of, namespace_of};
use super::state::{GatewayState, ListenerSetState, ListenerState, Verdict};
use crate::gateways::{self, Addresses};
use crate::listeners::conflicts::Conflict;
use crate::listeners::validity::Validity;
use crate::model::{GatewayConfig, ListenerConfig, ListenerId};

/// A Gateway.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) state: GatewayState,
    /// Its configuration without the listeners of its sets; none unless it is accepted.
    pub(super) own: Option<Arc<GatewayConfig>>,
    /// The whole configuration, made when it is read.
    pub(super) config: OnceLock<Arc<GatewayConfig>>,
}

/// A ListenerSet of a group.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) state: ListenerSetState,
    /// Its listeners that are served.
    pub(super) configs: Vec<Arc<ListenerConfig>>,
}

/// What listeners depend on of the Gateway as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    is_accepted: bool,
    is_programmed: bool,
}

impl Group {
    pub(super) fn standing(&self) -> Standing {
        standing(&self.state.accepted, &self.state.programmed)
    }

    /// The whole configuration, with these listeners of its sets.
    pub(super) fn config<'a>(
        &self,
        sets: impl Iterator<Item = &'a Arc<ListenerConfig>>,
    ) -> Option<&Arc<GatewayConfig>> {
        let own = self.own.as_ref()?;
        let whole = || {
            let listeners = own.listeners.iter().cloned().chain(sets.cloned()).collect();
            Arc::new(GatewayConfig { listeners, ..GatewayConfig::clone(own) })
        };
        Some(self.config.get_or_init(whole))
    }
}

fn standing(accepted: &Verdict, programmed: &Verdict) -> Standing {
    Standing { is_accepted: accepted.holds(), is_programmed: programmed.holds() }
}

/// The listeners of a group: conflicts, and which of them overlap with others; in the order of those that count.
pub(super) type Coexisting = (Vec<Option<Conflict>>, Vec<bool>);

/// What was read for a Gateway.
pub(super) struct Facts<'a> {
    claim: &'a Claim,
    gateway: &'a Gateway,
    class_accepted: bool,
    addresses: Addresses,
}

/// All that the listeners of an object depend on.
struct Circumstances<'a> {
    claim: &'a Claim,
    set: Option<&'a Arc<str>>,
    coexisting: Coexisting,
    standing: Standing,
    /// Those that were served before; equal ones are shared.
    served: &'a [Arc<ListenerConfig>],
}

/// Reads all that a Gateway depends on beside its claim; none unless it exists.
pub(super) fn read<'a>(
    reader: &Reader<'a>,
    claim: &'a Claim,
    class_accepted: impl Fn(&str) -> bool,
) -> Option<Facts<'a>> {
    let key = &claim.gateway;
    let gateway = reader.gateway(key)?;
    let class = &gateway.spec.gateway_class_name;
    reader.note(Input::Accepted((&**class).into()));
    let service = format!("{}/{}", namespace_of(key), super::service_name(name_of(key)));
    let addresses = gateways::addresses(&gateway.spec.addresses, reader.service_for_addresses(&service).map(|s| &**s));
    Some(Facts { claim, gateway, class_accepted: class_accepted(class), addresses })
}

/// Judges a Gateway. The number of its sets is that of before: it is counted apart.
pub(super) fn judge(
    facts: &Facts<'_>,
    coexisting: Coexisting,
    old: Option<&Group>,
    counts: impl Fn(&ListenerId) -> usize,
) -> Group {
    let Facts { claim, gateway, addresses, .. } = facts;
    let accepted = accepted(facts, &coexisting.0);
    let programmed = programmed(&accepted, addresses);
    let standing = standing(&accepted, &programmed);
    let served = old.and_then(|old| old.own.as_ref()).map_or(&[][..], |own| &own.listeners);
    let circumstances = Circumstances { claim, set: None, coexisting, standing, served };
    let (listeners, configs) = listeners(&circumstances, counts);
    let state = GatewayState {
        generation: claim.generation,
        accepted,
        programmed,
        resolved_refs: resolved_refs(claim, &listeners),
        addresses_assigned: addresses.assigned.clone(),
        insecure_frontend: insecure_frontend(gateway),
        addresses: addresses.list.clone(),
        listeners,
        attached_sets: old.map_or(0, |old| old.state.attached_sets),
    };
    let own = standing.is_accepted.then(|| Arc::new(config(facts, configs)));
    Group { state, own, config: OnceLock::new() }
}

/// Condition `Accepted` of the Gateway. The listeners of its sets do not count.
fn accepted(facts: &Facts<'_>, conflicts: &[Option<Conflict>]) -> Verdict {
    if let Some(refusal) = gateways::refusal(&facts.gateway.spec, facts.class_accepted) {
        return refusal;
    }
    let own = facts.claim.list().iter().zip(conflicts);
    let good = own.filter(|(listener, conflict)| listener.is_good() && conflict.is_none()).count();
    if good == 0 {
        return Verdict::bad("ListenersNotValid", "No listener is valid; see their conditions");
    }
    all_or_some(good, facts.claim.list().len())
}

fn all_or_some(good: usize, all: usize) -> Verdict {
    if good == all {
        return Verdict::good("Accepted", "All listeners are valid");
    }
    Verdict::good("ListenersNotValid", format!("{} of {all} listeners are not valid; see their conditions", all - good))
}

fn programmed(accepted: &Verdict, addresses: &Addresses) -> Verdict {
    if !accepted.holds() {
        return Verdict::bad("Invalid", accepted.message.clone());
    }
    let good = || Verdict::good("Programmed", "Listeners are programmed at all addresses");
    addresses.problem.clone().unwrap_or_else(good)
}

fn resolved_refs(claim: &Claim, listeners: &[ListenerState]) -> Verdict {
    if let Err(problem) = &claim.listeners.client_certificate {
        return problem.clone();
    }
    match listeners.iter().find(|listener| !listener.resolved_refs.holds()) {
        Some(listener) => {
            let message = format!("References of listener \"{}\" are not resolved", listener.id.name);
            Verdict::bad("ListenersNotResolved", message)
        }
        None => Verdict::good("ResolvedRefs", "All references are resolved"),
    }
}

fn insecure_frontend(gateway: &Gateway) -> Option<Verdict> {
    let frontend = gateway.spec.tls.frontend.as_ref()?;
    let ports = frontend.per_port.iter().map(|port| &port.tls);
    let mut all = ports.chain([&frontend.default]).filter_map(|tls| tls.validation.as_ref());
    let is_insecure = all.any(api::view::gateway_api::CertificateValidation::allows_insecure_fallback);
    let message = "Clients without a valid certificate are accepted: mode AllowInsecureFallback";
    is_insecure.then(|| Verdict::good("ConfigurationChanged", message))
}

/// Judges a ListenerSet.
pub(super) fn set(
    key: &Arc<str>,
    claim: &Claim,
    coexisting: Coexisting,
    standing: Standing,
    old: Option<&Set>,
    counts: impl Fn(&ListenerId) -> usize,
) -> Set {
    let (generation, gateway) = (claim.generation, Arc::clone(&claim.gateway));
    if !claim.is_allowed {
        let not_allowed = || Verdict::bad("NotAllowed", "The Gateway does not allow ListenerSets of this namespace");
        let (accepted, programmed) = (not_allowed(), not_allowed());
        let state = ListenerSetState { generation, gateway, accepted, programmed, listeners: Vec::new() };
        return Set { state, configs: Vec::new() };
    }
    let list = claim.list().iter().zip(&coexisting.0);
    let good = list.filter(|(listener, conflict)| listener.is_good() && conflict.is_none()).count();
    let none_good = || Verdict::bad("ListenersNotValid", "No listener is valid; see their conditions");
    let accepted = if !standing.is_accepted {
        Verdict::bad("ParentNotAccepted", "The Gateway is not accepted")
    } else if good == 0 {
        none_good()
    } else {
        all_or_some(good, claim.list().len())
    };
    let programmed = if !standing.is_programmed && (good > 0 || !standing.is_accepted) {
        Verdict::bad("ParentNotProgrammed", "The Gateway is not programmed")
    } else if good == 0 {
        none_good()
    } else {
        Verdict::good("Programmed", "Valid listeners are programmed")
    };
    let served = old.map_or(&[][..], |old| &old.configs);
    let circumstances = Circumstances { claim, set: Some(key), coexisting, standing, served };
    let (listeners, configs) = listeners(&circumstances, counts);
    Set { state: ListenerSetState { generation, gateway, accepted, programmed, listeners }, configs }
}

/// States of the listeners of an object, and the configurations of those that are served.
fn listeners(
    circumstances: &Circumstances<'_>,
    counts: impl Fn(&ListenerId) -> usize,
) -> (Vec<ListenerState>, Vec<Arc<ListenerConfig>>) {
    let Circumstances { claim, set, coexisting: (conflicts, overlaps), standing, served } = circumstances;
    let mut states = Vec::new();
    let mut configs = Vec::new();
    for ((listener, conflict), is_overlapping) in claim.list().iter().zip(conflicts).zip(overlaps) {
        let id =
            ListenerId { gateway: Arc::clone(&claim.gateway), set: set.cloned(), name: Arc::clone(&listener.name) };
        let is_served = listener.is_good() && conflict.is_none() && standing.is_accepted;
        if let Some(protocol) = listener.protocol.filter(|_| is_served) {
            let config = ListenerConfig {
                id: id.clone(),
                port: listener.port,
                protocol,
                hostname: listener.hostname.clone(),
                certificates: listener.certificates.clone(),
                client_validation: listener.client_validation.clone(),
            };
            let same = served.iter().find(|served| ***served == config).cloned();
            configs.push(same.unwrap_or_else(|| Arc::new(config)));
        }
        let attached = counts(&id);
        states.push(listener_state(id, listener, *conflict, *is_overlapping, *standing, attached));
    }
    (states, configs)
}

fn listener_state(
    id: ListenerId,
    listener: &Validity,
    conflict: Option<Conflict>,
    is_overlapping: bool,
    standing: Standing,
    attached_routes: usize,
) -> ListenerState {
    let conflict = conflict.map(|conflict| (conflict.reason(), conflict_message(conflict, listener)));
    let bad = |(reason, message): &(&'static str, String)| Verdict::bad(reason, message.clone());
    let accepted = conflict.as_ref().map_or_else(|| listener.accepted.clone(), bad);
    let programmed = match &conflict {
        Some(conflict) => bad(conflict),
        None if !listener.accepted.holds() => Verdict::bad("Invalid", listener.accepted.message.clone()),
        None => match &listener.obstacle {
            Some(obstacle) => Verdict::bad("Invalid", obstacle.clone()),
            None if !standing.is_accepted => Verdict::bad("Invalid", "The Gateway is not accepted"),
            None if !standing.is_programmed => Verdict::bad("Pending", "The Gateway is not programmed"),
            None => Verdict::good("Programmed", "The listener is programmed"),
        },
    };
    let conflicted = match conflict {
        Some((reason, message)) => Verdict::good(reason, message),
        None => Verdict::bad("NoConflicts", "No other listener is in conflict"),
    };
    let overlapping =
        "The hostname overlaps with that of another HTTPS listener of the port: clients may reuse connections";
    ListenerState {
        id,
        port: listener.port,
        supported_kinds: listener.kinds.clone(),
        attached_routes,
        accepted,
        programmed,
        resolved_refs: listener.resolved_refs.clone(),
        conflicted,
        overlapping_tls: is_overlapping.then(|| Verdict::good("OverlappingHostnames", overlapping)),
    }
}

fn conflict_message(conflict: Conflict, listener: &Validity) -> String {
    let port = listener.port;
    match (conflict, &listener.hostname) {
        (Conflict::Protocol, _) => format!("Another listener of port {port} is in conflict with this protocol"),
        (Conflict::Hostname, Some(host)) => format!("Another listener of port {port} has hostname \"{host}\""),
        (Conflict::Hostname, None) => format!("Another listener of port {port} has no hostname, either"),
    }
}

fn config(facts: &Facts<'_>, listeners: Vec<Arc<ListenerConfig>>) -> GatewayConfig {
    let key = &facts.claim.gateway;
    let service = super::service_name(name_of(key));
    GatewayConfig {
        key: Arc::clone(key),
        service: format!("{}/{service}", namespace_of(key)).into(),
        listeners,
        client_certificate: facts.claim.listeners.client_certificate.clone().ok().flatten(),
        proxies: facts.gateway.metadata.annotation(PROXY_PROTOCOL_FROM).map(Into::into),
    }
}
