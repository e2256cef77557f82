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
/// The zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// On Nodes of the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// On Nodes that take no traffic from load balancers.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
