//! What the cluster derives from objects: one state for each object of ours. Statuses are rendered from them, tables of
//! the gateway are made from them, and the diagnosis explains them.
//!
//! A state carries the generation of the object that it was derived from, and nothing that depends on the time.

use std::sync::Arc;

use api::view::gateway_api::ParentRef;

use crate::model::{ListenerId, Place, RouteKind, Rule, StreamRule};
use crate::traffic::Target;

/// Status of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tri {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

/// Status, reason and message of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the condition holds.
    pub status: Tri,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

impl Verdict {
    /// A condition that holds.
    #[must_use]
    pub fn good(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: Tri::True, reason, message: message.into() }
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: Tri::False, reason, message: message.into() }
    }

    /// A condition that cannot be judged yet.
    #[must_use]
    pub fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: Tri::Unknown, reason, message: message.into() }
    }

    /// Whether the condition holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.status == Tri::True
    }
}

/// State of a GatewayClass with our controller name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `SupportedVersion`.
    pub supported_version: Verdict,
    /// Whether a Gateway names the class; it must have the finalizer then.
    pub is_used: bool,
}

/// State of a Gateway of such a class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `Programmed`.
    pub programmed: Verdict,
    /// Condition `ResolvedRefs`.
    pub resolved_refs: Verdict,
    /// Condition `AddressesAssigned`.
    pub addresses_assigned: Verdict,
    /// Condition `InsecureFrontendValidationMode`; absent unless a frontend accepts clients without a certificate.
    pub insecure_frontend: Option<Verdict>,
    /// Its addresses, each with its type, as in its status.
    pub addresses: Vec<Address>,
    /// Its own listeners, in the order of its spec.
    pub listeners: Vec<ListenerState>,
    /// How many ListenerSets are attached.
    pub attached_sets: usize,
}

/// An address of a Gateway.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// `IPAddress` or `Hostname`.
    pub kind: &'static str,
    /// The address.
    pub value: Box<str>,
}

/// State of a ListenerSet of such a Gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerSetState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// `namespace/name` of its Gateway.
    pub gateway: Arc<str>,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `Programmed`.
    pub programmed: Verdict,
    /// Its listeners, in the order of its spec; none when it is not allowed at the Gateway.
    pub listeners: Vec<ListenerState>,
}

/// State of a listener of a Gateway or of a ListenerSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerState {
    /// Its identity.
    pub id: ListenerId,
    /// Its port.
    pub port: u16,
    /// The kinds of routes that it takes; sorted as in its spec, or as the protocol says.
    pub supported_kinds: Vec<RouteKind>,
    /// How many routes are attached.
    pub attached_routes: usize,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `Programmed`.
    pub programmed: Verdict,
    /// Condition `ResolvedRefs`.
    pub resolved_refs: Verdict,
    /// Condition `Conflicted`.
    pub conflicted: Verdict,
    /// Condition `OverlappingTLSConfig`; absent unless it holds.
    pub overlapping_tls: Option<Verdict>,
}

/// State of a route. Every route has one; `parents` is empty when none of its parents is ours.
#[derive(Clone, PartialEq, Debug)]
pub struct RouteState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// Its creation timestamp: the older of two routes wins.
    pub created: Arc<str>,
    /// Its parents that are ours, in the order of its spec.
    pub parents: Vec<ParentState>,
    /// Rules of an HTTPRoute or a GRPCRoute, without those that were dropped.
    pub rules: Arc<[Arc<Rule>]>,
    /// The rule of a TLSRoute, a TCPRoute or a UDPRoute.
    pub stream: Option<Arc<StreamRule>>,
}

/// State of a route at one of its parents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentState {
    /// The reference, as in the spec of the route.
    pub parent_ref: ParentRef,
    /// Where its traffic comes in: the Gateway, also that of a ListenerSet, or the Service.
    pub ancestor: Ancestor,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `ResolvedRefs`.
    pub resolved_refs: Verdict,
    /// Condition `PartiallyInvalid`; absent unless rules were dropped.
    pub partially_invalid: Option<Verdict>,
    /// The places that it is attached to by this reference, each with those hostnames of the route that intersect with the
    /// hostname of the listener, as written in the route; none for all hosts, and always none at Services.
    pub places: Vec<(Place, Vec<Arc<str>>)>,
}

/// State of a TrafficPolicy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrafficPolicyState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// What the entries of its status are about, sorted.
    pub ancestors: Vec<Ancestor>,
    /// Condition `Accepted`, the same for all ancestors.
    pub accepted: Verdict,
    /// Condition `ResolvedRefs`, the same for all ancestors.
    pub resolved_refs: Verdict,
}

/// A Gateway for which a policy holds, or a Service that is the parent of routes for which it does; a target of the policy
/// where there are none.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ancestor {
    /// Its group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// `namespace/name`.
    pub key: Arc<str>,
}

impl Ancestor {
    pub(crate) fn gateway(key: &Arc<str>) -> Self {
        Self::of(&Target::Gateway(Arc::clone(key)))
    }

    pub(crate) fn service(key: &Arc<str>) -> Self {
        Self::of(&Target::Service(Arc::clone(key)))
    }

    pub(crate) fn of(target: &Target) -> Self {
        let (group, kind) = target.kind();
        Self { group, kind, key: Arc::clone(target.key()) }
    }
}

/// State of a BackendTLSPolicy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyState {
    /// The generation that it was derived from.
    pub generation: i64,
    /// The Gateways, and the Services that are parents of routes, from which routes lead to its targets, sorted.
    pub ancestors: Vec<Ancestor>,
    /// Condition `Accepted`, the same for all ancestors.
    pub accepted: Verdict,
    /// Condition `ResolvedRefs`, the same for all ancestors.
    pub resolved_refs: Verdict,
}
