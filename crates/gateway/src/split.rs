//! What the proxy is told of Services that the gateway serves, so that it needs no rules of a new kind.
//!
//! In: a source of Services and slices, and where the gateway listens. Out: a source in which such a Service is two.
//!
//! ```text
//! shop/web  443 (gateway), 80     ──▶  shop/web          443 marked: not at its load balancer, all else as it was; 80
//!                                      shop/web.gateway  443 at the same load-balancer addresses, traffic stays on the node
//! where 443 is listened for       ──▶  a slice of shop/web.gateway: this node's address, the port of the listener
//! ```
//! No Service can have a name with a dot, so nobody is in the way. Because traffic stays on the node, the address of the client does. A
//! Service that nobody listens for yet has no endpoint and is refused: its packets never go to pods past the gateway.

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

use crate::wanted::{self, wanted};

pub use source::Split;

/// What is appended to the name of a Service.
pub const SUFFIX: &str = ".gateway";
/// The member of a port that says that its load balancer is the gateway's business.
pub const MARK: &str = "waypost.dev/gateway";

/// Where a port of a Service is listened for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bound {
    /// The name of the port.
    pub name: Arc<str>,
    /// Where.
    pub address: SocketAddr,
}

/// Where the gateway listens, by `namespace/name` of the Service.
pub type Listening = BTreeMap<Box<str>, Vec<Bound>>;

/// Follows Services: each event becomes one or two.
#[derive(Debug, Default)]
pub struct Services {
    /// Whose second halves were told of, and the list under way.
    split: BTreeMap<Box<str>, ()>,
    listing: Option<BTreeMap<Box<str>, ()>>,
}

impl Services {
    /// What to say instead.
    pub fn follow(&mut self, event: Event) -> Vec<Event> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                vec![Event::Init]
            }
            Event::InitDone => {
                // Second halves that are no longer listed are gone for the listener as everything else that is not.
                self.split = self.listing.take().unwrap_or_default();
                vec![Event::InitDone]
            }
            Event::InitApply(object) => match halves(&object) {
                Some((first, second)) => {
                    self.listing.get_or_insert_default().insert(object.key().into(), ());
                    // A list that breaks off has been heard all the same.
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
                        vec![Event::Delete(ghost(&object)), Event::Apply(object)]
                    }
                    None => vec![Event::Apply(object)],
                }
            }
            Event::Delete(object) => {
                let key = object.key();
                self.listing.as_mut().map(|listing| listing.remove(&*key));
                match self.split.remove(&*key) {
                    Some(()) => vec![Event::Delete(ghost(&object)), Event::Delete(object)],
                    None => vec![Event::Delete(object)],
                }
            }
        }
    }
}

/// A Service in two, if the gateway serves any of its ports.
#[must_use]
pub fn split(service: &Value) -> Option<(Value, Value)> {
    let form: Service = serde_json::from_value(service.clone()).ok()?;
    let ports: Vec<u16> = wanted(&form).ports.iter().map(|port| port.number).collect();
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

/// The same of an object as it is watched.
fn halves(object: &Object) -> Option<(Object, Object)> {
    // Nearly every Service is passed on without being read.
    object.value.windows(wanted::HINT.len()).any(|part| part == wanted::HINT).then_some(())?;
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

/// The half that is at the load balancer. A Service must have a cluster IP: it gets one from ranges that nobody uses.
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

/// An address of 240.0.0.0/4, which is reserved and belongs to nobody.
fn unused_v4(key: &str) -> IpAddr {
    let hash = hash(key);
    Ipv4Addr::from_bits(0xf000_0000 | (u32::try_from(hash >> 37).unwrap_or_default() | 1)).into()
}

/// An address of 100::/64, which is for packets that nobody wants.
fn unused_v6(key: &str) -> IpAddr {
    Ipv6Addr::from_bits((0x0100_u128 << 112) | u128::from(hash(key) | 1)).into()
}

/// FNV-1a: the same in every process, so that a restart changes no rule.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The second half of a Service, for saying that it is gone.
fn ghost(object: &Object) -> Object {
    Object { namespace: object.namespace.clone(), name: second_name(&object.name).into(), value: Bytes::new() }
}

/// The slices that lead to the listeners, by key.
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

/// What to say of slices that were told of before and are now to be others.
#[must_use]
pub fn changes(before: &BTreeMap<String, Object>, after: &BTreeMap<String, Object>) -> Vec<Event> {
    let gone =
        before.iter().filter(|(key, _)| !after.contains_key(*key)).map(|(_, object)| Event::Delete(object.clone()));
    let fresh = after.iter().filter(|(key, object)| before.get(*key) != Some(object));
    gone.chain(fresh.map(|(_, object)| Event::Apply(object.clone()))).collect()
}

#[cfg(test)]
mod tests;
