//! Kinds for tests: the names of the real ones, without their rules, so that documents are tested on a fixed table.

use api::field::Errors;
use api::kind::{Kind, Rules, Subresource, status_of};
use serde_json::Value;

struct NoRules;

impl Rules for NoRules {
    fn validate_create(&self, _object: &Value, _errors: &mut Errors) {}
    fn validate_update(&self, _new: &Value, _old: &Value, _errors: &mut Errors) {}
}

const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

const fn named(group: &'static str, kind: &'static str, plural: &'static str, schema: &'static str) -> Kind {
    Kind { group, kind, plural, schema, table: plural, ..Kind::common(&NoRules) }
}

static SERVICE: Kind = Kind {
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[
        Subresource { name: "proxy", kind: "ServiceProxyOptions", verbs: PROXY_VERBS },
        status_of("Service"),
    ],
    delete_returns_object: true,
    ..named("", "Service", "services", "core.Service")
};
static POD: Kind = Kind {
    singular: "pod",
    subresources: &[
        Subresource { name: "eviction", kind: "Eviction", verbs: &["create"] },
        Subresource { name: "log", kind: "Pod", verbs: &["get"] },
        status_of("Pod"),
    ],
    ..named("", "Pod", "pods", "core.Pod")
};
static NAMESPACE: Kind = Kind {
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[Subresource { name: "finalize", kind: "Namespace", verbs: &["update"] }, status_of("Namespace")],
    ..named("", "Namespace", "namespaces", "core.Namespace")
};
static EVENT: Kind = named("", "Event", "events", "core.Event");
static NEW_EVENT: Kind = named("events.k8s.io", "Event", "events", "events.Event");
static SLICE: Kind = named("discovery.k8s.io", "EndpointSlice", "endpointslices", "discovery.EndpointSlice");
static INGRESS: Kind = named("networking.k8s.io", "Ingress", "ingresses", "networking.Ingress");
static LEASE: Kind = named("coordination.k8s.io", "Lease", "leases", "coordination.Lease");
static REVIEW: Kind = Kind {
    namespaced: false,
    table: "",
    verbs: &["create"],
    ..named("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", "authorization.SubjectAccessReview")
};

/// The kinds, not in the order of any document.
pub(crate) static KINDS: &[&Kind] =
    &[&SLICE, &SERVICE, &POD, &NAMESPACE, &INGRESS, &NEW_EVENT, &EVENT, &LEASE, &REVIEW];
