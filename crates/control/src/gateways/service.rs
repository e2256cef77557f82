//! The Service of a Gateway: of type LoadBalancer, without selector and node ports. Its load-balancer addresses are those of the Gateway, and the nodes
//! lead them to the listeners (`waypost.dev/gateway`).
//!
//! In: the Gateway, its programmed listeners, the stored Service. Out: the write that makes the Service as it should be. Labels and annotations are exactly
//! those of `spec.infrastructure` and our own. While no listener is programmed the ports stay as they are, so that the addresses are kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::kinds::service::KIND;
use api::object;
use api::value::ValueExt as _;
use api::view::StringMap;
use api::view::annotations::GATEWAY;
use api::view::gateway_api::{GROUP, Gateway};
use routing::model::{GatewayConfig, Transport};
use serde_json::{Map, Value, json};
use store::{Entry, Key, Table};

use crate::controller::View;
use crate::objects::gateway_api::service_key;
use crate::objects::load_balancer::CONDITION;
use crate::objects::load_balancer::annotations::ADDRESSES;
use crate::objects::split;
use crate::write::Write;

/// The table of Services.
pub(super) const TABLE: &str = "services/specs";
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// The stored Service of the name that belongs to a Gateway.
pub(super) enum Current {
    /// There is none.
    Missing,
    /// It belongs to another object; its name.
    Foreign(String),
    /// It belongs to the Gateway.
    Owned {
        /// The stored form.
        entry: Arc<Entry>,
        /// The object.
        object: Value,
    },
}

impl Current {
    /// Reads the Service of a Gateway of this key and uid.
    pub(super) fn read(view: &View<'_>, gateway: &str, uid: &str) -> Self {
        let key = service_key(gateway);
        let Some(entry) = view.store.get(&Key::new(Table::named(TABLE), &*key)) else { return Self::Missing };
        let object = object::decode_bare(&entry.value);
        if object.items("metadata.ownerReferences").iter().any(|owner| owner.text("uid") == uid) {
            return Self::Owned { entry, object };
        }
        Self::Foreign(split(&key).1.to_owned())
    }

    /// The stored form, if it belongs to the Gateway.
    pub(super) fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Self::Owned { entry, .. } => Some(entry),
            _ => None,
        }
    }

    /// Whether it is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        matches!(self, Self::Owned { object, .. } if object.has("metadata.deletionTimestamp"))
    }
}

/// The write that makes the Service as it should be, if there is one.
pub(super) fn write(key: &str, gateway: &Gateway, config: Option<&GatewayConfig>, current: &Current) -> Option<Write> {
    let ports: BTreeSet<(u16, Transport)> = config
        .into_iter()
        .flat_map(|config| &config.listeners)
        .map(|listener| (listener.port, listener.protocol.transport()))
        .collect();
    match current {
        Current::Missing if !ports.is_empty() => {
            let service = completed(key, gateway, &ports, json!({"apiVersion": "v1", "kind": "Service"}));
            Some(Write::create(TABLE, service))
        }
        Current::Owned { entry, object } if !object.has("metadata.deletionTimestamp") => {
            let new = completed(key, gateway, &ports, object.clone());
            let write = |new| Write::Object { table: TABLE, object: Box::new(new), modified: entry.modified };
            (new != *object).then(|| write(new))
        }
        _ => None,
    }
}

/// The Service with everything that the Gateway determines.
fn completed(key: &str, gateway: &Gateway, ports: &BTreeSet<(u16, Transport)>, mut service: Value) -> Value {
    let (namespace, name) = split(key);
    service.put("metadata.name", split(&service_key(key)).1);
    service.put("metadata.namespace", namespace);
    service.put("metadata.labels", labels(name, gateway));
    service.put("metadata.annotations", annotations(name, gateway));
    if service.items("metadata.ownerReferences").is_empty() {
        let owner = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Gateway", "name": name, "uid": gateway.metadata.uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        service.put("metadata.ownerReferences", vec![owner]);
    }
    service.put("spec.type", "LoadBalancer");
    service.put("spec.allocateLoadBalancerNodePorts", false);
    service.drop_path("spec.selector");
    if !service.has("spec.ipFamilyPolicy") {
        service.put("spec.ipFamilyPolicy", "PreferDualStack");
    }
    if !ports.is_empty() {
        let stored = service.items("spec.ports").to_vec();
        let wanted: Vec<Value> = ports.iter().map(|port| completed_port(*port, &stored)).collect();
        // The order of equal ports is that of the store.
        if wanted.len() != stored.len() || !wanted.iter().all(|port| stored.contains(port)) {
            service.put("spec.ports", wanted);
        }
    }
    KIND.rules.default(&mut service);
    service
}

fn completed_port((number, transport): (u16, Transport), stored: &[Value]) -> Value {
    let (protocol, prefix) = match transport {
        Transport::Tcp => ("TCP", "tcp"),
        Transport::Udp => ("UDP", "udp"),
    };
    let is_same = |port: &&Value| port.int("port") == i64::from(number) && port.text("protocol") == protocol;
    let mut port = stored.iter().find(is_same).cloned().unwrap_or_else(|| json!({}));
    port.put("name", format!("{prefix}-{number}"));
    port.put("protocol", protocol);
    port.put("port", number);
    port.put("targetPort", number);
    port
}

fn labels(name: &str, gateway: &Gateway) -> Map<String, Value> {
    let mut labels = members(&gateway.spec.infrastructure.labels);
    let class = &*gateway.spec.gateway_class_name;
    for (key, value) in [("gateway-name", name), ("gateway-class-name", class)] {
        // Names may be longer than labels.
        if value.len() <= LONGEST_LABEL {
            labels.insert(format!("{GROUP}/{key}"), value.into());
        }
    }
    labels
}

fn annotations(name: &str, gateway: &Gateway) -> Map<String, Value> {
    let mut annotations = members(&gateway.spec.infrastructure.annotations);
    annotations.insert(GATEWAY.to_owned(), name.into());
    let is_ip = |kind: Option<&str>| kind.is_none_or(|kind| kind == "IPAddress");
    let addresses = gateway.spec.addresses.iter().filter(|address| is_ip(address.kind.as_deref()));
    let wanted: Vec<&str> =
        addresses.filter_map(|address| address.value.as_deref()).filter(|value| !value.is_empty()).collect();
    if !wanted.is_empty() {
        annotations.insert(ADDRESSES.to_owned(), wanted.join(",").into());
    }
    annotations
}

fn members(map: &StringMap) -> Map<String, Value> {
    map.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect()
}

/// Why the Service has no address yet; `None` when it has one, or when nothing is known.
pub(super) fn why_pending(view: &View<'_>, service: &Value) -> Option<String> {
    if !service.items("status.loadBalancer.ingress").is_empty() {
        return None;
    }
    let conditions = service.items("status.conditions");
    let ready = conditions.iter().find(|condition| condition.text("type") == CONDITION);
    if let Some(ready) = ready.filter(|ready| ready.text("status") == "False") {
        return Some(ready.text("message").to_owned());
    }
    let name = service.text("metadata.name");
    (!view.settings.load_balancer.enabled).then(|| {
        format!(
            "no load balancer has assigned an address to Service {name}, and this server assigns none; start it with --load-balancer on and create an IPPool, \
             or with --load-balancer-pool"
        )
    })
}
