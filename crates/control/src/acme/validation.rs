//! Whether a CA can validate a host as things are, and whether that would prove that the host belongs to a namespace.
//!
//! In: hosts, the listeners of a Gateway. Out: what prevents a validation. The listeners are prepared once for all objects of a Gateway: tenants may
//! attach thousands.

use std::collections::HashMap;
use std::sync::Arc;

use api::acme::Challenge;
use routing::hosts::HostMap;
use routing::model::{GatewayConfig, ListenerConfig, ListenerProtocol};

use crate::objects::split;

/// Why a host cannot be validated yet.
pub(super) enum Obstacle {
    /// It will pass without the owner.
    Later,
    /// What the owner should change.
    Change(String),
}

/// The listeners of a Gateway at the ports that a CA contacts.
#[derive(Default)]
pub(super) struct Ports {
    http: HostMap<Arc<ListenerConfig>>,
    https: HostMap<Arc<ListenerConfig>>,
    /// For each hostname without wildcard, the first listener that has it.
    owners: HashMap<Arc<str>, Arc<ListenerConfig>>,
}

/// Whether a host can be validated at all.
pub(super) fn valid(host: &str) -> Result<(), String> {
    if host.starts_with("*.") {
        return Err(format!(
            "{host} is a wildcard, which a CA validates by DNS-01 only; list the hosts, or use cert-manager"
        ));
    }
    let is_name =
        api::names::dns_subdomain(host).is_empty() && host.contains('.') && host.parse::<std::net::IpAddr>().is_err();
    is_name.then_some(()).ok_or_else(|| format!("{host} is not a host name with a domain"))
}

impl Ports {
    pub(super) fn of(config: &GatewayConfig) -> Self {
        let mut ports = Self::default();
        // Those of the Gateway, then those of its sets, the oldest first.
        for listener in &config.listeners {
            let port = match listener.port {
                80 => &mut ports.http,
                443 => &mut ports.https,
                _ => continue,
            };
            port.insert(listener.hostname.as_deref(), Arc::clone(listener));
            if let Some(host) = listener.hostname.as_ref().filter(|host| !host.starts_with("*.")) {
                ports.owners.entry(Arc::clone(host)).or_insert_with(|| Arc::clone(listener));
            }
        }
        ports
    }

    /// Whether validations of a host arrive at the Gateway, and the host belongs to this namespace: that of the first listener with this hostname on
    /// either port, otherwise that of the listener which takes the host. With one port only, a tenant could get the certificate of another one, who
    /// has the host on the other port.
    pub(super) fn check(&self, namespace: &str, host: &str, challenge: Challenge) -> Result<(), Obstacle> {
        let (on_port, port, other) = match challenge {
            Challenge::Http => (&self.http, 80, Challenge::TlsAlpn),
            Challenge::TlsAlpn => (&self.https, 443, Challenge::Http),
        };
        let (name, other) = (challenge.name(), other.name());
        let Some(listener) = on_port.find(host) else {
            // The listener of the certificate itself opens when there is one.
            let missing = || {
                format!(
                    "no HTTP listener on port 80 takes {host}, as {name} needs it; add one, or set the annotation to {other}"
                )
            };
            return Err(if challenge == Challenge::Http { Obstacle::Change(missing()) } else { Obstacle::Later });
        };
        let fits = match challenge {
            Challenge::Http => listener.protocol == ListenerProtocol::Http,
            Challenge::TlsAlpn => listener.protocol.ends_tls(),
        };
        let named = self.owners.get(host).filter(|_| fits);
        if fits && split(owner(named.unwrap_or(listener))).0 == namespace {
            return Ok(());
        }
        Err(Obstacle::Change(match named {
            Some(first) => format!(
                "listener {} of {} takes {host} on port {}, so the host belongs to its namespace; use another host, or have that listener removed",
                first.id.name,
                owner(first),
                first.port,
            ),
            None => format!(
                "listener {} of {} takes {host} on port {port}; {name} needs one of namespace {namespace} there that {}; or set the annotation to {other}",
                listener.id.name,
                owner(listener),
                if challenge == Challenge::Http { "reads HTTP" } else { "ends TLS" },
            ),
        }))
    }
}

/// `namespace/name` of the Gateway or ListenerSet of a listener.
fn owner(listener: &ListenerConfig) -> &str {
    listener.id.set.as_ref().unwrap_or(&listener.id.gateway)
}
