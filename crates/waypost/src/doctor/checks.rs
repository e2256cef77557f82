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

use super::evidence::Evidence;
use super::verdict::Judged;

/// One check.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its name.
    pub(crate) name: &'static str,
    /// What is looked at.
    pub(crate) looks_at: &'static str,
    /// Why it matters.
    pub(crate) matters: &'static str,
    /// Whether what it finds may be right a moment later.
    pub(crate) fleeting: bool,
    /// Looks.
    pub(crate) judge: fn(&Evidence<'_>) -> Judged,
}

/// All of them.
pub(crate) static CHECKS: [Check; 23] = [
    Check {
        name: "object",
        looks_at: "the Service of this name in this namespace",
        matters: "without the object there is no address and no name",
        fleeting: false,
        judge: object::exists,
    },
    Check {
        name: "shape",
        looks_at: "its type, addresses and ports",
        matters: "some Services are accepted and can still never work",
        fleeting: false,
        judge: object::shape,
    },
    Check {
        name: "selector",
        looks_at: "its selector, or slices that somebody keeps by hand",
        matters: "the selector is the only thing that leads a Service to Pods",
        fleeting: false,
        judge: selector::present,
    },
    Check {
        name: "selected",
        looks_at: "the labels of Pods in its namespace and in others",
        matters: "a Service leads only to Pods of its own namespace that have every label of its selector",
        fleeting: false,
        judge: selector::matches,
    },
    Check {
        name: "running",
        looks_at: "the phases and containers of the Pods that it selects",
        matters: "a Pod that does not run has no address that answers",
        fleeting: false,
        judge: pods::running,
    },
    Check {
        name: "ready",
        looks_at: "the readiness of the Pods that it selects",
        matters: "only Pods that are ready get connections",
        fleeting: false,
        judge: pods::ready,
    },
    Check {
        name: "targetPort",
        looks_at: "its targetPort beside the ports that the Pods' containers declare",
        matters: "a targetPort by name leads nowhere unless a container has a port of that name and protocol",
        fleeting: false,
        judge: target::named,
    },
    Check {
        name: "slices",
        looks_at: "its EndpointSlices beside the Pods",
        matters: "proxies and DNS see slices, not Pods",
        fleeting: true,
        judge: slices::follow,
    },
    Check {
        name: "endpoints",
        looks_at: "the addresses in its EndpointSlices",
        matters: "packets cannot be sent on to the address of a Service, nor to one that means another machine everywhere",
        fleeting: false,
        judge: slices::fit,
    },
    Check {
        name: "policy",
        looks_at: "its traffic policies beside the endpoints of this node",
        matters: "with the policy Local a node without endpoints drops connections",
        fleeting: true,
        judge: policy::local,
    },
    Check {
        name: "balancer",
        looks_at: "the address of its load balancer, and what is said of it",
        matters: "without an address nobody outside can use a load balancer",
        fleeting: true,
        judge: balancer::assigned,
    },
    Check {
        name: "announced",
        looks_at: "who announces the address of its load balancer: Leases, BGPPeers and Events",
        matters: "packets to an address that nobody announces arrive nowhere",
        fleeting: true,
        judge: announced::announced,
    },
    Check {
        name: "sources",
        looks_at: "its loadBalancerSourceRanges",
        matters: "who is not in the ranges is dropped without an answer",
        fleeting: false,
        judge: policy::sources,
    },
    Check {
        name: "rules",
        looks_at: "the rules of this node's kernel beside the plan that follows from the API",
        matters: "the kernel does what its rules say, not what the API says",
        fleeting: true,
        judge: rules::equal,
    },
    Check {
        name: "proxy",
        looks_at: "whether a proxy serves this node",
        matters: "without it rules stay as they are while Pods come and go",
        fleeting: true,
        judge: rules::alive,
    },
    Check {
        name: "forwarding",
        looks_at: "whether this node passes packets on",
        matters: "a node that does not forward drops what goes to and from Pods",
        fleeting: false,
        judge: machine::forwarding,
    },
    Check {
        name: "routes",
        looks_at: "this node's routes to the endpoints and to the Service",
        matters: "without a route a packet cannot leave",
        fleeting: true,
        judge: machine::routes,
    },
    Check {
        name: "firewall",
        looks_at: "rules of others in nftables, and of iptables over it, on the way of a first packet",
        matters: "a rule of somebody else that drops a packet stops it whatever ours say",
        fleeting: false,
        judge: firewall::foreign,
    },
    Check {
        name: "listening",
        looks_at: "real TCP connections from this node to each ready endpoint",
        matters: "a Pod can be ready and still have nobody at the port that the Service leads to",
        fleeting: true,
        judge: backends,
    },
    Check {
        name: "flows",
        looks_at: "the connections that the kernel remembers",
        matters: "a flow that is remembered keeps going to where it went, whatever the rules say now",
        fleeting: true,
        judge: flows::stale,
    },
    Check {
        name: "table",
        looks_at: "how many connections the kernel remembers, and how many it can",
        matters: "when its table is full, new connections are dropped",
        fleeting: false,
        judge: flows::room,
    },
    Check {
        name: "name",
        looks_at: "a real question to the cluster's DNS",
        matters: "programs know Services by name",
        fleeting: true,
        judge: resolves,
    },
    Check {
        name: "reachable",
        looks_at: "real TCP connections from this node to its cluster IPs",
        matters: "this is what clients do",
        fleeting: true,
        judge: frontends,
    },
];
