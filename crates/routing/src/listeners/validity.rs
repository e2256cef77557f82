//! What each listener of a Gateway or of a ListenerSet is for itself: protocol, kinds of routes, certificates, verification
//! of clients. Other listeners, addresses and routes do not count here.

use std::sync::Arc;

use api::view::gateway_api::{CertificateValidation, GROUP, GatewaySpec, Listener, ObjectRef};

use super::kinds;
use crate::attach::ListenerView;
use crate::cluster::objects::{gateway_of_set, namespace_of};
use crate::cluster::{CaState, Owner, Reader, SecretState, Verdict};
use crate::model::{ClientValidation, ListenerId, ListenerProtocol, RouteKind};
use crate::references::not_permitted;

/// The listeners of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Listeners {
    pub(crate) list: Vec<Validity>,
    /// What routes see of them.
    pub(crate) views: Arc<[ListenerView]>,
    /// The Secret with the certificate for backends, or the condition `ResolvedRefs` of the Gateway.
    pub(crate) client_certificate: Result<Option<Arc<str>>, Verdict>,
}

/// What a listener is for itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Validity {
    pub(crate) name: Arc<str>,
    pub(crate) port: u16,
    pub(crate) hostname: Option<Arc<str>>,
    pub(crate) protocol: Option<ListenerProtocol>,
    pub(crate) kinds: Vec<RouteKind>,
    pub(crate) accepted: Verdict,
    pub(crate) resolved_refs: Verdict,
    /// Why nothing is served although it is accepted.
    pub(crate) obstacle: Option<String>,
    pub(crate) certificates: Vec<Arc<str>>,
    pub(crate) client_validation: Option<ClientValidation>,
}

impl Validity {
    /// Whether it can serve, as far as it alone counts.
    pub(crate) fn is_good(&self) -> bool {
        self.accepted.holds() && self.obstacle.is_none()
    }
}

/// Judges all listeners of an object; none when it does not exist.
pub(crate) fn judge(reader: &Reader<'_>, owner: &Owner) -> Option<Listeners> {
    match owner {
        Owner::Gateway(key) => {
            let spec = &reader.gateway(key)?.spec;
            let judge = |listener| judge_listener(reader, owner, listener, Some((key, spec)));
            let client_certificate = match &spec.tls.backend.client_certificate_ref {
                Some(reference) => client_certificate(reader, owner, reference).map(Some),
                None => Ok(None),
            };
            let views = views(key, None, &spec.listeners);
            Some(Listeners { list: spec.listeners.iter().map(judge).collect(), views, client_certificate })
        }
        Owner::Set(key) => {
            let set = reader.set(key)?;
            let gateway = gateway_of_set(key, set)?;
            let frontend = reader.gateway_for_frontend(&gateway).map(|object| (&gateway, &object.spec));
            let judge = |listener| judge_listener(reader, owner, listener, frontend);
            let list = set.spec.listeners.iter().map(judge).collect();
            let views = views(&gateway, Some(key), &set.spec.listeners);
            Some(Listeners { list, views, client_certificate: Ok(None) })
        }
    }
}

fn views(gateway: &Arc<str>, set: Option<&Arc<str>>, listeners: &[Listener]) -> Arc<[ListenerView]> {
    let own = namespace_of(set.unwrap_or(gateway));
    let view = |listener: &Listener| {
        let id = ListenerId { gateway: Arc::clone(gateway), set: set.cloned(), name: (&*listener.name).into() };
        ListenerView::new(id, listener, own)
    };
    listeners.iter().map(view).collect()
}

fn judge_listener(
    reader: &Reader<'_>,
    owner: &Owner,
    listener: &Listener,
    gateway: Option<(&Arc<str>, &GatewaySpec)>,
) -> Validity {
    let protocol = kinds::protocol(listener);
    let supported = kinds::supported(listener);
    let mut validity = Validity {
        name: (&*listener.name).into(),
        port: listener.port,
        hostname: listener.host().map(|host| host.to_ascii_lowercase().into()),
        protocol,
        kinds: supported.kinds,
        accepted: judge_protocol(listener, protocol),
        resolved_refs: Verdict::good("ResolvedRefs", "All references are resolved"),
        obstacle: None,
        certificates: Vec::new(),
        client_validation: None,
    };
    let mut problems = Vec::new();
    if protocol.is_some_and(ListenerProtocol::ends_tls) {
        match certificates(reader, owner, listener) {
            Ok(certificates) => validity.certificates = certificates,
            Err(problem) => {
                validity.obstacle = Some(problem.message.clone());
                problems.push(problem);
            }
        }
    }
    if let (Some(ListenerProtocol::Https), Some((key, spec))) = (protocol, gateway)
        && let Some(validation) = validation_of(spec, listener.port)
    {
        let (good, bad) = client_validation(reader, key, validation);
        if good.authorities.is_empty() {
            let message = "No CA certificate for the verification of clients is valid".to_owned();
            validity.accepted = Verdict::bad("NoValidCACertificate", message);
        }
        validity.client_validation = Some(good);
        problems.extend(bad.map(|bad| hide(owner, bad)));
    }
    if let Some(misfit) = supported.misfit {
        if validity.kinds.is_empty() {
            validity.obstacle.get_or_insert_with(|| "No listed kind of routes fits the protocol".to_owned());
        }
        let message =
            format!("Routes of kind {misfit} cannot be attached to a listener with protocol {}", listener.protocol);
        problems.push(Verdict::bad("InvalidRouteKinds", message));
    }
    if let Some(first) = problems.into_iter().next() {
        validity.resolved_refs = first;
    }
    validity
}

fn judge_protocol(listener: &Listener, protocol: Option<ListenerProtocol>) -> Verdict {
    match (protocol, &*listener.protocol) {
        (Some(_), _) if listener.port == 0 => Verdict::bad("PortUnavailable", "The port is not valid"),
        (Some(_), _) => Verdict::good("Accepted", "The listener is accepted"),
        (None, "HTTPS" | "TLS") => Verdict::bad("UnsupportedValue", "The mode of TLS is not supported"),
        (None, other) => Verdict::bad("UnsupportedProtocol", format!("Protocol \"{other}\" is not supported")),
    }
}

/// The Secrets with the certificates of a listener, or what is wrong with the first bad reference.
fn certificates(reader: &Reader<'_>, owner: &Owner, listener: &Listener) -> Result<Vec<Arc<str>>, Verdict> {
    let references = listener.tls.as_ref().map_or(&[][..], |tls| &tls.certificate_refs);
    if references.is_empty() {
        return Err(Verdict::bad("InvalidCertificateRef", "The listener has no certificateRefs"));
    }
    references.iter().map(|reference| certificate(reader, owner, reference, "InvalidCertificateRef")).collect()
}

fn client_certificate(reader: &Reader<'_>, owner: &Owner, reference: &ObjectRef) -> Result<Arc<str>, Verdict> {
    certificate(reader, owner, reference, "InvalidClientCertificateRef")
}

/// The Secret of a reference. Whether the reference is permitted comes first, so that nothing is said about objects that
/// the owner may not see.
fn certificate(
    reader: &Reader<'_>,
    owner: &Owner,
    reference: &ObjectRef,
    invalid: &'static str,
) -> Result<Arc<str>, Verdict> {
    let (group, kind) = (reference.group(), reference.kind_or("Secret"));
    let key = permitted(reader, owner, reference, kind)?;
    if !group.is_empty() || kind != "Secret" {
        return Err(Verdict::bad(invalid, format!("A certificate cannot be in an object of kind {group}/{kind}")));
    }
    match reader.secret(&key) {
        Some(SecretState::Certificate) => Ok(key),
        Some(SecretState::Passwords) => Err(Verdict::bad(invalid, format!("Secret \"{key}\" has no certificate"))),
        Some(SecretState::Invalid(why)) => Err(Verdict::bad(invalid, format!("Secret \"{key}\": {why}"))),
        None => Err(Verdict::bad(invalid, format!("Secret \"{key}\" does not exist"))),
    }
}

/// `namespace/name` of the object that a reference leads to, if that is permitted.
fn permitted(reader: &Reader<'_>, owner: &Owner, reference: &ObjectRef, kind: &str) -> Result<Arc<str>, Verdict> {
    let own = namespace_of(owner.key());
    let key: Arc<str> = reference.key(own).into();
    if reader.permits((GROUP, owner.kind(), own), (reference.group(), kind, &key)) {
        return Ok(key);
    }
    Err(Verdict::bad("RefNotPermitted", not_permitted((owner.kind(), own), (kind, &key))))
}

/// How clients of a port are verified.
pub(crate) fn validation_of(spec: &GatewaySpec, port: u16) -> Option<&CertificateValidation> {
    let frontend = spec.tls.frontend.as_ref()?;
    let own = frontend.per_port.iter().find(|entry| entry.port == port);
    own.map_or(&frontend.default, |entry| &entry.tls).validation.as_ref()
}

/// The ConfigMaps that are valid, and what is wrong with the first bad reference.
fn client_validation(
    reader: &Reader<'_>,
    gateway: &Arc<str>,
    validation: &CertificateValidation,
) -> (ClientValidation, Option<Verdict>) {
    let owner = Owner::Gateway(Arc::clone(gateway));
    let mut found =
        ClientValidation { authorities: Vec::new(), insecure_fallback: validation.allows_insecure_fallback() };
    let mut problem = None;
    for reference in &validation.ca_certificate_refs {
        match authority(reader, &owner, reference) {
            Ok(key) => found.authorities.push(key),
            Err(bad) => {
                problem.get_or_insert(bad);
            }
        }
    }
    (found, problem)
}

/// The owner of a ListenerSet may not see what the Gateway refers to.
fn hide(owner: &Owner, mut problem: Verdict) -> Verdict {
    if matches!(owner, Owner::Set(_)) {
        problem.message = "A CA certificate of the Gateway for the verification of clients is not valid".to_owned();
    }
    problem
}

fn authority(reader: &Reader<'_>, owner: &Owner, reference: &ObjectRef) -> Result<Arc<str>, Verdict> {
    let (group, kind) = (reference.group(), reference.kind_or("ConfigMap"));
    let key = permitted(reader, owner, reference, kind)?;
    if !group.is_empty() || kind != "ConfigMap" {
        let message = format!("CA certificates cannot be in an object of kind {group}/{kind}");
        return Err(Verdict::bad("InvalidCACertificateKind", message));
    }
    let bad = |why: &str| Verdict::bad("InvalidCACertificateRef", format!("ConfigMap \"{key}\" {why}"));
    match reader.config_map(&key) {
        Some(CaState::Bundle) => Ok(key),
        Some(CaState::Invalid(why)) => Err(bad(&format!("has no CA certificates: {why}"))),
        None => Err(bad("does not exist")),
    }
}
