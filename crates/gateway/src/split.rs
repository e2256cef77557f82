//! Redirects load-balancer traffic of gateway ports to the gateway's listeners, without new rule types in the proxy.
//!
//! In: a source of Services and slices, and the gateway's listen addresses. Out: a source in which such a Service is
//! split in two.
//!
//! ```text
//! shop/web  443 (gateway), 80     ──▶  shop/web          443 marked: excluded from its load balancer, otherwise unchanged; 80
//!                                      shop/web.gateway  443 at the same load-balancer addresses, externalTrafficPolicy: Local
//! listen address of 443           ──▶  EndpointSlice of shop/web.gateway: this node's address, port of the listener
//! ```
//! Service names cannot contain a dot, so there is no conflict. `externalTrafficPolicy: Local` preserves client
//! addresses. Without a listener the Service has no endpoint and connections are rejected: they never reach pods
//! without passing the gateway.

mod source;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use api::ip::parse_lenient;
use api::view::Service;
use api::view::labels::SERVICE_NAME;
use bytes::Bytes;
use client::watch::{Event, Object};
use serde_json::{Value, json};

use crate::annotations::{self, gateway_spec};

pub use source::Split;

/// Suffix of the name of the second Service.
pub const SUFFIX: &str = ".gateway";
/// Field of a port whose load balancer is handled by the gateway.
pub const MARK: &str = "waypost.dev/gateway";

/// Listen address of a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bound {
    /// Port name.
    pub name: Arc<str>,
    /// Listen address.
    pub address: SocketAddr,
}

/// Listen addresses by `namespace/name` of the Service.
pub type Listening = BTreeMap<Box<str>, Vec<Bound>>;

/// Rewrites Service events: each becomes one or two.
#[derive(Debug, Default)]
pub struct Services {
    /// Services that were split, and those of the list in progress.
    split: BTreeMap<Box<str>, ()>,
    listing: Option<BTreeMap<Box<str>, ()>>,
}

impl Services {
    /// Events to emit instead of `event`.
    pub fn follow(&mut self, event: Event) -> Vec<Event> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                vec![Event::Init]
            }
            Event::InitDone => {
                // The consumer deletes second Services that are not in the list.
                self.split = self.listing.take().unwrap_or_default();
                vec![Event::InitDone]
            }
            Event::InitApply(object) => match halves(&object) {
                Some((first, second)) => {
                    self.listing.get_or_insert_default().insert(object.key().into(), ());
                    // An interrupted list has been emitted, too.
                    self.split.insert(object.key().into(), ());
                    vec![Event::InitApply(first), Event::InitApply(second)]
                }
                None => vec![Event::InitApply(object)],
            },
            Event::Apply(object) => {
                let key: Box<str> = object.key().into();
                match halves(&object) {
                    Some((first, second)) => {
                        self.split.insert(key, ());
                        vec![Event::Apply(first), Event::Apply(second)]
                    }
                    None if self.split.remove(&key).is_some() => {
                        vec![Event::Delete(tombstone(&object)), Event::Apply(object)]
                    }
                    None => vec![Event::Apply(object)],
                }
            }
            Event::Delete(object) => {
                let key = object.key();
                self.listing.as_mut().map(|listing| listing.remove(&*key));
                match self.split.remove(&*key) {
                    Some(()) => vec![Event::Delete(tombstone(&object)), Event::Delete(object)],
                    None => vec![Event::Delete(object)],
                }
            }
        }
    }
}

/// Splits a Service, if the gateway serves any of its ports.
#[must_use]
pub fn split(service: &Value) -> Option<(Value, Value)> {
    let form: Service = serde_json::from_value(service.clone()).ok()?;
    let ports: Vec<u16> = gateway_spec(&form).ports.iter().map(|port| port.number).collect();
    if ports.is_empty() {
        return None;
    }
    let mut first = service.clone();
    for port in first.pointer_mut("/spec/ports")?.as_array_mut()? {
        if is_one_of(port, &ports) {
            port[MARK] = true.into();
        }
    }
    let second = second_half(&first, &form);
    Some((first, second))
}

/// Splits a watched object.
fn halves(object: &Object) -> Option<(Object, Object)> {
    // Most Services are passed on without being parsed.
    object.value.windows(annotations::HINT.len()).any(|part| part == annotations::HINT).then_some(())?;
    let (first, second) = split(&serde_json::from_slice(&object.value).ok()?)?;
    let whole = |name: &str, value: &Value| Object {
        namespace: object.namespace.clone(),
        name: name.into(),
        value: Bytes::from(value.to_string()),
    };
    Some((whole(&object.name, &first), whole(&second_name(&object.name), &second)))
}

fn is_one_of(port: &Value, numbers: &[u16]) -> bool {
    let number = port["port"].as_u64().and_then(|number| u16::try_from(number).ok());
    number.is_some_and(|number| numbers.contains(&number)) && port["protocol"].as_str().is_none_or(|name| name == "TCP")
}

fn second_name(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// Second Service, with the load-balancer addresses. A cluster IP is required: it is taken from an unused range.
fn second_half(first: &Value, service: &Service) -> Value {
    let meta = &service.metadata;
    let key = meta.key();
    let ingress: Vec<&Value> = first["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten().collect();
    let is_v4 = |ingress: &&Value| ingress["ip"].as_str().and_then(parse_lenient).is_some_and(|ip| ip.is_ipv4());
    let is_v6 = |ingress: &&Value| ingress["ip"].as_str().and_then(parse_lenient).is_some_and(|ip| ip.is_ipv6());
    let families = [(ingress.iter().any(is_v4), unused_v4(&key)), (ingress.iter().any(is_v6), unused_v6(&key))];
    let ips: Vec<String> = families.iter().filter(|(has, _)| *has).map(|(_, ip)| ip.to_string()).collect();
    let ips = if ips.is_empty() { vec![unused_v4(&key).to_string()] } else { ips };
    let marked = first["spec"]["ports"].as_array().into_iter().flatten().filter(|port| port[MARK] == true);
    let ports: Vec<Value> =
        marked.map(|port| json!({"name": port["name"], "protocol": "TCP", "port": port["port"]})).collect();
    json!({
        "metadata": {"name": second_name(&meta.name), "namespace": meta.namespace, "uid": first["metadata"]["uid"]},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": ips[0],
            "clusterIPs": ips,
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "loadBalancerSourceRanges": first["spec"]["loadBalancerSourceRanges"],
            "ports": ports,
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

/// Address of 240.0.0.0/4 (reserved).
fn unused_v4(key: &str) -> IpAddr {
    let hash = hash(key);
    Ipv4Addr::from_bits(0xf000_0000 | (u32::try_from(hash >> 37).unwrap_or_default() | 1)).into()
}

/// Address of 100::/64 (discard prefix).
fn unused_v6(key: &str) -> IpAddr {
    Ipv6Addr::from_bits((0x0100_u128 << 112) | u128::from(hash(key) | 1)).into()
}

/// FNV-1a: stable across restarts, so that a restart changes no rule.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Tombstone of the second Service.
fn tombstone(object: &Object) -> Object {
    Object { namespace: object.namespace.clone(), name: second_name(&object.name).into(), value: Bytes::new() }
}

/// EndpointSlices of the listeners, by key.
#[must_use]
pub fn slices(listening: &Listening, node: &str) -> BTreeMap<String, Object> {
    let mut all = BTreeMap::new();
    for (key, bound) in listening {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        for (family, suffix) in [("IPv4", "-4"), ("IPv6", "-6")] {
            let here: Vec<&Bound> =
                bound.iter().filter(|bound| bound.address.is_ipv4() == (family == "IPv4")).collect();
            let Some(first) = here.first() else { continue };
            let service = second_name(name);
            let slice_name = format!("{service}{suffix}");
            let ports =
                here.iter().map(|bound| json!({"name": *bound.name, "protocol": "TCP", "port": bound.address.port()}));
            let value = json!({
                "metadata": {"name": slice_name, "namespace": namespace, "labels": {SERVICE_NAME: service}},
                "addressType": family,
                "endpoints": [{
                    "addresses": [first.address.ip().to_string()],
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                    "nodeName": node,
                }],
                "ports": ports.collect::<Vec<_>>(),
            });
            let value = Bytes::from(value.to_string());
            let object = Object { namespace: namespace.into(), name: slice_name.into(), value };
            all.insert(object.key(), object);
        }
    }
    all
}

/// Events that turn one set of slices into another.
#[must_use]
pub fn changes(before: &BTreeMap<String, Object>, after: &BTreeMap<String, Object>) -> Vec<Event> {
    let deleted =
        before.iter().filter(|(key, _)| !after.contains_key(*key)).map(|(_, object)| Event::Delete(object.clone()));
    let fresh = after.iter().filter(|(key, object)| before.get(*key) != Some(object));
    deleted.chain(fresh.map(|(_, object)| Event::Apply(object.clone()))).collect()
}

#[cfg(test)]
mod tests;
