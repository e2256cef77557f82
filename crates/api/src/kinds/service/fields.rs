//! Accessors for the fields of a Service that nearly every rule uses.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::status::Status;
use crate::value::ValueExt as _;

/// The cluster IP of a headless Service.
pub(super) const NONE: &str = "None";
pub(super) const SINGLE_STACK: &str = "SingleStack";
pub(super) const PREFER_DUAL_STACK: &str = "PreferDualStack";
pub(super) const REQUIRE_DUAL_STACK: &str = "RequireDualStack";

pub(super) const SPEC: Path<'static> = Path::Root("spec");

pub(super) fn kind_of(service: &Value) -> &str {
    service.text("spec.type")
}

pub(super) fn is_external_name(service: &Value) -> bool {
    kind_of(service) == "ExternalName"
}

pub(super) fn is_load_balancer(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer"
}

/// The type is one of those whose traffic also comes in at the nodes.
pub(super) fn has_node_ports(service: &Value) -> bool {
    matches!(kind_of(service), "NodePort" | "LoadBalancer")
}

/// Ports without a node port get one.
pub(super) fn allocates_node_ports(service: &Value) -> bool {
    match kind_of(service) {
        "NodePort" => true,
        "LoadBalancer" => service.at("spec.allocateLoadBalancerNodePorts").as_bool().unwrap_or(true),
        _ => false,
    }
}

/// Traffic from outside may reach it, so its policy for such traffic means something.
pub(super) fn is_externally_accessible(service: &Value) -> bool {
    has_node_ports(service) || (kind_of(service) == "ClusterIP" && !service.items("spec.externalIPs").is_empty())
}

/// A load balancer queries each node whether it has endpoints.
pub(super) fn needs_health_check(service: &Value) -> bool {
    is_load_balancer(service) && service.text("spec.externalTrafficPolicy") == "Local"
}

/// Its only cluster IP is `None`.
pub(super) fn is_headless(service: &Value) -> bool {
    matches!(service.items("spec.clusterIPs"), [only] if only == NONE)
}

/// Headless by the singular field, and without a selector.
pub(super) fn is_headless_without_selector(service: &Value) -> bool {
    service.text("spec.clusterIP") == NONE && service.map("spec.selector").is_none_or(serde_json::Map::is_empty)
}

pub(super) fn same(left: &Value, right: &Value, path: &str) -> bool {
    left.items(path) == right.items(path)
}

/// A 422 with one field error.
pub(super) fn refuse(service: &Value, complain: impl FnOnce(&mut Errors)) -> Status {
    let mut errors = Errors::default();
    complain(&mut errors);
    refuse_all(service, &errors)
}

/// A 422 with these field errors.
pub(super) fn refuse_all(service: &Value, errors: &Errors) -> Status {
    Status::invalid("", "Service", service.text("metadata.name"), errors)
}
