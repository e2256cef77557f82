//! The checks, in the order of cause and effect. A new check is a function and a line here.

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
pub(crate) use machine::SETTINGS;
pub(super) use name::resolves;

use diagnose::code;

use super::evidence::Evidence;
use super::verdict::Judged;

/// The check that shows what [`diagnose`] finds under a code. Checks stand in the order of its stages, so that the first one that is
/// disproved is its verdict, too.
pub(super) fn check_of(code: &str, any_runs: bool) -> &'static str {
    match code {
        code::EXTERNAL_NAME_IS_ADDRESS => "shape",
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
    /// What is looked at.
    pub(crate) looks_at: &'static str,
    /// Why it matters.
    pub(crate) matters: &'static str,
    /// The code of what it finds by itself; empty where only [`diagnose`] finds something.
    pub(crate) code: &'static str,
    /// Whether what it finds may be right a moment later.
    pub(crate) fleeting: bool,
    /// Looks.
    pub(crate) judge: fn(&Evidence<'_>) -> Judged,
}

/// All of them.
pub(crate) static CHECKS: [Check; 23] = [
    Check {
        name: "object",
        code: "ServiceMissing",
        looks_at: "the Service of this name in this namespace",
        matters: "without the object there is no address and no name",
        fleeting: false,
        judge: object::exists,
    },
    Check {
        name: "shape",
        code: "",
        looks_at: "its type, addresses and ports",
        matters: "some Services are accepted and can still never work",
        fleeting: false,
        judge: object::shape,
    },
    Check {
        name: "balancer",
        code: "",
        looks_at: "the address of its load balancer, and what is said of it",
        matters: "without an address nobody outside can use a load balancer",
        fleeting: true,
        judge: balancer::assigned,
    },
    Check {
        name: "selector",
        code: "",
        looks_at: "its selector, or slices that somebody keeps by hand",
        matters: "the selector is the only thing that leads a Service to Pods",
        fleeting: false,
        judge: selector::present,
    },
    Check {
        name: "selected",
        code: "",
        looks_at: "the labels of Pods in its namespace and in others",
        matters: "a Service leads only to Pods of its own namespace that have every label of its selector",
        fleeting: false,
        judge: selector::matches,
    },
    Check {
        name: "running",
        code: "",
        looks_at: "the phases and containers of the Pods that it selects",
        matters: "a Pod that does not run has no address that answers",
        fleeting: false,
        judge: pods::running,
    },
    Check {
        name: "ready",
        code: "",
        looks_at: "the readiness of the Pods that it selects",
        matters: "only Pods that are ready get connections",
        fleeting: false,
        judge: pods::ready,
    },
    Check {
        name: "targetPort",
        code: "",
        looks_at: "its targetPort beside the ports that the Pods' containers declare",
        matters: "a targetPort by name leads nowhere unless a container has a port of that name and protocol",
        fleeting: false,
        judge: target::named,
    },
    Check {
        name: "slices",
        code: "EndpointSlicesStale",
        looks_at: "its EndpointSlices beside the Pods",
        matters: "proxies and DNS see slices, not Pods",
        fleeting: true,
        judge: slices::follow,
    },
    Check {
        name: "endpoints",
        code: "",
        looks_at: "the addresses in its EndpointSlices",
        matters: "packets cannot be sent on to the address of a Service, nor to one that means another machine everywhere",
        fleeting: false,
        judge: slices::fit,
    },
    Check {
        name: "policy",
        code: "NoLocalEndpoint",
        looks_at: "its traffic policies beside the endpoints of this node",
        matters: "with the policy Local a node without endpoints drops connections",
        fleeting: true,
        judge: policy::local,
    },
    Check {
        name: "announced",
        code: "NotAnnounced",
        looks_at: "who announces the address of its load balancer: Leases, BGPPeers and Events",
        matters: "packets to an address that nobody announces arrive nowhere",
        fleeting: true,
        judge: announced::announced,
    },
    Check {
        name: "sources",
        code: "SourceNotAllowed",
        looks_at: "its loadBalancerSourceRanges",
        matters: "who is not in the ranges is dropped without an answer",
        fleeting: false,
        judge: policy::sources,
    },
    Check {
        name: "rules",
        code: "RulesDiffer",
        looks_at: "the rules of this node's kernel beside the plan that follows from the API",
        matters: "the kernel does what its rules say, not what the API says",
        fleeting: true,
        judge: rules::equal,
    },
    Check {
        name: "proxy",
        code: "ProxyNotRunning",
        looks_at: "whether a proxy serves this node",
        matters: "without it rules stay as they are while Pods come and go",
        fleeting: true,
        judge: rules::alive,
    },
    Check {
        name: "forwarding",
        code: "ForwardingDisabled",
        looks_at: "whether this node passes packets on",
        matters: "a node that does not forward drops what goes to and from Pods",
        fleeting: false,
        judge: machine::forwarding,
    },
    Check {
        name: "routes",
        code: "NoRoute",
        looks_at: "this node's routes to the endpoints and to the Service",
        matters: "without a route a packet cannot leave",
        fleeting: true,
        judge: machine::routes,
    },
    Check {
        name: "firewall",
        code: "BlockedByFirewall",
        looks_at: "rules of others in nftables, and of iptables over it, on the way of a first packet",
        matters: "a rule of somebody else that drops a packet stops it whatever ours say",
        fleeting: false,
        judge: firewall::foreign,
    },
    Check {
        name: "listening",
        code: "EndpointNotListening",
        looks_at: "real TCP connections from this node to each ready endpoint",
        matters: "a Pod can be ready and still have nobody at the port that the Service leads to",
        fleeting: true,
        judge: backends,
    },
    Check {
        name: "flows",
        code: "StaleFlows",
        looks_at: "the connections that the kernel remembers",
        matters: "a flow that is remembered keeps going to where it went, whatever the rules say now",
        fleeting: true,
        judge: flows::stale,
    },
    Check {
        name: "table",
        code: "ConntrackTableFull",
        looks_at: "how many connections the kernel remembers, and how many it can",
        matters: "when its table is full, new connections are dropped",
        fleeting: false,
        judge: flows::room,
    },
    Check {
        name: "name",
        code: "NameNotResolved",
        looks_at: "a real question to the cluster's DNS",
        matters: "programs know Services by name",
        fleeting: true,
        judge: resolves,
    },
    Check {
        name: "reachable",
        code: "ServiceNotReachable",
        looks_at: "real TCP connections from this node to its cluster IPs",
        matters: "this is what clients do",
        fleeting: true,
        judge: frontends,
    },
];
