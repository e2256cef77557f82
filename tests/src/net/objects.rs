//! API objects that proxy tests give to the program, with the fields a real cluster would fill in.
//!
//! In: what a test cares about. Out: JSON for the rest too. Modifiers of ports and endpoints act on the one named last:
//! `service("web").port(80).target(8080).node_port(30080)`.

use serde_json::{Value, json};

use super::{Address, Family, Node, Pod, Protocol};

/// A Service in the namespace `default`: type `ClusterIP`, no address, no port, no selector.
#[must_use]
pub fn service(name: &str) -> Service {
    Service(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ports": [] },
        "status": { "loadBalancer": {} },
    }))
}

/// An IPv4 EndpointSlice of a Service in the namespace `default`: no port, no endpoint.
#[must_use]
pub fn slice(service: &str) -> Slice {
    Slice {
        service: service.to_owned(),
        suffix: None,
        family: Family::V4,
        value: json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "namespace": "default", "labels": { "kubernetes.io/service-name": service } },
            "ports": [],
            "endpoints": [],
        }),
    }
}

/// The Node object of a node: its addresses, its pod ranges, ready.
#[must_use]
pub fn node(node: &Node) -> NodeObject {
    let name = node.name();
    let [v4, v6] = node.pod_cidrs();
    NodeObject(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
        "spec": { "podCIDR": v4, "podCIDRs": [v4, v6] },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": node.v4().to_string() },
                { "type": "InternalIP", "address": node.v6().to_string() },
                { "type": "Hostname", "address": name },
            ],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    }))
}

/// The Pod object of a pod: with its addresses, running, and ready or not.
#[must_use]
pub fn pod(pod: &Pod, label: (&str, &str), ready: bool) -> Value {
    let ips: Vec<Value> = Family::BOTH.iter().map(|family| json!({ "ip": pod.address(*family).to_string() })).collect();
    let status = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name(), "namespace": "default", "labels": { label.0: label.1 } },
        "spec": { "nodeName": pod.node_name(), "containers": [{ "name": "main", "image": "main" }] },
        "status": {
            "phase": "Running",
            "podIP": pod.v4().to_string(),
            "podIPs": ips,
            "conditions": [{ "type": "Ready", "status": status }],
        },
    })
}

/// A Service in the making.
#[derive(Clone, Debug)]
pub struct Service(Value);

impl Service {
    /// In this namespace.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.0["metadata"]["namespace"] = name.into();
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// With this annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Selects pods with this label. Without, slices are the test's to write.
    #[must_use]
    pub fn selector(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["selector"][key] = value.into();
        self
    }

    /// With this cluster IP; a second one, of the other family, makes it dual-stack.
    #[must_use]
    pub fn cluster_ip(mut self, address: impl Address) -> Self {
        let address = address.address();
        let spec = &mut self.0["spec"];
        push(&mut spec["clusterIPs"], address.to_string().into());
        push(&mut spec["ipFamilies"], Family::of(address).name().into());
        let count = spec["clusterIPs"].as_array().map_or(0, Vec::len);
        spec["ipFamilyPolicy"] = if count == 2 { "RequireDualStack" } else { "SingleStack" }.into();
        spec["clusterIP"] = spec["clusterIPs"][0].clone();
        self
    }

    /// Without a virtual IP.
    #[must_use]
    pub fn headless(mut self) -> Self {
        self.0["spec"]["clusterIP"] = "None".into();
        self.0["spec"]["clusterIPs"] = json!(["None"]);
        self
    }

    /// One more port: unnamed, TCP, with the same number behind it.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        push(&mut self.0["spec"]["ports"], json!({ "protocol": "TCP", "port": port, "targetPort": port }));
        self
    }

    /// The last port has this name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with_port("name", name.into())
    }

    /// Sets the protocol of the last port.
    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with_port("protocol", protocol.name().into())
    }

    /// The last port leads to this one: a number, or the name of a container port.
    #[must_use]
    pub fn target(self, target: impl Into<Value>) -> Self {
        self.with_port("targetPort", target.into())
    }

    /// The last port has this application protocol.
    #[must_use]
    pub fn app_protocol(self, name: &str) -> Self {
        self.with_port("appProtocol", name.into())
    }

    /// The last port has this node port; the Service becomes a `NodePort` unless it is more already.
    #[must_use]
    pub fn node_port(self, port: u16) -> Self {
        self.at_least_node_port().with_port("nodePort", port.into())
    }

    /// With this external IP.
    #[must_use]
    pub fn external_ip(mut self, address: impl Address) -> Self {
        push(&mut self.0["spec"]["externalIPs"], address.address().to_string().into());
        self
    }

    /// A `LoadBalancer` that has got this address, which nodes are to answer themselves.
    #[must_use]
    pub fn load_balancer(self, address: impl Address) -> Self {
        self.ingress(json!({ "ip": address.address().to_string(), "ipMode": "VIP" }))
    }

    /// A `LoadBalancer` that has got this address, which only the balancer itself answers.
    #[must_use]
    pub fn load_balancer_proxy(self, address: impl Address) -> Self {
        self.ingress(json!({ "ip": address.address().to_string(), "ipMode": "Proxy" }))
    }

    /// A `LoadBalancer` lets these in only.
    #[must_use]
    pub fn source_range(mut self, range: &str) -> Self {
        push(&mut self.0["spec"]["loadBalancerSourceRanges"], range.into());
        self
    }

    /// External traffic stays on the node it came to. For a Service that has node ports, external or balanced addresses.
    #[must_use]
    pub fn policy_local(mut self) -> Self {
        self.0["spec"]["externalTrafficPolicy"] = "Local".into();
        self
    }

    /// Internal traffic stays on the node it came from.
    #[must_use]
    pub fn internal_local(mut self) -> Self {
        self.0["spec"]["internalTrafficPolicy"] = "Local".into();
        self
    }

    /// The port at which nodes tell balancers whether they have endpoints.
    #[must_use]
    pub fn health_port(mut self, port: u16) -> Self {
        self.0["spec"]["healthCheckNodePort"] = port.into();
        self
    }

    /// Enables session affinity with this timeout.
    #[must_use]
    pub fn affinity(mut self, seconds: u32) -> Self {
        self.0["spec"]["sessionAffinity"] = "ClientIP".into();
        self.0["spec"]["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": seconds } });
        self
    }

    /// Any other field of the spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][field] = value.into();
        self
    }

    /// The object.
    #[must_use]
    pub fn json(self) -> Value {
        self.0
    }

    fn with_port(mut self, field: &str, value: Value) -> Self {
        last(&mut self.0["spec"]["ports"], "port")[field] = value;
        self
    }

    fn ingress(mut self, entry: Value) -> Self {
        self = self.at_least_node_port();
        self.0["spec"]["type"] = "LoadBalancer".into();
        push(&mut self.0["status"]["loadBalancer"]["ingress"], entry);
        self
    }

    fn at_least_node_port(mut self) -> Self {
        let spec = &mut self.0["spec"];
        if spec["type"] == "ClusterIP" {
            spec["type"] = "NodePort".into();
        }
        if spec["externalTrafficPolicy"].is_null() {
            spec["externalTrafficPolicy"] = "Cluster".into();
        }
        self
    }
}

/// An EndpointSlice in the making.
#[derive(Clone, Debug)]
pub struct Slice {
    service: String,
    suffix: Option<String>,
    family: Family,
    value: Value,
}

impl Slice {
    /// In this namespace.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.value["metadata"]["namespace"] = name.into();
        self
    }

    /// Of IPv6 addresses. To be set before the first endpoint.
    #[must_use]
    pub fn v6(self) -> Self {
        self.family(Family::V6)
    }

    /// Of addresses of this family. To be set before the first endpoint.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Named after the Service with this at its end, where the family alone does not tell two slices apart.
    #[must_use]
    pub fn suffix(mut self, suffix: &str) -> Self {
        self.suffix = Some(suffix.to_owned());
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.value["metadata"]["labels"][key] = value.into();
        self
    }

    /// One more port: unnamed, TCP.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        push(&mut self.value["ports"], json!({ "name": "", "protocol": "TCP", "port": port }));
        self
    }

    /// The last port has this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        last(&mut self.value["ports"], "port")["name"] = name.into();
        self
    }

    /// Sets the protocol of the last port.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        last(&mut self.value["ports"], "port")["protocol"] = protocol.name().into();
        self
    }

    /// One more endpoint, ready: a pod.
    #[must_use]
    pub fn endpoint(self, pod: &Pod) -> Self {
        let namespace = self.value["metadata"]["namespace"].clone();
        let target = json!({ "kind": "Pod", "namespace": namespace, "name": pod.name() });
        let address = pod.address(self.family);
        self.address(address).on_node(pod.node_name()).with_endpoint("targetRef", target)
    }

    /// One more endpoint, ready: an address, of no node.
    #[must_use]
    pub fn address(mut self, address: impl Address) -> Self {
        let conditions = json!({ "ready": true, "serving": true, "terminating": false });
        let address = address.address().to_string();
        push(&mut self.value["endpoints"], json!({ "addresses": [address], "conditions": conditions }));
        self
    }

    /// The last endpoint is not ready.
    #[must_use]
    pub fn not_ready(self) -> Self {
        self.with_endpoint("conditions", json!({ "ready": false, "serving": false, "terminating": false }))
    }

    /// The last endpoint is about to end, and still serves.
    #[must_use]
    pub fn terminating(self) -> Self {
        self.with_endpoint("conditions", json!({ "ready": false, "serving": true, "terminating": true }))
    }

    /// The last endpoint is about to end, and serves no more.
    #[must_use]
    pub fn terminated(self) -> Self {
        self.with_endpoint("conditions", json!({ "ready": false, "serving": false, "terminating": true }))
    }

    /// The last endpoint is on this node.
    #[must_use]
    pub fn on_node(self, name: &str) -> Self {
        self.with_endpoint("nodeName", name.into())
    }

    /// The last endpoint is in this zone.
    #[must_use]
    pub fn zone(self, name: &str) -> Self {
        self.with_endpoint("zone", name.into())
    }

    /// The last endpoint is meant for clients of this zone.
    #[must_use]
    pub fn hint_zone(mut self, name: &str) -> Self {
        push(&mut last(&mut self.value["endpoints"], "endpoint")["hints"]["forZones"], json!({ "name": name }));
        self
    }

    /// The last endpoint is meant for clients of this node.
    #[must_use]
    pub fn hint_node(mut self, name: &str) -> Self {
        push(&mut last(&mut self.value["endpoints"], "endpoint")["hints"]["forNodes"], json!({ "name": name }));
        self
    }

    /// The object.
    #[must_use]
    pub fn json(mut self) -> Value {
        let suffix = self.suffix.unwrap_or_else(|| self.family.name().to_lowercase());
        self.value["metadata"]["name"] = format!("{}-{suffix}", self.service).into();
        self.value["addressType"] = self.family.name().into();
        self.value
    }

    fn with_endpoint(mut self, field: &str, value: Value) -> Self {
        last(&mut self.value["endpoints"], "endpoint")[field] = value;
        self
    }
}

/// A Node object in the making.
#[derive(Clone, Debug)]
pub struct NodeObject(Value);

impl NodeObject {
    /// In this zone.
    #[must_use]
    pub fn zone(self, name: &str) -> Self {
        self.label("topology.kubernetes.io/zone", name)
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// The object.
    #[must_use]
    pub fn json(self) -> Value {
        self.0
    }
}

/// Appends to a list that may not be there yet.
fn push(list: &mut Value, value: Value) {
    match list {
        Value::Array(list) => list.push(value),
        absent => *absent = json!([value]),
    }
}

fn last<'a>(list: &'a mut Value, what: &str) -> &'a mut Value {
    list.as_array_mut().and_then(|list| list.last_mut()).unwrap_or_else(|| panic!("name a {what} first"))
}
