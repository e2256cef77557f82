//! Label keys that more than one place uses.

/// The name of the Service of an EndpointSlice.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The proxy that serves a Service instead of the one of the cluster.
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// On EndpointSlices and Endpoints of Services without a cluster IP.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Which controller manages an EndpointSlice.
pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// On Endpoints that are not mirrored to EndpointSlices.
pub const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Which controller manages an Endpoints object.
pub const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Which controller manages an IPAddress.
pub const IP_ADDRESS_MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The completion index of a Pod of an Indexed Job; also the key of an annotation.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The name of the Job of a Pod.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The deprecated form of [`JOB_NAME`].
pub const LEGACY_JOB_NAME: &str = "job-name";
/// The UID of the Job of a Pod.
pub const JOB_CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// The deprecated form of [`JOB_CONTROLLER_UID`].
pub const LEGACY_JOB_CONTROLLER_UID: &str = "controller-uid";
/// The template of a Pod of a DaemonSet or StatefulSet, and of a ControllerRevision of a DaemonSet.
pub const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// The name of a Namespace.
pub const METADATA_NAME: &str = "kubernetes.io/metadata.name";

/// The host name of a Node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The processor architecture of a Node.
pub const ARCH: &str = "kubernetes.io/arch";
/// The deprecated form of [`ARCH`].
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
/// The operating system of a Node.
pub const OS: &str = "kubernetes.io/os";
/// The deprecated form of [`OS`].
pub const BETA_OS: &str = "beta.kubernetes.io/os";
/// Of Pods and ReplicaSets of a Deployment: the hash of their template.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// The zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// On Nodes of the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// On Nodes that take no traffic from load balancers.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
