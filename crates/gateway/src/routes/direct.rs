//! Which ports of a Gateway the kernel forwards by itself: those of TCP and UDP listeners where every new connection goes to
//! one Service port, and where nothing needs the program.
//!
//! In: what a port leads to, and the rule that takes its connections. Out: that Service port, or why the program is needed.
//! Pure. Whether the Service port has endpoints in the family of a client is the planner's decision: it uses the listener of
//! the program where there are none.

use std::collections::BTreeSet;
use std::fmt;

use plan::ServicePortName;
use routing::model::{ListenerProtocol, ServiceTarget, StreamRule, Target};

/// What decides about a port beside its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortFacts {
    pub(super) protocol: ListenerProtocol,
    /// Whether proxies in front of the Gateway send the PROXY protocol.
    pub(super) has_proxies: bool,
    /// Whether there is an access log.
    pub(super) is_logged: bool,
}

/// Why connections need the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum NeedsProgram {
    /// The listener reads HTTP or TLS.
    Protocol,
    /// Connections of proxies begin with a PROXY protocol header.
    ProxyProtocol,
    /// Connections are logged.
    AccessLog,
    /// No route takes them: they are reset.
    NoRoute,
    /// A TrafficPolicy restricts clients.
    Policy,
    /// No backend has a weight: they are reset.
    NoBackend,
    /// Several backends share them by weight.
    SeveralBackends,
    /// The backend is invalid: they are reset.
    InvalidBackend,
    /// TLS towards the backend begins here.
    BackendTls,
}

impl fmt::Display for NeedsProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "the listener reads HTTP or TLS",
            Self::ProxyProtocol => "the Gateway has proxies in front of it (PROXY protocol)",
            Self::AccessLog => "connections are written to the access log",
            Self::NoRoute => "no route is attached",
            Self::Policy => "a TrafficPolicy restricts clients",
            Self::NoBackend => "no backend has a weight",
            Self::SeveralBackends => "several backends have a weight",
            Self::InvalidBackend => "the backend is invalid",
            Self::BackendTls => "the backend has a BackendTLSPolicy",
        })
    }
}

/// The Service port to whose endpoints the kernel forwards; `rule` takes the connections of the port.
pub(super) fn decide(facts: PortFacts, rule: Option<&StreamRule>) -> Result<ServicePortName, NeedsProgram> {
    let is_tcp = match facts.protocol {
        ListenerProtocol::Tcp => true,
        ListenerProtocol::Udp => false,
        _ => return Err(NeedsProgram::Protocol),
    };
    // Neither the PROXY protocol nor the access log concerns UDP.
    if is_tcp && facts.has_proxies {
        return Err(NeedsProgram::ProxyProtocol);
    }
    if is_tcp && facts.is_logged {
        return Err(NeedsProgram::AccessLog);
    }
    let rule = rule.ok_or(NeedsProgram::NoRoute)?;
    if rule.policy.is_some() {
        return Err(NeedsProgram::Policy);
    }
    let mut weighted = rule.backends.iter().filter(|backend| backend.weight > 0);
    let only = weighted.next().ok_or(NeedsProgram::NoBackend)?;
    if weighted.next().is_some() {
        return Err(NeedsProgram::SeveralBackends);
    }
    match &only.target {
        Target::Invalid(_) => Err(NeedsProgram::InvalidBackend),
        Target::Service(target) if target.tls.is_some() => Err(NeedsProgram::BackendTls),
        Target::Service(target) => Ok(name(target)),
    }
}

/// The Service ports of a rule, whatever their weights are.
pub(super) fn backends(rule: Option<&StreamRule>) -> BTreeSet<ServicePortName> {
    let targets = rule.into_iter().flat_map(|rule| &rule.backends).map(|backend| &backend.target);
    targets
        .filter_map(|target| match target {
            Target::Service(target) => Some(name(target)),
            Target::Invalid(_) => None,
        })
        .collect()
}

fn name(target: &ServiceTarget) -> ServicePortName {
    ServicePortName { service: target.service.clone(), port: target.port_name.clone() }
}
