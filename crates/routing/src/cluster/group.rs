//! A Gateway with its ListenerSets: which sets are attached, which listeners are conflicted, and the states and the
//! configuration that follow.
//!
//! A Gateway may have thousands of sets. What is compared for all of them on each change is small ([`Circumstances`]);
//! states and configurations are made again only where it differs.

use std::sync::Arc;

use api::view::annotations::PROXY_PROTOCOL_FROM;
use api::view::gateway_api::{Gateway, ListenerSet};

use super::graph::{Input, Owner, Reader};
use super::objects::{Map, name_of, namespace_of};
use super::state::{GatewayState, ListenerSetState, ListenerState, Verdict};
use crate::attach::{ParentView, allows_set};
use crate::gateways::{self, Addresses};
use crate::listeners::conflicts::{self, Conflict, Slot};
use crate::listeners::overlap;
use crate::listeners::validity::{Listeners, Validity};
use crate::model::{GatewayConfig, ListenerConfig, ListenerId, ListenerProtocol};
use crate::traffic;

/// A Gateway with its ListenerSets.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) gateway: Member<GatewayState>,
    /// In the order of precedence, also those that are not allowed.
    pub(super) sets: Vec<Arc<str>>,
    pub(super) config: Option<Arc<GatewayConfig>>,
}

/// An object of a group, with what was derived from it.
#[derive(Clone, Debug)]
pub(super) struct Member<S> {
    pub(super) state: S,
    /// Its listeners that are served.
    pub(super) configs: Vec<Arc<ListenerConfig>>,
}

/// A ListenerSet of a group.
#[derive(Clone, Debug)]
pub(super) struct SetEntry {
    circumstances: Circumstances,
    pub(super) member: Member<ListenerSetState>,
}

/// All that the state of a member depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Circumstances {
    gateway: Arc<str>,
    generation: i64,
    is_allowed: bool,
    listeners: Arc<Listeners>,
    conflicts: Vec<Option<Conflict>>,
    overlaps: Vec<bool>,
    parent: Parent,
}

/// What the listeners of a group depend on of the Gateway as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parent {
    is_accepted: bool,
    is_programmed: bool,
}

/// What was read for a group.
pub(super) struct Facts<'a> {
    pub(super) key: Arc<str>,
    pub(super) gateway: &'a Gateway,
    pub(super) class_accepted: bool,
    pub(super) listeners: Arc<Listeners>,
    pub(super) addresses: Addresses,
    pub(super) sets: Vec<SetFacts<'a>>,
}

/// What was read for a set of a group.
pub(super) struct SetFacts<'a> {
    pub(super) key: &'a Arc<str>,
    pub(super) set: &'a ListenerSet,
    pub(super) is_allowed: bool,
    pub(super) listeners: Arc<Listeners>,
}

impl SetEntry {
    /// `namespace/name` of its Gateway.
    pub(super) fn gateway(&self) -> &Arc<str> {
        &self.circumstances.gateway
    }
}

/// Reads all that a group depends on; none unless the Gateway exists and is ours.
pub(super) fn read<'a>(
    reader: &Reader<'a>,
    key: &Arc<str>,
    class_accepted: impl Fn(&str) -> Option<bool>,
    listeners: &Map<Owner, Arc<Listeners>>,
) -> Option<Facts<'a>> {
    let gateway = reader.gateway(key)?;
    let class = &gateway.spec.gateway_class_name;
    reader.note(Input::Accepted((&**class).into()));
    let class_accepted = class_accepted(class)?;
    reader.note(Input::Listeners(Arc::clone(key)));
    let own = Arc::clone(listeners.get(&Owner::Gateway(Arc::clone(key)))?);
    let namespace = namespace_of(key);
    let service = format!("{namespace}/{}", super::service_name(name_of(key)));
    let addresses = gateways::addresses(&gateway.spec.addresses, reader.service_for_addresses(&service).map(|s| &**s));
    let objects = reader.objects;
    let sets = objects.sets_of.get(key).into_iter().flatten().filter_map(|key| {
        let set = objects.sets.get(key)?;
        let labels = |namespace: &str| reader.namespace(namespace);
        let is_allowed = allows_set(&gateway.spec.allowed_listeners, namespace, namespace_of(key), labels);
        let listeners = Arc::clone(listeners.get(&Owner::Set(Arc::clone(key)))?);
        Some(SetFacts { key, set, is_allowed, listeners })
    });
    let mut sets: Vec<_> = sets.collect();
    sets.sort_by(|one, other| age(one).cmp(&age(other)));
    Some(Facts { key: Arc::clone(key), gateway, class_accepted, listeners: own, addresses, sets })
}

fn age<'a>(set: &'a SetFacts<'_>) -> (&'a str, &'a str) {
    (&set.set.metadata.creation_timestamp, set.key)
}

/// A group, and those of its sets whose state has to be replaced.
pub(super) struct Judged {
    pub(super) group: Group,
    pub(super) sets: Vec<(Arc<str>, SetEntry)>,
}

/// Judges a group. A set whose circumstances are as before keeps its state.
pub(super) fn judge(facts: &Facts<'_>, old: &Map<Arc<str>, SetEntry>, counts: impl Fn(&ListenerId) -> usize) -> Judged {
    let (conflicts, overlaps) = coexistence(facts);
    let accepted = accepted(facts, &conflicts[0]);
    let programmed = programmed(&accepted, &facts.addresses);
    let parent = Parent { is_accepted: accepted.holds(), is_programmed: programmed.holds() };
    let circumstances = |place: usize, generation, is_allowed, listeners: &Arc<Listeners>| Circumstances {
        gateway: Arc::clone(&facts.key),
        generation,
        is_allowed,
        listeners: Arc::clone(listeners),
        conflicts: conflicts[place].clone(),
        overlaps: overlaps[place].clone(),
        parent,
    };
    let mut replaced = Vec::new();
    let mut configs = Vec::new();
    let mut attached_sets = 0;
    let mut count = |entry: &SetEntry| {
        attached_sets += usize::from(entry.member.state.accepted.holds());
        configs.extend(entry.member.configs.iter().cloned());
    };
    for (place, set) in facts.sets.iter().enumerate() {
        let now = circumstances(place + 1, set.set.metadata.generation, set.is_allowed, &set.listeners);
        if let Some(entry) = old.get(set.key).filter(|entry| entry.circumstances == now) {
            count(entry);
            continue;
        }
        let entry = SetEntry { member: set_member(set.key, &now, &counts), circumstances: now };
        count(&entry);
        replaced.push((Arc::clone(set.key), entry));
    }
    let own = circumstances(0, facts.gateway.metadata.generation, true, &facts.listeners);
    let gateway = gateway_member(facts, &own, accepted, programmed, attached_sets, &counts);
    let config = parent.is_accepted.then(|| {
        let listeners = gateway.configs.iter().cloned().chain(configs).collect();
        Arc::new(config(facts, listeners))
    });
    let sets = facts.sets.iter().map(|set| Arc::clone(set.key)).collect();
    Judged { group: Group { gateway, sets, config }, sets: replaced }
}

/// Condition `Accepted` of the Gateway. The listeners of its sets do not count.
fn accepted(facts: &Facts<'_>, conflicts: &[Option<Conflict>]) -> Verdict {
    if let Some(refusal) = gateways::refusal(&facts.gateway.spec, facts.class_accepted) {
        return refusal;
    }
    let own = facts.listeners.list.iter().zip(conflicts);
    let good = own.filter(|(listener, conflict)| listener.is_good() && conflict.is_none()).count();
    if good == 0 {
        return Verdict::bad("ListenersNotValid", "No listener is valid; see their conditions");
    }
    all_or_some(good, facts.listeners.list.len())
}

/// Conflicts and overlaps, of the Gateway and of each of its sets.
fn coexistence(facts: &Facts<'_>) -> (Vec<Vec<Option<Conflict>>>, Vec<Vec<bool>>) {
    let sets = facts.sets.iter().map(|set| if set.is_allowed { &set.listeners.list[..] } else { &[] });
    let owners: Vec<&[Validity]> = std::iter::once(&facts.listeners.list[..]).chain(sets).collect();
    let slots: Vec<Vec<Option<Slot>>> = owners.iter().map(|list| list.iter().map(slot).collect()).collect();
    let conflicts = conflicts::judge(&slots);
    let mut overlaps: Vec<Vec<bool>> = owners.iter().map(|list| vec![false; list.len()]).collect();
    let mut places = Vec::new();
    let mut hosts = Vec::new();
    for (owner, list) in owners.iter().enumerate() {
        for (place, listener) in list.iter().enumerate() {
            if listener.protocol == Some(ListenerProtocol::Https) && conflicts[owner][place].is_none() {
                places.push((owner, place));
                hosts.push((listener.port, listener.hostname.clone()));
            }
        }
    }
    for ((owner, place), overlap) in places.into_iter().zip(overlap::judge(&hosts)) {
        overlaps[owner][place] = overlap;
    }
    (conflicts, overlaps)
}

fn slot(listener: &Validity) -> Option<Slot> {
    let protocol = listener.protocol?;
    Some(Slot { protocol, port: listener.port, hostname: listener.hostname.clone() })
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

fn gateway_member(
    facts: &Facts<'_>,
    circumstances: &Circumstances,
    accepted: Verdict,
    programmed: Verdict,
    attached_sets: usize,
    counts: impl Fn(&ListenerId) -> usize,
) -> Member<GatewayState> {
    let (listeners, configs) = listeners(None, circumstances, counts);
    let unresolved = listeners.iter().find(|listener| !listener.resolved_refs.holds());
    let resolved_refs = match (&facts.listeners.client_certificate, unresolved) {
        (Err(problem), _) => problem.clone(),
        (Ok(_), Some(listener)) => {
            let message = format!("References of listener \"{}\" are not resolved", listener.id.name);
            Verdict::bad("ListenersNotResolved", message)
        }
        (Ok(_), None) => Verdict::good("ResolvedRefs", "All references are resolved"),
    };
    let frontend = facts.gateway.spec.tls.frontend.as_ref();
    let is_insecure = frontend.is_some_and(|frontend| {
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        let mut all = ports.chain([&frontend.default]).filter_map(|tls| tls.validation.as_ref());
        all.any(api::view::gateway_api::CertificateValidation::allows_insecure_fallback)
    });
    let message = "Clients without a valid certificate are accepted: mode AllowInsecureFallback";
    let state = GatewayState {
        generation: circumstances.generation,
        accepted,
        programmed,
        resolved_refs,
        addresses_assigned: facts.addresses.assigned.clone(),
        insecure_frontend: is_insecure.then(|| Verdict::good("ConfigurationChanged", message)),
        addresses: facts.addresses.list.clone(),
        listeners,
        attached_sets,
    };
    Member { state, configs }
}

fn set_member(
    key: &Arc<str>,
    circumstances: &Circumstances,
    counts: impl Fn(&ListenerId) -> usize,
) -> Member<ListenerSetState> {
    let Circumstances { gateway, generation, parent, .. } = circumstances;
    let not_allowed = || Verdict::bad("NotAllowed", "The Gateway does not allow ListenerSets of this namespace");
    if !circumstances.is_allowed {
        let state = ListenerSetState {
            generation: *generation,
            gateway: Arc::clone(gateway),
            accepted: not_allowed(),
            programmed: not_allowed(),
            listeners: Vec::new(),
        };
        return Member { state, configs: Vec::new() };
    }
    let (listeners, configs) = listeners(Some(key), circumstances, counts);
    let list = circumstances.listeners.list.iter().zip(&circumstances.conflicts);
    let good = list.filter(|(listener, conflict)| listener.is_good() && conflict.is_none()).count();
    let none_good = || Verdict::bad("ListenersNotValid", "No listener is valid; see their conditions");
    let accepted = if !parent.is_accepted {
        Verdict::bad("ParentNotAccepted", "The Gateway is not accepted")
    } else if good == 0 {
        none_good()
    } else {
        all_or_some(good, listeners.len())
    };
    let programmed = if !parent.is_programmed && (good > 0 || !parent.is_accepted) {
        Verdict::bad("ParentNotProgrammed", "The Gateway is not programmed")
    } else if good == 0 {
        none_good()
    } else {
        Verdict::good("Programmed", "Valid listeners are programmed")
    };
    let gateway = Arc::clone(gateway);
    Member { state: ListenerSetState { generation: *generation, gateway, accepted, programmed, listeners }, configs }
}

/// States of the listeners of a member, and the configurations of those that are served.
fn listeners(
    set: Option<&Arc<str>>,
    circumstances: &Circumstances,
    counts: impl Fn(&ListenerId) -> usize,
) -> (Vec<ListenerState>, Vec<Arc<ListenerConfig>>) {
    let mut states = Vec::new();
    let mut configs = Vec::new();
    for (place, listener) in circumstances.listeners.list.iter().enumerate() {
        let id = ListenerId {
            gateway: Arc::clone(&circumstances.gateway),
            set: set.cloned(),
            name: Arc::clone(&listener.name),
        };
        let conflict = circumstances.conflicts[place];
        let is_served = listener.is_good() && conflict.is_none() && circumstances.parent.is_accepted;
        if let Some(protocol) = listener.protocol.filter(|_| is_served) {
            configs.push(Arc::new(ListenerConfig {
                id: id.clone(),
                port: listener.port,
                protocol,
                hostname: listener.hostname.clone(),
                certificates: listener.certificates.clone(),
                client_validation: listener.client_validation.clone(),
            }));
        }
        let attached = counts(&id);
        let is_overlapping = circumstances.overlaps[place];
        states.push(listener_state(id, listener, conflict, is_overlapping, circumstances.parent, attached));
    }
    (states, configs)
}

fn listener_state(
    id: ListenerId,
    listener: &Validity,
    conflict: Option<Conflict>,
    is_overlapping: bool,
    parent: Parent,
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
            None if !parent.is_accepted => Verdict::bad("Invalid", "The Gateway is not accepted"),
            None if !parent.is_programmed => Verdict::bad("Pending", "The Gateway is not programmed"),
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
    let service = super::service_name(name_of(&facts.key));
    GatewayConfig {
        key: Arc::clone(&facts.key),
        service: format!("{}/{service}", namespace_of(&facts.key)).into(),
        listeners,
        client_certificate: facts.listeners.client_certificate.clone().ok().flatten(),
        proxies: facts.gateway.metadata.annotation(PROXY_PROTOCOL_FROM).map(Into::into),
    }
}

/// What routes see of the Gateway and of each of its sets.
pub(super) fn views<'a>(
    reader: &'a Reader<'_>,
    facts: &'a Facts<'_>,
) -> impl Iterator<Item = (Owner, ParentView)> + 'a {
    let view = |is_allowed, listeners: &Listeners, layers| ParentView {
        gateway: Arc::clone(&facts.key),
        is_allowed,
        listeners: Arc::clone(&listeners.views),
        layers,
    };
    let layers = traffic::of_gateway(reader, &facts.key, &facts.listeners.views);
    let own = (Owner::Gateway(Arc::clone(&facts.key)), view(true, &facts.listeners, layers.clone()));
    let set = move |set: &SetFacts<'_>| {
        let layers = traffic::of_set(reader, set.key, &set.listeners.views, layers.as_deref());
        (Owner::Set(Arc::clone(set.key)), view(set.is_allowed, &set.listeners, layers))
    };
    std::iter::once(own).chain(facts.sets.iter().map(set))
}
