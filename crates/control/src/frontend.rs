//! Services of type LoadBalancer whose connections the gateway of the nodes takes: without selector and node ports. Their load-balancer addresses are those
//! of their owner, a Gateway or an IngressClass.
//!
//! In: what the owner determines, and the stored Service. Out: the write that makes the Service as it should be. Labels and annotations are exactly those
//! of the owner. Without ports those that are stored stay, so that the addresses are kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::kinds::service::KIND;
use api::object;
use api::value::ValueExt as _;
use routing::model::{GatewayConfig, ListenerConfig, ListenerProtocol, Transport};
use serde_json::{Map, Value, json};
use store::{Entry, Key, Table};

use crate::controller::View;
use crate::objects::load_balancer::CONDITION;
use crate::objects::split;
use crate::write::Write;

/// The table of Services.
pub(crate) const TABLE: &str = "services/specs";
/// The longest value of a label.
pub(crate) const LONGEST_LABEL: usize = 63;

/// The stored Service of a name.
pub(crate) enum Current {
    /// There is none.
    Missing,
    /// It belongs to another object; its name.
    Foreign(String),
    /// It belongs to the owner.
    Owned {
        /// The stored form.
        entry: Arc<Entry>,
        /// The object.
        object: Value,
    },
}

impl Current {
    /// Reads the Service of this key, which should belong to the owner with this uid.
    pub(crate) fn read(view: &View<'_>, key: &str, owner: &str) -> Self {
        let Some(entry) = view.store.get(&Key::new(Table::named(TABLE), key)) else { return Self::Missing };
        let object = object::decode_bare(&entry.value);
        if object.items("metadata.ownerReferences").iter().any(|reference| reference.text("uid") == owner) {
            return Self::Owned { entry, object };
        }
        Self::Foreign(split(key).1.to_owned())
    }

    /// The write that deletes it, if it belongs to the owner and is not being deleted.
    pub(crate) fn deletion(&self) -> Option<Write> {
        match self {
            Self::Owned { entry, object } if !object.has("metadata.deletionTimestamp") => Some(Write::delete(entry)),
            _ => None,
        }
    }
}

/// What the owner of a Service determines.
pub(crate) struct Frontend<'a> {
    /// `namespace/name` of the Service.
    pub(crate) key: &'a str,
    /// The owner reference.
    pub(crate) owner: Value,
    /// All labels.
    pub(crate) labels: Map<String, Value>,
    /// All annotations.
    pub(crate) annotations: Map<String, Value>,
    /// The ports, in order.
    pub(crate) ports: Vec<Port>,
}

/// A port.
pub(crate) struct Port {
    /// Its number.
    pub(crate) number: u16,
    /// Its protocol.
    pub(crate) transport: Transport,
}

impl Frontend<'_> {
    /// The write that makes the Service as it should be, if there is one. A Service without ports is not created.
    pub(crate) fn write(self, current: &Current) -> Option<Write> {
        match current {
            Current::Missing if !self.ports.is_empty() => {
                Some(Write::create(TABLE, self.completed(json!({"apiVersion": "v1", "kind": "Service"}))))
            }
            Current::Owned { entry, object } if !object.has("metadata.deletionTimestamp") => {
                let new = self.completed(object.clone());
                let write = |new| Write::Object { table: TABLE, object: Box::new(new), modified: entry.modified };
                (new != *object).then(|| write(new))
            }
            _ => None,
        }
    }

    /// The Service with everything that the owner determines.
    fn completed(self, mut service: Value) -> Value {
        let (namespace, name) = split(self.key);
        service.put("metadata.name", name);
        service.put("metadata.namespace", namespace);
        for (path, members) in [("metadata.labels", self.labels), ("metadata.annotations", self.annotations)] {
            if members.is_empty() {
                service.drop_path(path);
            } else {
                service.put(path, members);
            }
        }
        if service.items("metadata.ownerReferences").is_empty() {
            service.put("metadata.ownerReferences", vec![self.owner]);
        }
        service.put("spec.type", "LoadBalancer");
        service.put("spec.allocateLoadBalancerNodePorts", false);
        service.drop_path("spec.selector");
        if !service.has("spec.ipFamilyPolicy") {
            service.put("spec.ipFamilyPolicy", "PreferDualStack");
        }
        if !self.ports.is_empty() {
            let stored = service.items("spec.ports").to_vec();
            let wanted: Vec<Value> = self.ports.into_iter().map(|port| port.completed(&stored)).collect();
            // The order of equal ports is that of the store.
            if wanted.len() != stored.len() || !wanted.iter().all(|port| stored.contains(port)) {
                service.put("spec.ports", wanted);
            }
        }
        KIND.rules.default(&mut service);
        service
    }
}

impl Port {
    /// The ports of these listeners; with HTTP/3, a UDP port beside each of HTTPS. A UDP listener has its port in any case.
    pub(crate) fn all(config: &GatewayConfig, http3: bool) -> Vec<Self> {
        let quic = |listener: &ListenerConfig| http3 && listener.protocol == ListenerProtocol::Https;
        let transports = |listener: &ListenerConfig| {
            [Some(listener.protocol.transport()), quic(listener).then_some(Transport::Udp)].into_iter().flatten()
        };
        let ports = config.listeners.iter().flat_map(|one| transports(one).map(move |transport| (one.port, transport)));
        let ports: BTreeSet<(u16, Transport)> = ports.collect();
        ports.into_iter().map(|(number, transport)| Self { number, transport }).collect()
    }

    fn completed(self, stored: &[Value]) -> Value {
        let protocol = match self.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        let is_same = |port: &&Value| port.int("port") == i64::from(self.number) && port.text("protocol") == protocol;
        let mut port = stored.iter().find(is_same).cloned().unwrap_or_else(|| json!({}));
        port.put("name", self.transport.port_name(self.number));
        port.put("protocol", protocol);
        port.put("port", self.number);
        port.put("targetPort", self.number);
        port
    }
}

/// Why the Service has no address yet; `None` when it has one, or when nothing is known.
pub(crate) fn why_pending(view: &View<'_>, service: &Value) -> Option<String> {
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
