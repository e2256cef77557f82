//! The flow schemas that Kubernetes creates by default, in the order of their matching precedence.

use crate::auth::{AUTHENTICATED, UNAUTHENTICATED, service_account};
use crate::authz::node::NODES;
use crate::pki::MASTERS;

use super::level::Level;
use super::schema::Distinguisher::{ByNamespace, ByUser};
use super::schema::Priority::{Exempt, Limited};
use super::schema::{FlowSchema, PathRule, ResourceRule, Subject};

/// How many there are.
pub(crate) const COUNT: usize = 11;

const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const KUBE_SYSTEM: Subject = Subject::ServiceAccountsOf("kube-system");
const EVERYONE: &[Subject] = &[Subject::Group(UNAUTHENTICATED), Subject::Group(AUTHENTICATED)];
const EVERYTHING: &[ResourceRule] = &[ResourceRule { verbs: &[], groups: &[], resources: &[], cluster_scope: true }];
const LEASES: ResourceRule =
    ResourceRule { verbs: &[], groups: &["coordination.k8s.io"], resources: &["leases"], cluster_scope: false };

/// The table; the last one matches everyone.
pub(crate) static FLOW_SCHEMAS: [FlowSchema; COUNT] = [
    // Matching precedence 1, and in this order 2, 100, 400, 500, 800, 800, 900, 9000, 9900 and 10000.
    FlowSchema { subjects: &[Subject::Group(MASTERS)], ..whole("exempt") },
    FlowSchema { resources: &[], paths: Some(PathRule::Get(&["/healthz", "/readyz", "/livez"])), ..whole("probes") },
    FlowSchema {
        priority: Limited(Level::LeaderElection),
        distinguisher: Some(ByUser),
        subjects: &[Subject::User(CONTROLLER_MANAGER), Subject::User(SCHEDULER), KUBE_SYSTEM],
        resources: &[ResourceRule { verbs: &["get", "create", "update"], ..LEASES }],
        paths: None,
        ..whole("system-leader-election")
    },
    FlowSchema {
        priority: Limited(Level::NodeHigh),
        distinguisher: Some(ByUser),
        subjects: &[Subject::Group(NODES)],
        resources: &[
            ResourceRule { verbs: &[], groups: &[""], resources: &["nodes", "nodes/status"], cluster_scope: true },
            LEASES,
        ],
        paths: None,
        ..whole("system-node-high")
    },
    FlowSchema {
        priority: Limited(Level::System),
        distinguisher: Some(ByUser),
        subjects: &[Subject::Group(NODES)],
        ..whole("system-nodes")
    },
    FlowSchema {
        priority: Limited(Level::WorkloadHigh),
        distinguisher: Some(ByNamespace),
        subjects: &[Subject::User(CONTROLLER_MANAGER)],
        ..whole("kube-controller-manager")
    },
    FlowSchema {
        priority: Limited(Level::WorkloadHigh),
        distinguisher: Some(ByNamespace),
        subjects: &[Subject::User(SCHEDULER)],
        ..whole("kube-scheduler")
    },
    FlowSchema {
        priority: Limited(Level::WorkloadHigh),
        distinguisher: Some(ByNamespace),
        subjects: &[KUBE_SYSTEM],
        ..whole("kube-system-service-accounts")
    },
    FlowSchema {
        priority: Limited(Level::WorkloadLow),
        distinguisher: Some(ByUser),
        subjects: &[Subject::Group(service_account::GROUP)],
        ..whole("service-accounts")
    },
    FlowSchema { priority: Limited(Level::GlobalDefault), distinguisher: Some(ByUser), ..whole("global-default") },
    FlowSchema { priority: Limited(Level::CatchAll), distinguisher: Some(ByUser), ..whole("catch-all") },
];

/// A schema that exempts every request of everyone.
const fn whole(name: &'static str) -> FlowSchema {
    FlowSchema {
        name,
        priority: Exempt,
        distinguisher: None,
        subjects: EVERYONE,
        resources: EVERYTHING,
        paths: Some(PathRule::Any),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::schema::classify;
    use super::*;
    use crate::auth::User;
    use crate::query;
    use crate::request::RequestInfo;

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
    }

    /// `SCHEMA LEVEL FLOW`.
    fn classified(user: &User, request: &str) -> String {
        let (method, whole) = request.split_once(' ').unwrap();
        let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
        let info = RequestInfo::of(&Method::from_bytes(method.as_bytes()).unwrap(), path, &query::parse(query));
        let schema = &FLOW_SCHEMAS[classify(&FLOW_SCHEMAS, &info, user)];
        format!("{} {} {:?}", schema.name, schema.priority.name(), schema.flow(&info, user))
    }

    fn check(user: &User, cases: &[(&str, &str)]) {
        for (request, wanted) in cases {
            assert_eq!(classified(user, request), *wanted, "{} {request}", user.name);
        }
    }

    const KUBELET_LEASE: &str = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    const MANAGER_LEASE: &str = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/m";

    #[test]
    fn administrators_and_probes_are_exempt() {
        let admin = user("admin", &["dev", MASTERS, AUTHENTICATED]);
        check(
            &admin,
            &[
                ("GET /api/v1/pods", "exempt exempt \"\""),
                ("GET /healthz", "exempt exempt \"\""),
                (KUBELET_LEASE, "exempt exempt \"\""),
            ],
        );
        let probe = "probes exempt \"\"";
        let other = "global-default global-default \"system:anonymous\"";
        check(
            &User::anonymous(),
            &[
                ("GET /healthz", probe),
                ("GET /readyz/ping", probe),
                ("GET /livez", probe),
                ("POST /livez", other),
                ("GET /livezz", other),
                ("GET /version", other),
                ("GET /api/v1/pods", other),
            ],
        );
    }

    #[test]
    fn nodes_report_their_health_apart_from_the_rest() {
        let node = user("system:node:n1", &[NODES, AUTHENTICATED]);
        let high = "system-node-high node-high \"system:node:n1\"";
        let rest = "system-nodes system \"system:node:n1\"";
        check(
            &node,
            &[
                ("PATCH /api/v1/nodes/n1/status", high),
                ("GET /api/v1/nodes/n1", high),
                ("GET /api/v1/nodes?watch=1", high),
                (KUBELET_LEASE, high),
                ("GET /apis/coordination.k8s.io/v1/leases", rest),
                ("GET /api/v1/nodes/n1/proxy", rest),
                ("GET /apis/metrics.k8s.io/v1/nodes", rest),
                ("GET /api/v1/pods", rest),
                ("GET /version", rest),
                ("GET /readyz", "probes exempt \"\""),
            ],
        );
    }

    #[test]
    fn components_and_their_leases_are_apart_from_workloads() {
        let groups = [service_account::GROUP, "system:serviceaccounts:kube-system", AUTHENTICATED];
        let account = user("system:serviceaccount:kube-system:dns", &groups);
        check(
            &account,
            &[
                (MANAGER_LEASE, "system-leader-election leader-election \"system:serviceaccount:kube-system:dns\""),
                (
                    "DELETE /apis/coordination.k8s.io/v1/namespaces/a/leases/m",
                    "kube-system-service-accounts workload-high \"a\"",
                ),
                ("GET /apis/coordination.k8s.io/v1/leases", "kube-system-service-accounts workload-high \"\""),
                ("GET /version", "kube-system-service-accounts workload-high \"\""),
            ],
        );
        for (name, schema) in [(CONTROLLER_MANAGER, "kube-controller-manager"), (SCHEDULER, "kube-scheduler")] {
            let component = user(name, &[AUTHENTICATED]);
            check(
                &component,
                &[
                    (MANAGER_LEASE, &format!("system-leader-election leader-election {name:?}")),
                    ("GET /api/v1/namespaces/a/pods", &format!("{schema} workload-high \"a\"")),
                ],
            );
        }
        // A namespace that only begins like it is another one.
        let groups = [service_account::GROUP, "system:serviceaccounts:kube-system-2", AUTHENTICATED];
        let account = user("system:serviceaccount:kube-system-2:dns", &groups);
        check(
            &account,
            &[(MANAGER_LEASE, "service-accounts workload-low \"system:serviceaccount:kube-system-2:dns\"")],
        );
    }

    #[test]
    fn users_are_separate_flows_and_others_are_catch_all() {
        let alice = user("alice", &["dev", AUTHENTICATED]);
        check(
            &alice,
            &[
                ("GET /api/v1/namespaces/a/pods", "global-default global-default \"alice\""),
                (MANAGER_LEASE, "global-default global-default \"alice\""),
            ],
        );
        check(&user("ghost", &[]), &[("GET /api", "catch-all catch-all \"ghost\"")]);
    }
}
