//! Which certificates objects request, and what prevents others.
//!
//! In: Gateways, ListenerSets and Ingresses with the annotation, and what the engines of layer-7 routing derived from them. Out: certificates, and
//! findings for the owners of the objects.
//!
//! An object gets certificates only for hosts of its namespace: at a Gateway as [`super::validation`] defines it, of Ingresses, which share one
//! address, as the engine does. Otherwise one tenant could get the certificate of another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::acme::{self, Challenge};
use api::gateway_api::watched::{GATEWAY, LISTENER_SET};
use api::kind::Kind;
use api::kinds::ingress::KIND as INGRESS;
use api::object;
use api::value::ValueExt as _;
use api::view::gateway_api::{Gateway, Listener, ListenerSet};
use api::view::{Ingress, ObjectMeta, Secret};
use routing::cluster::ListenerState;
use serde::de::DeserializeOwned;
use store::{Entry, Key, Table};

use super::SECRETS;
use super::validation::{Obstacle, Ports, valid};
use crate::cache::INGRESSES;
use crate::certificate_orders::{Requester, Wanted};
use crate::controller::View;
use crate::event::Reference;
use crate::objects::gateway_api::{GATEWAYS, LISTENER_SETS};
use crate::objects::{read, split};

/// Most hosts of one certificate, as of public CAs.
const MOST_HOSTS: usize = 100;
/// The most certificates of one namespace: what is wanted is looked at again after every change.
const MOST_OF_NAMESPACE: usize = 1000;
/// The most findings of one object.
const MOST_FINDINGS: usize = 20;
/// The object asks for something that is not done.
const REFUSED: &str = "CertificateRefused";
/// The validation would fail as things are.
const PENDING: &str = "CertificatePending";

/// What all objects request.
#[derive(Default)]
pub(super) struct Requests {
    /// Certificates; each Secret once.
    pub(super) wanted: Vec<Wanted>,
    /// What owners should know.
    pub(super) findings: Vec<Finding>,
    /// The place of each certificate, by its Secret.
    places: HashMap<String, usize>,
    /// How many certificates a namespace requests.
    counts: HashMap<Box<str>, usize>,
    /// By Gateway; none while it is not served.
    ports: HashMap<Arc<str>, Option<Arc<Ports>>>,
}

/// What the owner of an object should know.
pub(super) struct Finding {
    pub(super) requester: Requester,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What one object requests, by Secret.
struct Request<'a> {
    requester: &'a Requester,
    challenge: Challenge,
    gateway: &'a Arc<str>,
    opens_by_certificate: bool,
    secrets: BTreeMap<Box<str>, (BTreeSet<Box<str>>, bool)>,
}

/// What all objects request.
pub(super) fn all(view: &View<'_>) -> Requests {
    let mut requests = Requests::default();
    for (gateway, requester, challenge) in
        annotated::<Gateway>(view, GATEWAYS, &GATEWAY, &mut requests, |o| &o.metadata)
    {
        let key = gateway.metadata.key();
        let cluster = view.cache.gateways.cluster();
        let Some(state) = cluster.gateway(&key).filter(|state| state.generation == gateway.metadata.generation) else {
            continue;
        };
        let (listeners, states) = (&gateway.spec.listeners, &state.listeners);
        requests.of_listeners(view, (&requester, challenge), &key.into(), listeners, states);
    }
    for (set, requester, challenge) in
        annotated::<ListenerSet>(view, LISTENER_SETS, &LISTENER_SET, &mut requests, |o| &o.metadata)
    {
        let cluster = view.cache.gateways.cluster();
        let state = cluster.listener_set(&set.metadata.key());
        let Some(state) = state.filter(|state| state.generation == set.metadata.generation) else { continue };
        let (listeners, states) = (&set.spec.listeners, &state.listeners);
        requests.of_listeners(view, (&requester, challenge), &state.gateway, listeners, states);
    }
    for (ingress, requester, challenge) in
        annotated::<Ingress>(view, INGRESSES, &INGRESS, &mut requests, |o| &o.metadata)
    {
        requests.of_ingress(view, (&requester, challenge), &ingress);
    }
    requests
}

/// Objects of a table with the annotation, except those that are being deleted.
fn annotated<T: DeserializeOwned + Default>(
    view: &View<'_>,
    table: &str,
    kind: &Kind,
    requests: &mut Requests,
    metadata: impl Fn(&T) -> &ObjectMeta,
) -> Vec<(T, Requester, Challenge)> {
    let Ok(found) = view.store.range(Table::named(table), "", None) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in found.entries.iter().filter(|entry| mentions(entry)) {
        let object = read::<T>(&entry.value);
        let (of, name) = (metadata(&object), kind.kind);
        let Some(text) = of.annotation(acme::KEY).filter(|_| !of.is_deleting()) else { continue };
        let requester =
            Requester { kind: name, api_version: kind.api_version(), object: Reference::new(&entry.key.name, &of.uid) };
        match Challenge::named(text) {
            Some(challenge) => all.push((object, requester, challenge)),
            None => {
                let message = format!("annotation {}: `{text}` is neither http-01 nor tls-alpn-01", acme::KEY);
                requests.find(&requester, REFUSED, message);
            }
        }
    }
    all
}

/// Whether an object may have the annotation, without parsing it.
fn mentions(entry: &Entry) -> bool {
    entry.value.windows(acme::KEY.len()).any(|window| window == acme::KEY.as_bytes())
}

impl Requests {
    fn find(&mut self, requester: &Requester, reason: &'static str, message: String) {
        // Objects are looked at one after the other.
        let of_object = self.findings.iter().rev().take_while(|last| last.requester.object == requester.object);
        if of_object.take(MOST_FINDINGS).count() < MOST_FINDINGS {
            self.findings.push(Finding { requester: requester.clone(), reason, message });
        }
    }

    /// The listeners of a Gateway at the ports that a CA contacts.
    fn ports(&mut self, view: &View<'_>, gateway: &Arc<str>) -> Option<Arc<Ports>> {
        let config = || view.cache.gateways.cluster().config(gateway).map(|config| Arc::new(Ports::of(&config)));
        self.ports.entry(Arc::clone(gateway)).or_insert_with(config).clone()
    }

    fn of_listeners(
        &mut self,
        view: &View<'_>,
        (requester, challenge): (&Requester, Challenge),
        gateway: &Arc<str>,
        listeners: &[Listener],
        states: &[ListenerState],
    ) {
        let cluster = view.cache.gateways.cluster();
        let has_address = cluster.gateway(gateway).is_some_and(|state| !state.addresses.is_empty());
        let ports = self.ports(view, gateway);
        let opens_by_certificate = challenge == Challenge::TlsAlpn;
        let mut request = Request { requester, challenge, gateway, opens_by_certificate, secrets: BTreeMap::new() };
        for (listener, state) in listeners.iter().zip(states).filter(|(listener, _)| ends_tls(listener)) {
            let at = format!("listener {}", listener.name);
            let (host, secret) = match requested(listener, &requester.object.namespace) {
                Ok(requested) => requested,
                Err(why) => {
                    self.find(requester, REFUSED, format!("{at}: {why}"));
                    continue;
                }
            };
            if state.conflicted.holds() || !state.accepted.holds() {
                self.find(
                    requester,
                    REFUSED,
                    format!("{at} is not served, see its conditions; nothing is ordered for it"),
                );
                continue;
            }
            let namespace = &requester.object.namespace;
            let check = |ports: &Arc<Ports>| ports.check(namespace, &host, challenge);
            let is_ready = match ports.as_ref().map_or(Err(Obstacle::Later), check) {
                Ok(()) => has_address,
                Err(Obstacle::Later) => false,
                Err(Obstacle::Change(why)) => {
                    self.find(requester, PENDING, format!("{at}: {why}"));
                    false
                }
            };
            request.add(secret, host, is_ready);
        }
        self.add(view, request);
    }

    fn of_ingress(&mut self, view: &View<'_>, (requester, challenge): (&Requester, Challenge), ingress: &Ingress) {
        let ingresses = &view.cache.ingresses;
        let Reference { namespace, name, .. } = &requester.object;
        let key = format!("{namespace}/{name}");
        let entry = view.store.get(&Key::new(Table::named(INGRESSES), key.as_str()));
        let state = entry.as_ref().and_then(|entry| ingresses.state(&key, entry.modified));
        let Some(class) = state.and_then(|state| state.class) else { return };
        let (Some(gateway), Some(entry)) = (ingresses.gateway(&class), entry) else { return };
        let has_address = !object::decode_bare(&entry.value).items("status.loadBalancer.ingress").is_empty();
        let gateway = &gateway.config.key;
        let secrets = BTreeMap::new();
        let mut request = Request { requester, challenge, gateway, opens_by_certificate: false, secrets };
        for tls in ingress.spec.tls.iter().filter(|tls| !tls.secret_name.is_empty()) {
            let of_rules =
                || ingress.spec.rules.iter().map(|rule| &rule.host).filter(|host| !host.is_empty()).collect();
            let hosts: Vec<&Box<str>> = if tls.hosts.is_empty() { of_rules() } else { tls.hosts.iter().collect() };
            for host in hosts.into_iter().map(|host| host.to_ascii_lowercase()) {
                let owner = ingresses.owner(&class, &host);
                let problem = if let Err(why) = valid(&host) {
                    why
                } else if owner.is_none() {
                    format!("no rule of an Ingress of class {class} is for {host}")
                } else if let Some(owner) = owner.filter(|owner| split(owner).0 != *namespace) {
                    format!("{host} belongs to the namespace of Ingress {owner}")
                } else {
                    request.add(tls.secret_name.clone(), host.into(), has_address);
                    continue;
                };
                self.find(requester, REFUSED, format!("tls entry for Secret {}: {problem}", tls.secret_name));
            }
        }
        self.add(view, request);
    }

    /// Adds the certificates of an object, unless their Secrets belong to users or to other objects.
    fn add(&mut self, view: &View<'_>, request: Request<'_>) {
        let Request { requester, challenge, gateway, opens_by_certificate, secrets } = request;
        for (secret, (hosts, is_ready)) in secrets {
            let wanted = Wanted {
                requester: requester.clone(),
                secret,
                hosts,
                challenge,
                gateway: Arc::clone(gateway),
                opens_by_certificate,
                is_ready,
            };
            match self.refusal(view, &wanted) {
                None => {
                    self.places.insert(wanted.secret_key(), self.wanted.len());
                    *self.counts.entry(requester.object.namespace.as_str().into()).or_default() += 1;
                    self.wanted.push(wanted);
                }
                // Two objects for parts of one host share the certificate.
                Some(None) => {}
                Some(Some(why)) => self.find(requester, REFUSED, why),
            }
        }
    }

    /// Why a certificate is not ordered; without a message where it is ordered for another object.
    fn refusal(&self, view: &View<'_>, wanted: &Wanted) -> Option<Option<String>> {
        let key = wanted.secret_key();
        if let Some(first) = self.places.get(&key).and_then(|place| self.wanted.get(*place)) {
            let Requester { kind, object, .. } = &first.requester;
            let why =
                || format!("Secret {key} is requested for other hosts by {kind} {}; name another one", object.name);
            return Some((first.hosts != wanted.hosts).then(why));
        }
        if wanted.hosts.len() > MOST_HOSTS {
            return Some(Some(format!(
                "Secret {key}: {} hosts are more than {MOST_HOSTS}; use several",
                wanted.hosts.len()
            )));
        }
        let namespace = &*wanted.requester.object.namespace;
        if self.counts.get(namespace).is_some_and(|count| *count >= MOST_OF_NAMESPACE) {
            return Some(Some(format!(
                "Secret {key}: namespace {namespace} requests more than {MOST_OF_NAMESPACE} certificates; remove some"
            )));
        }
        let entry = view.store.get(&Key::new(Table::named(SECRETS), key.as_str()))?;
        let is_ours = read::<Secret>(&entry.value).metadata.labels.contains_key(acme::KEY);
        (!is_ours).then(|| {
            Some(format!(
                "Secret {key} exists and has no label {}, so it is not overwritten; delete it, or name another one",
                acme::KEY
            ))
        })
    }
}

impl Request<'_> {
    fn add(&mut self, secret: Box<str>, host: Box<str>, is_ready: bool) {
        let (hosts, all_ready) = self.secrets.entry(secret).or_insert_with(|| (BTreeSet::new(), true));
        hosts.insert(host);
        *all_ready &= is_ready;
    }
}

/// Whether TLS connections end at a listener.
fn ends_tls(listener: &Listener) -> bool {
    matches!(&*listener.protocol, "HTTPS" | "TLS") && !listener.is_passthrough()
}

/// Host and Secret of a listener.
fn requested(listener: &Listener, namespace: &str) -> Result<(Box<str>, Box<str>), String> {
    let host = listener.host().ok_or("it has no hostname, so it is not known what the certificate is for")?;
    let host = host.to_ascii_lowercase();
    valid(&host)?;
    let reference = listener.tls.as_ref().and_then(|tls| tls.certificate_refs.first());
    let reference = reference.ok_or("it names no Secret in tls.certificateRefs")?;
    let is_secret = reference.group.as_deref().unwrap_or_default().is_empty()
        && reference.kind.as_deref().unwrap_or("Secret") == "Secret";
    if !is_secret || reference.namespace.as_deref().is_some_and(|other| other != namespace) {
        return Err(format!("the first of tls.certificateRefs must be a Secret of namespace {namespace}"));
    }
    if !api::names::dns_subdomain(&reference.name).is_empty() {
        return Err(format!("{} cannot be the name of a Secret", reference.name));
    }
    Ok((host.into(), reference.name.clone()))
}
