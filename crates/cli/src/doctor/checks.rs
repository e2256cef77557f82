//! The checks, in the order of cause and effect. A new check is a function and an entry here.

mod announced;
mod answers;
mod balancer;
mod firewall;
mod flows;
mod machine;
mod name;
mod object;
mod pods;
mod policy;
mod rules;
mod selector;
mod slices;
mod target;

pub(super) use answers::{backends, frontends};
pub use machine::SETTINGS;
pub(super) use name::resolves;

use diagnose::code;

use super::evidence::Evidence;
use super::verdict::CheckResult;

/// The check that reports a finding of [`diagnose`]. Checks are in the order of its stages, so that the first that fails is its verdict,
/// too.
pub(super) fn check_of(code: &str, any_runs: bool) -> &'static str {
    match code {
        code::EXTERNAL_NAME_IS_ADDRESS | code::NOT_AT_LAYER_7 => "shape",
        code::NO_SELECTOR => "selector",
        code::NO_POD_MATCHES => "selected",
        code::PODS_NOT_READY if any_runs => "ready",
        code::PODS_NOT_READY => "running",
        code::NO_SUCH_TARGET_PORT | code::PROTOCOL_NOT_DECLARED => "targetPort",
        code::NO_SUCH_PORT | code::ENDPOINTS_NOT_READY | code::NOT_PUBLISHED => "slices",
        code::WRONG_FAMILY | code::NODE_MISSING | code::ENDPOINT_IS_CLUSTER_IP | code::ENDPOINT_NOT_ROUTABLE => {
            "endpoints"
        }
        code::SOURCES_LACK_FAMILY => "sources",
        // Load balancers have codes of their own.
        _ => "balancer",
    }
}

/// One check.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it checks.
    pub(crate) subject: &'static str,
    /// Why it matters.
    pub(crate) impact: &'static str,
    /// The code of its own findings; empty where all findings are those of [`diagnose`].
    pub(crate) code: &'static str,
    /// Whether a failure may be transient.
    pub(crate) transient: bool,
    /// Runs it.
    pub(crate) run: fn(&Evidence<'_>) -> CheckResult,
}

/// All of them.
pub(crate) static CHECKS: [Check; 23] = [
    Check {
        name: "object",
        code: "ServiceMissing",
        subject: "the Service of this name in this namespace",
        impact: "without the object there is no address and no name",
        transient: false,
        run: object::exists,
    },
    Check {
        name: "shape",
        code: "",
        subject: "its type, addresses and ports",
        impact: "some Services are accepted and can still never work",
        transient: false,
        run: object::shape,
    },
    Check {
        name: "balancer",
        code: "",
        subject: "the address and the condition of its load balancer",
        impact: "without an address clients outside of the cluster cannot connect",
        transient: true,
        run: balancer::assigned,
    },
    Check {
        name: "selector",
        code: "",
        subject: "its selector, or EndpointSlices without a controller",
        impact: "without selector and EndpointSlices a Service has no endpoints",
        transient: false,
        run: selector::present,
    },
    Check {
        name: "selected",
        code: "",
        subject: "the labels of Pods in its namespace and in others",
        impact: "a Service selects only Pods of its own namespace that have every label of its selector",
        transient: false,
        run: selector::matches,
    },
    Check {
        name: "running",
        code: "",
        subject: "the phases and containers of the Pods that it selects",
        impact: "a Pod that does not run accepts no connections",
        transient: false,
        run: pods::running,
    },
    Check {
        name: "ready",
        code: "",
        subject: "the readiness of the Pods that it selects",
        impact: "only ready Pods get new connections",
        transient: false,
        run: pods::ready,
    },
    Check {
        name: "targetPort",
        code: "",
        subject: "its targetPort and the ports that the Pods' containers declare",
        impact: "a named targetPort needs a container port of that name and protocol",
        transient: false,
        run: target::named,
    },
    Check {
        name: "slices",
        code: "EndpointSlicesStale",
        subject: "its EndpointSlices and the Pods",
        impact: "proxies and DNS read EndpointSlices, not Pods",
        transient: true,
        run: slices::follow,
    },
    Check {
        name: "endpoints",
        code: "",
        subject: "the addresses in its EndpointSlices",
        impact: "packets cannot be forwarded to a cluster IP, nor to a loopback or link-local address",
        transient: false,
        run: slices::fit,
    },
    Check {
        name: "policy",
        code: "NoLocalEndpoint",
        subject: "its traffic policies and the endpoints of this node",
        impact: "with the policy Local a node without endpoints drops connections",
        transient: true,
        run: policy::local,
    },
    Check {
        name: "announced",
        code: "NotAnnounced",
        subject: "the node that announces the address of its load balancer: Leases, BGPPeers and Events",
        impact: "packets to an address that is not announced are not delivered",
        transient: true,
        run: announced::announced,
    },
    Check {
        name: "sources",
        code: "SourceNotAllowed",
        subject: "its loadBalancerSourceRanges",
        impact: "packets of clients outside of the ranges are dropped",
        transient: false,
        run: policy::sources,
    },
    Check {
        name: "rules",
        code: "RulesDiffer",
        subject: "the kernel rules of this node and the plan computed from the API",
        impact: "the kernel forwards by its rules, not by the API",
        transient: true,
        run: rules::equal,
    },
    Check {
        name: "proxy",
        code: "ProxyNotRunning",
        subject: "whether a proxy serves this node",
        impact: "without a proxy the rules are not updated when Pods change",
        transient: true,
        run: rules::alive,
    },
    Check {
        name: "forwarding",
        code: "ForwardingDisabled",
        subject: "IP forwarding of this node",
        impact: "without IP forwarding packets to and from Pods are dropped",
        transient: false,
        run: machine::forwarding,
    },
    Check {
        name: "routes",
        code: "NoRoute",
        subject: "this node's routes to the endpoints and to the Service",
        impact: "packets without a route are not sent",
        transient: true,
        run: machine::routes,
    },
    Check {
        name: "firewall",
        code: "BlockedByFirewall",
        subject: "rules of other programs in nftables and iptables on the path of a first packet",
        impact: "a packet that another program's rule drops is lost, whatever our rules say",
        transient: false,
        run: firewall::foreign,
    },
    Check {
        name: "listening",
        code: "EndpointNotListening",
        subject: "TCP connections from this node to each ready endpoint",
        impact: "a Pod can be ready and still not listen on the targetPort",
        transient: true,
        run: backends,
    },
    Check {
        name: "flows",
        code: "StaleFlows",
        subject: "conntrack entries",
        impact: "packets of a conntrack entry go to its old endpoint, whatever the rules say now",
        transient: true,
        run: flows::stale,
    },
    Check {
        name: "table",
        code: "ConntrackTableFull",
        subject: "the size and the limit of the conntrack table",
        impact: "when the conntrack table is full, new connections are dropped",
        transient: false,
        run: flows::room,
    },
    Check {
        name: "name",
        code: "NameNotResolved",
        subject: "a query to the cluster's DNS",
        impact: "clients use the DNS name of a Service",
        transient: true,
        run: resolves,
    },
    Check {
        name: "reachable",
        code: "ServiceNotReachable",
        subject: "TCP connections from this node to its cluster IPs",
        impact: "clients connect to these addresses",
        transient: true,
        run: frontends,
    },
];
