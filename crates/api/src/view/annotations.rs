//! Annotation keys that more than one place uses.

/// When the change happened that an EndpointSlice or Endpoints object shows.
pub const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Whether the endpoints of a Service get hints: `Auto`.
pub const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// The deprecated form of [`TOPOLOGY_MODE`].
pub const TOPOLOGY_AWARE_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// The certificate of a load balancer.
pub const SSL_CERT: &str = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert";
/// The protocol between a load balancer and Pods.
pub const BACKEND_PROTOCOL: &str = "service.beta.kubernetes.io/aws-load-balancer-backend-protocol";
/// The ports of a load balancer with TLS, by number or name; `*` or empty means all.
pub const SSL_PORTS: &str = "service.beta.kubernetes.io/aws-load-balancer-ssl-ports";
/// `*`: the load balancer sends a PROXY protocol v1 header to Pods.
pub const PROXY_PROTOCOL: &str = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol";
/// On a Gateway: the ranges of proxies, as CIDRs with commas between them, whose connections begin with a PROXY protocol
/// header.
pub const PROXY_PROTOCOL_FROM: &str = "waypost.dev/proxy-protocol-from";
/// On the Service of a Gateway: the name of the Gateway. Its load-balancer addresses belong to the gateway.
pub const GATEWAY: &str = "waypost.dev/gateway";
/// On the Service of an IngressClass: the name of the IngressClass. Its load-balancer addresses belong to the gateway.
pub const GATEWAY_OF_CLASS: &str = "waypost.dev/ingress-class";
/// On a Service: `true` has the gateway of the node of the client balance each request to its ports whose `appProtocol` is HTTP
/// without TLS; `false` keeps routes away that name it as a parent.
pub const LAYER_7: &str = "waypost.dev/layer-7";
/// On the HTTPRoute of a canary: the name of the Service that gets a part of the requests.
pub const CANARY: &str = "waypost.dev/canary";
/// The default IngressClass: `true`.
pub const DEFAULT_INGRESS_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// The class of an Ingress, in the form that `spec.ingressClassName` replaced.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
/// On a Service: how the proxy selects an endpoint for a connection, such as `round-robin`.
pub const TRAFFIC_POLICY: &str = "waypost.dev/traffic-policy";
/// On a Service with the traffic policy `leader`: the Lease of its namespace whose holder gets all connections.
pub const LEADER_LEASE: &str = "waypost.dev/leader-lease";
/// On a Service with the traffic policy `weighted`: the weight of each endpoint of a zone, as `a=3,b=1`.
pub const ZONE_WEIGHTS: &str = "waypost.dev/zone-weights";
/// The object as `kubectl apply` last sent it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The container that `kubectl exec` and `logs` use when none is named.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// On Pods that a node made from a file.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
/// What it costs to delete a Pod, for ReplicaSets.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// How many Pods of this completion index failed before this one.
pub const JOB_INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// How many Pods of this completion index failed before this one and did not count towards the limit.
pub const JOB_INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The revision of a Deployment or of its ReplicaSet.
pub const DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";
/// The ServiceAccount of a token Secret.
pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Whether Pods of a ServiceAccount may mount only the Secrets it lists.
pub const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
