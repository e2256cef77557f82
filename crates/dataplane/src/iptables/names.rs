//! Names of chains: those that every tool which knows kube-proxy looks for.
//!
//! Chains of a Service port, and of an endpoint of one, are named by a hash, since names are short here and those of Services
//! are not.

use std::net::SocketAddr;

use kernel::iptables::Name;
use plan::{Backend, PortKey};
use ring::digest::{SHA256, digest};

/// Where packets to Services are told apart (in two tables).
pub(super) const SERVICES: &str = "KUBE-SERVICES";
/// Where packets to node ports are told apart; in the other table, where health checks are let in.
pub(super) const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// What is refused of packets from outside.
pub(super) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// What is left of packets to load balancers is not allowed.
pub(super) const FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// What may be forwarded.
pub(super) const FORWARD: &str = "KUBE-FORWARD";
/// Marks packets whose sender the endpoint is not to see.
pub(super) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// Marks them so unless they come from a Pod, where Pods have more than one range.
pub(super) const MARK_NOT_POD: &str = "KUBE-MARK-NOT-POD";
/// Hides the senders of packets that are marked.
pub(super) const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Is missed when somebody empties a table, and says whose the others are.
pub(super) const CANARY: &str = "KUBE-PROXY-CANARY";

const PER_PORT: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];
const SINGLE: [&str; 9] =
    [SERVICES, NODE_PORTS, EXTERNAL_SERVICES, FIREWALL, FORWARD, MARK_MASQ, MARK_NOT_POD, POSTROUTING, CANARY];

/// Whether a chain of this name is ours to keep right.
pub(super) fn is_ours(name: &str) -> bool {
    SINGLE.contains(&name) || PER_PORT.iter().any(|prefix| name.starts_with(prefix))
}

/// Names that follow from a Service port.
pub(super) struct Names {
    /// `namespace/name:port`, as people know it.
    pub(super) port: String,
    protocol: String,
    hash: String,
}

impl Names {
    /// The names of a port.
    pub(super) fn of(key: &PortKey) -> Self {
        let PortKey { service, port, .. } = key;
        let port = if port.is_empty() { service.to_string() } else { format!("{service}:{port}") };
        let protocol = key.protocol.as_str().to_lowercase();
        let hash = hash(&[&port, &protocol]);
        Self { port, protocol, hash }
    }

    /// One of all its endpoints.
    pub(super) fn cluster(&self) -> Name {
        format!("KUBE-SVC-{}", self.hash).into()
    }

    /// One of its endpoints on this node.
    pub(super) fn local(&self) -> Name {
        format!("KUBE-SVL-{}", self.hash).into()
    }

    /// Traffic from outside.
    pub(super) fn external(&self) -> Name {
        format!("KUBE-EXT-{}", self.hash).into()
    }

    /// Traffic from outside that only some may send.
    pub(super) fn guarded(&self) -> Name {
        format!("KUBE-FW-{}", self.hash).into()
    }

    /// One endpoint.
    pub(super) fn endpoint(&self, backend: Backend) -> Name {
        let address = SocketAddr::new(backend.ip, backend.port).to_string();
        format!("KUBE-SEP-{}", hash(&[&self.port, &self.protocol, &address])).into()
    }
}

/// Sixteen letters that stand for these words.
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
    fn names_are_those_that_tools_know() {
        let key = PortKey {
            service: "ns1/svc1".into(),
            port: "p80".into(),
            protocol: plan::Protocol::Tcp,
            family: api::ip::Family::V4,
        };
        let names = Names::of(&key);
        assert_eq!(&*names.cluster(), "KUBE-SVC-XPGD46QRK7WJZT7O");
        let backend = Backend { ip: "10.180.0.1".parse().expect("an address"), port: 80 };
        assert_eq!(&*names.endpoint(backend), "KUBE-SEP-SXIVWICOYRO3J4NJ");
        assert!(is_ours(&names.endpoint(backend)) && is_ours(SERVICES));
        assert!(!is_ours("KUBE-KUBELET-CANARY") && !is_ours("KUBE-FIREWALL") && !is_ours("DOCKER"));
    }
}
