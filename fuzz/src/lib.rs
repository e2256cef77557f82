//! What the targets share: which kind an input is about, objects for patches to work on, heads of requests, and what must hold of filters.
//!
//! The first byte of an input picks a kind, so that one corpus serves all of them.

pub mod filters;
mod requests;

pub use requests::{PATHS, Requested, requested};

use api::kind::Kind;
use api::kinds::KINDS;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

/// The kind that the first byte picks, and the rest of the input.
#[must_use]
pub fn pick(data: &[u8]) -> Option<(&'static Kind, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((KINDS[usize::from(*first) % KINDS.len()], rest))
}

/// An object of this kind with lists, maps and numbers of most sorts, checked and defaulted.
///
/// # Panics
/// When the sample does not fit the schema any more.
#[must_use]
pub fn sample(kind: &Kind) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "x"}, "finalizers": ["a/b", "c/d"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}],
        },
    });
    let parts = match kind.kind {
        "Service" => json!({
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "selector": {"app": "web"},
                "ports": [{"name": "a", "port": 80, "targetPort": "http", "nodePort": 30080}, {"name": "b", "port": 81, "protocol": "UDP"}],
                "loadBalancerSourceRanges": ["192.0.2.0/24"],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": [{"type": "Ready", "status": "True"}]},
        }),
        "Pod" => json!({
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}],
                "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k", "operator": "Exists"}],
            },
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        }),
        "EndpointSlice" => json!({
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
            "ports": [{"name": "a", "port": 80, "protocol": "TCP"}],
        }),
        "Endpoints" => json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "a", "port": 80}]}]}),
        "Node" => {
            json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}})
        }
        "ConfigMap" => json!({"data": {"a": "b"}, "binaryData": {"c": "AAEC"}}),
        "ServiceCIDR" => json!({"spec": {"cidrs": ["10.96.0.0/16"]}}),
        "Lease" => {
            json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}})
        }
        _ => json!({}),
    };
    if let (Some(object), Value::Object(parts)) = (object.as_object_mut(), parts) {
        object.extend(parts);
    }
    api::decode::check(kind.type_id(), &mut object).expect("a sample of the right shape");
    kind.rules.default(&mut object);
    object
}

/// Two parts of an input, with a zero byte between them; the second may be missing.
#[must_use]
pub fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

/// The head of a request.
pub struct Head {
    /// Its method.
    pub method: Method,
    /// What its `Host` says.
    pub host: String,
    /// Its target.
    pub target: Uri,
    /// Its headers, without `Host`.
    pub headers: HeaderMap,
}

/// Lines of text as the head of a request: method, host, target, then headers. Headers that are not valid are left out.
#[must_use]
pub fn head(data: &[u8]) -> Option<Head> {
    let mut lines = std::str::from_utf8(data).ok()?.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, host, target) = (line(), line(), line());
    let (method, target) = (Method::from_bytes(method.as_bytes()).ok()?, target.parse().ok()?);
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value.trim())) {
            headers.append(name, value);
        }
    }
    Some(Head { method, host: host.to_owned(), target, headers })
}
