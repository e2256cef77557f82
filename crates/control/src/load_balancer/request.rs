//! A Service that has to do with load balancers: what it asks for, and what it was told.
//!
//! In: a stored Service. Out: its small form, or nothing for the many Services that are no business of ours; those are found out from their
//! bytes, without reading them.

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

/// A Service of type LoadBalancer, or one that a load balancer is still to be cleaned up for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The stored form: key, labels and revision.
    pub entry: Arc<Entry>,
    /// Its uid.
    pub uid: Box<str>,
    /// When it was created, as it says it.
    pub created: Box<str>,
    /// Whether its type is LoadBalancer.
    pub is_balancer: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it waits for a load balancer to be cleaned up.
    pub has_finalizer: bool,
    /// Whose business it is.
    pub class: Option<Box<str>>,
    /// Its annotations.
    pub(crate) annotations: Annotations,
    /// `spec.loadBalancerIP`.
    pub wanted: Box<str>,
    /// Protocols and numbers of its ports.
    pub ports: Vec<(Box<str>, u16)>,
    /// Whether packets must stay on the node they come to.
    pub local: bool,
    /// Its selector, as a text.
    pub selector: Box<str>,
    /// The families it has.
    pub families: Vec<Family>,
    /// How much it needs them.
    pub policy: Box<str>,
    /// The addresses that its status shows.
    pub shown: Vec<IpAddr>,
    /// Whether the status shows anything.
    pub is_shown: bool,
    /// The message of our condition, if it is false: what it was told already.
    pub told: Option<Box<str>>,
    /// Whether it has our condition at all: so its finalizer is ours.
    pub is_told: bool,
}

impl Request {
    /// Reads a Service; nothing when load balancers have nothing to do with it.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Option<Self> {
        if !says(entry, "\"LoadBalancer\"") && !says(entry, FINALIZER) {
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
            is_told: condition.is_some(),
            told: condition.filter(|one| one.text("status") == "False").map(|one| one.text("message").into()),
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

    /// Whether it has no class, or one of ours.
    #[must_use]
    pub fn is_of_our_class(&self) -> bool {
        self.class.as_deref().is_none_or(|class| CLASSES.contains(&class))
    }

    /// Whether it wants the addresses of nodes.
    #[must_use]
    pub fn is_proxied(&self) -> bool {
        self.class.as_deref() == Some(CLASS_PROXY)
    }

    /// Whether it waits for an address that we should give.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.is_balancer && !self.deleting && self.is_of_our_class() && !self.is_shown
    }

    /// As whom it claims addresses.
    pub(super) fn owner(&self) -> Owner {
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

fn says(entry: &Entry, text: &str) -> bool {
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
