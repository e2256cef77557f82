//! Which addresses the server dials for clients: agents of Nodes, Pods, webhooks.
//!
//! In: an address from an object. Out: whether the server may dial it. Nodes write their own addresses and those of their Pods, so a
//! compromised Node could otherwise make the server, which can reach more, connect to anything: its loopback, the metadata service of a
//! cloud, Services, the API itself (SSRF).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use api::{field, ip};
use ipnet::IpNet;

/// The IPv6 metadata service of AWS; its IPv4 address is link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// Agents do not listen below this port; system services do.
const FIRST_AGENT_PORT: u16 = 1024;

/// Addresses that are not dialed, besides those that no Node or Pod can have.
pub(crate) struct DialPolicy {
    /// The addresses of the API.
    listening: Vec<SocketAddr>,
    /// The Node whose agent runs in this process, if any.
    local_node: Option<String>,
}

impl DialPolicy {
    pub(crate) const fn new(listening: Vec<SocketAddr>, local_node: Option<String>) -> Self {
        Self { listening, local_node }
    }

    /// Whether the agent of a Node may have an address. `services` are the Service CIDRs.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn agent(&self, node: &str, at: SocketAddr, services: &[IpNet]) -> Result<(), &'static str> {
        if at.port() < FIRST_AGENT_PORT {
            return Err("agents do not listen at ports below 1024");
        }
        if at.ip().to_canonical().is_loopback() && self.shares_machine(node) {
            return if self.is_api(at) { Err("the API listens there") } else { Ok(()) };
        }
        self.pod(at, services)
    }

    /// Whether a Pod may have an address. `services` are the Service CIDRs.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn pod(&self, at: SocketAddr, services: &[IpNet]) -> Result<(), &'static str> {
        let ip = at.ip().to_canonical();
        if !is_ordinary(ip) {
            return Err("the address is loopback, link-local, multicast or reserved");
        }
        if services.iter().any(|range| range.contains(&ip)) {
            return Err("the address is that of a Service");
        }
        if self.is_api(at) {
            return Err("the API listens there");
        }
        Ok(())
    }

    /// Whether a webhook with a URL may have an address. Loopback is allowed only if the API is served on loopback alone: otherwise
    /// local services, which may trust local clients, could be reached.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn webhook(&self, at: SocketAddr, services: &[IpNet]) -> Result<(), &'static str> {
        if at.ip().to_canonical().is_loopback() && self.listening.iter().all(|own| own.ip().is_loopback()) {
            return if self.is_api(at) { Err("the API listens there") } else { Ok(()) };
        }
        self.pod(at, services)
    }

    /// Whether a Node is on the machine of the server. A server on loopback alone is reached only by agents of its machine.
    fn shares_machine(&self, node: &str) -> bool {
        self.local_node.as_deref() == Some(node) || self.listening.iter().all(|at| at.ip().is_loopback())
    }

    fn is_api(&self, at: SocketAddr) -> bool {
        let ip = at.ip().to_canonical();
        // The addresses of this machine may change: where the API listens on all of them, its port is excluded.
        let is_at = |own: &SocketAddr| own.port() == at.port() && (own.ip().is_unspecified() || own.ip() == ip);
        self.listening.iter().any(is_at)
    }
}

/// Whether a machine or a Pod may have an address: not loopback, link-local or multicast.
fn is_ordinary(address: IpAddr) -> bool {
    let mut errors = field::Errors::default();
    ip::check_not_special(&field::Path::Root("ip"), &address.to_string(), &mut errors);
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    errors.is_empty() && !address.is_multicast() && !broadcast && address != IpAddr::V6(METADATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(listening: &[&str], local_node: Option<&str>) -> DialPolicy {
        let listening = listening.iter().map(|at| at.parse().unwrap()).collect();
        DialPolicy::new(listening, local_node.map(str::to_owned))
    }

    fn services() -> [IpNet; 2] {
        ["10.96.0.0/16", "fd00:10:96::/112"].map(|range| range.parse().unwrap())
    }

    #[test]
    fn s15_special_addresses_are_no_pods() {
        let policy = policy(&["192.0.2.10:6443"], None);
        let may = |at: &str| policy.pod(at.parse().unwrap(), &services()).is_ok();
        for at in [
            "127.0.0.1:80",
            "[::1]:80",
            "169.254.169.254:80",
            "[fe80::1]:80",
            "224.0.0.1:80",
            "0.0.0.0:80",
            "255.255.255.255:80",
            "[::ffff:127.0.0.1]:80",
            "[fd00:ec2::254]:80",
            "10.96.0.1:443",
            "[::ffff:10.96.0.1]:443",
            "[fd00:10:96::1]:443",
            "192.0.2.10:6443",
        ] {
            assert!(!may(at), "{at}");
        }
        for at in ["10.244.0.7:80", "[fd00:10:244::7]:80", "192.0.2.1:6443", "192.0.2.10:80"] {
            assert!(may(at), "{at}");
        }
    }

    #[test]
    fn webhooks_are_at_loopback_only_beside_a_local_api() {
        let may = |policy: &DialPolicy, at: &str| policy.webhook(at.parse().unwrap(), &services()).is_ok();
        let (public, local) = (policy(&["192.0.2.10:6443"], Some("here")), policy(&["127.0.0.1:6443"], None));
        assert!(may(&public, "192.0.2.11:443") && may(&local, "192.0.2.11:443") && may(&local, "127.0.0.1:8443"));
        assert!(!may(&public, "127.0.0.1:8443") && !may(&local, "127.0.0.1:6443"));
        for at in ["169.254.169.254:443", "10.96.0.7:443", "0.0.0.0:443"] {
            assert!(!may(&public, at) && !may(&local, at), "{at}");
        }
    }

    #[test]
    fn agents_are_dialed_only_at_addresses_of_machines() {
        let public = policy(&["192.0.2.10:6443"], Some("here"));
        let may =
            |policy: &DialPolicy, node: &str, at: &str| policy.agent(node, at.parse().unwrap(), &services()).is_ok();
        assert!(may(&public, "n1", "192.0.2.11:10250") && may(&public, "n1", "192.0.2.10:10250"));
        for at in ["192.0.2.11:22", "192.0.2.11:1023", "127.0.0.1:10250", "169.254.169.254:8080", "10.96.0.1:8443"] {
            assert!(!may(&public, "n1", at), "{at}");
        }
        assert!(!may(&public, "n1", "192.0.2.10:6443"), "that is the API");
        assert!(may(&public, "here", "127.0.0.1:10250"), "the agent in the same process");
        let local = policy(&["127.0.0.1:6443"], None);
        assert!(may(&local, "n1", "127.0.0.1:10250"), "every agent is on this machine");
        assert!(!may(&local, "n1", "127.0.0.1:6443") && !may(&local, "n1", "127.0.0.1:22"));
        let everywhere = policy(&["0.0.0.0:6443"], None);
        assert!(!may(&everywhere, "n1", "192.0.2.77:6443") && !may(&everywhere, "n1", "127.0.0.1:10250"));
    }
}
