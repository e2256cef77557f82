//! The Service of a Gateway: of type LoadBalancer, without selector and node ports. Its load-balancer addresses are those of the Gateway, and the nodes
//! lead them to the listeners (`waypost.dev/gateway`).
//!
//! In: the Gateway, its programmed listeners, the stored Service. Out: the write that makes the Service as it should be ([`crate::frontend`]). Labels and
//! annotations are exactly those of `spec.infrastructure` and our own. While no listener is programmed the ports stay as they are, so that the addresses
//! are kept.

use api::view::StringMap;
use api::view::annotations::GATEWAY;
use api::view::gateway_api::{GROUP, Gateway};
use routing::model::GatewayConfig;
use serde_json::{Map, Value, json};

pub(super) use crate::frontend::{Current, TABLE, why_pending};
use crate::frontend::{Frontend, LONGEST_LABEL, Port};
use crate::objects::gateway_api::service_key;
use crate::objects::load_balancer::annotations::ADDRESSES;
use crate::objects::split;
use crate::write::Write;

/// The write that makes the Service as it should be, if there is one.
pub(super) fn write(
    key: &str,
    gateway: &Gateway,
    (config, http3): (Option<&GatewayConfig>, bool),
    current: &Current,
) -> Option<Write> {
    let (service, (_, name)) = (service_key(key), split(key));
    let frontend = Frontend {
        key: &service,
        owner: json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Gateway", "name": name, "uid": gateway.metadata.uid,
            "controller": true, "blockOwnerDeletion": true,
        }),
        labels: labels(name, gateway),
        annotations: annotations(name, gateway),
        ports: config.map(|config| Port::all(config, http3)).unwrap_or_default(),
    };
    frontend.write(current)
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
