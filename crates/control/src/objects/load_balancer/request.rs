//! A reduced Service of type LoadBalancer.
//!
//! In: a stored Service. Out: the fields that load balancing needs, or `None` for other Services, which are recognized without parsing.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::object;
use api::value::ValueExt as _;
use api::view::service::{CLASS_PROXY, CLASSES};
use store::Entry;

use super::annotations::{self, Annotations};
use super::claim::Owner;
use super::{CONDITION, FINALIZER};

/// A Service of type LoadBalancer, or one whose load balancer is not cleaned up yet.
#[derive(Clone, Debug)]
pub struct Request {
    /// The stored form: key, labels and revision.
    pub entry: Arc<Entry>,
    /// Its uid.
    pub uid: Box<str>,
    /// The creation timestamp.
    pub created: Box<str>,
    /// Whether its type is LoadBalancer.
    pub is_balancer: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it has the cleanup finalizer.
    pub has_finalizer: bool,
    /// `spec.loadBalancerClass`
    pub class: Option<Box<str>>,
    /// Its annotations.
    pub(crate) annotations: Annotations,
    /// `spec.loadBalancerIP`.
    pub wanted: Box<str>,
    /// Protocols and numbers of its ports.
    pub ports: Vec<(Box<str>, u16)>,
    /// Whether externalTrafficPolicy is Local.
    pub local: bool,
    /// Its selector, as a text.
    pub selector: Box<str>,
    /// `spec.ipFamilies`
    pub families: Vec<Family>,
    /// `spec.ipFamilyPolicy`
    pub policy: Box<str>,
    /// The addresses in its status.
    pub shown: Vec<IpAddr>,
    /// Whether its status has ingress entries.
    pub is_shown: bool,
    /// The message of the condition, if it is False.
    pub refusal: Option<Box<str>>,
    /// Whether it has the condition: then the finalizer is the controller's.
    pub has_our_condition: bool,
}

impl Request {
    /// Reads a Service; `None` when it neither is nor was of type LoadBalancer.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Option<Self> {
        if !contains(entry, "\"LoadBalancer\"") && !contains(entry, FINALIZER) {
            return None;
        }
        let service = object::decode_light(&entry.value);
        let is_balancer = service.text("spec.type") == "LoadBalancer";
        let has_finalizer = service.texts("metadata.finalizers").contains(&FINALIZER);
        if !is_balancer && !has_finalizer {
            return None;
        }
        let text = |path: &str| Box::from(service.text(path));
        let ingress = service.items("status.loadBalancer.ingress");
        let condition = service.items("status.conditions").iter().find(|one| one.text("type") == CONDITION);
        let port = |port: &serde_json::Value| {
            let protocol = port.text("protocol");
            let protocol = if protocol.is_empty() { "TCP" } else { protocol };
            Some((protocol.into(), u16::try_from(port.int("port")).ok()?))
        };
        Some(Self {
            entry: Arc::clone(entry),
            uid: text("metadata.uid"),
            created: text("metadata.creationTimestamp"),
            is_balancer,
            deleting: service.has("metadata.deletionTimestamp"),
            has_finalizer,
            class: service.at("spec.loadBalancerClass").as_str().map(Into::into),
            annotations: strings(service.at("metadata.annotations")),
            wanted: text("spec.loadBalancerIP"),
            ports: service.items("spec.ports").iter().filter_map(port).collect(),
            local: service.text("spec.externalTrafficPolicy") == "Local",
            selector: selector(&strings(service.at("spec.selector"))),
            families: service.texts("spec.ipFamilies").into_iter().filter_map(Family::named).collect(),
            policy: text("spec.ipFamilyPolicy"),
            shown: ingress.iter().filter_map(|one| parse_lenient(one.text("ip"))).collect(),
            is_shown: !ingress.is_empty(),
            has_our_condition: condition.is_some(),
            refusal: condition.filter(|one| one.text("status") == "False").map(|one| one.text("message").into()),
        })
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.entry.key.name
    }

    /// Its namespace and its name.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        crate::objects::split(self.key())
    }

    /// Whether it has no class, or one of Waypost's.
    #[must_use]
    pub fn is_of_our_class(&self) -> bool {
        self.class.as_deref().is_none_or(|class| CLASSES.contains(&class))
    }

    /// Whether its class is served at node addresses.
    #[must_use]
    pub fn is_proxied(&self) -> bool {
        self.class.as_deref() == Some(CLASS_PROXY)
    }

    /// Whether it waits for an address of this controller.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.is_balancer && !self.deleting && self.is_of_our_class() && !self.is_shown
    }

    /// The owner entry of its claims.
    pub(crate) fn owner(&self) -> Owner {
        let port = |(protocol, number): &(Box<str>, u16)| format!("{protocol}/{number}").into();
        Owner {
            service: self.key().into(),
            uid: self.uid.clone(),
            ports: self.ports.iter().map(port).collect(),
            sharing: annotations::sharing_key(&self.annotations).into(),
            backend: if self.local { self.selector.clone() } else { Box::default() },
            of_node: false,
        }
    }
}

fn contains(entry: &Entry, text: &str) -> bool {
    entry.value.windows(text.len()).any(|window| window == text.as_bytes())
}

fn strings(map: &serde_json::Value) -> Annotations {
    let pairs = map.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

fn selector(labels: &Annotations) -> Box<str> {
    let mut out = String::new();
    for (key, value) in labels {
        let _ = write!(out, "{}{key}={value}", if out.is_empty() { "" } else { "," });
    }
    out.into()
}
