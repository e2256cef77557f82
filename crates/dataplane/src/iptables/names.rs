//! Chain names, the same as those of kube-proxy.
//!
//! Chains of Service ports and endpoints are named by a hash, since chain names are limited to 28 characters.

use std::net::SocketAddr;

use kernel::iptables::Name;
use plan::{Backend, PortKey, RedirectedFrontends};
use ring::digest::{SHA256, digest};

/// Dispatches packets to Services (nat and filter).
pub(super) const SERVICES: &str = "KUBE-SERVICES";
/// Dispatches packets to node ports (nat); accepts health checks (filter).
pub(super) const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Rejects external packets.
pub(super) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Drops packets to load balancers from sources that are not allowed.
pub(super) const FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Accepts forwarded packets.
pub(super) const FORWARD: &str = "KUBE-FORWARD";
/// Marks packets to masquerade.
pub(super) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// The same, unless they come from a Pod; used where Pods have more than one range.
pub(super) const MARK_NOT_POD: &str = "KUBE-MARK-NOT-POD";
/// Masquerades marked packets.
pub(super) const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Detects flushed tables and identifies our rules.
pub(super) const CANARY: &str = "KUBE-PROXY-CANARY";

const PER_PORT: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];
const SINGLE: [&str; 9] =
    [SERVICES, NODE_PORTS, EXTERNAL_SERVICES, FIREWALL, FORWARD, MARK_MASQ, MARK_NOT_POD, POSTROUTING, CANARY];

/// Whether a chain has one of our names.
pub(super) fn is_ours(name: &str) -> bool {
    SINGLE.contains(&name) || PER_PORT.iter().any(|prefix| name.starts_with(prefix))
}

/// Names of the chains of a Service port.
pub(super) struct Names {
    /// `namespace/name:port`.
    pub(super) port: String,
    protocol: String,
    hash: String,
}

impl Names {
    /// Names of a port.
    pub(super) fn of(key: &PortKey) -> Self {
        let PortKey { service, port, redirected, .. } = key;
        // Unique: names of Services contain no dots.
        let suffix = match redirected {
            None => "",
            Some(RedirectedFrontends::LoadBalancer) => ".gateway",
            Some(RedirectedFrontends::ClusterIp) => ".layer7",
        };
        let port = if port.is_empty() { format!("{service}{suffix}") } else { format!("{service}{suffix}:{port}") };
        let protocol = key.protocol.as_str().to_lowercase();
        let hash = hash(&[&port, &protocol]);
        Self { port, protocol, hash }
    }

    /// Chain of all endpoints.
    pub(super) fn cluster(&self) -> Name {
        format!("KUBE-SVC-{}", self.hash).into()
    }

    /// Chain of the local endpoints.
    pub(super) fn local(&self) -> Name {
        format!("KUBE-SVL-{}", self.hash).into()
    }

    /// Chain of external traffic.
    pub(super) fn external(&self) -> Name {
        format!("KUBE-EXT-{}", self.hash).into()
    }

    /// Chain of external traffic with source restrictions.
    pub(super) fn firewall(&self) -> Name {
        format!("KUBE-FW-{}", self.hash).into()
    }

    /// Chain of an endpoint.
    pub(super) fn endpoint(&self, backend: Backend) -> Name {
        let address = SocketAddr::new(backend.ip, backend.port).to_string();
        format!("KUBE-SEP-{}", hash(&[&self.port, &self.protocol, &address])).into()
    }
}

/// Hash of sixteen base32 letters.
fn hash(words: &[&str]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digest = digest(&SHA256, words.concat().as_bytes());
    let (mut bits, mut held) = (0u32, 0);
    let mut out = String::with_capacity(16);
    for byte in digest.as_ref().iter().take(10) {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            out.push(char::from(LETTERS[(bits >> held & 31) as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_those_of_kube_proxy() {
        let key = PortKey {
            service: "ns1/svc1".into(),
            port: "p80".into(),
            protocol: plan::Protocol::Tcp,
            family: api::ip::Family::V4,
            redirected: None,
        };
        let names = Names::of(&key);
        assert_eq!(&*names.cluster(), "KUBE-SVC-XPGD46QRK7WJZT7O");
        let [gateway, layer7] = [RedirectedFrontends::LoadBalancer, RedirectedFrontends::ClusterIp]
            .map(|frontends| Names::of(&PortKey { redirected: Some(frontends), ..key.clone() }).cluster());
        assert!(gateway != names.cluster() && layer7 != names.cluster() && gateway != layer7);
        let backend = Backend { ip: "10.180.0.1".parse().expect("an address"), port: 80 };
        assert_eq!(&*names.endpoint(backend), "KUBE-SEP-SXIVWICOYRO3J4NJ");
        assert!(is_ours(&names.endpoint(backend)) && is_ours(SERVICES));
        assert!(!is_ours("KUBE-KUBELET-CANARY") && !is_ours("KUBE-FIREWALL") && !is_ours("DOCKER"));
    }
}
