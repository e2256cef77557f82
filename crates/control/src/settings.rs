//! Settings of the controllers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::admission::Plugins;
use api::pool::Range;
use api::view::Secret;
use ipnet::IpNet;
use routing::cluster::SecretState;
use store::admission::Dynamic;
use store::allocation::Ranges;

use crate::certificate_orders::Acme;
use crate::signers::{Signer, TokenSigner};

/// Settings of the controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Addresses and ports for Services.
    pub ranges: Ranges,
    /// The most endpoints of a slice.
    pub max_endpoints_per_slice: usize,
    /// Whether conditions are written to the status of Services.
    pub service_conditions: bool,
    /// CIDRs from which Nodes get their Pod CIDRs; empty disables the allocation.
    pub cluster_cidrs: Vec<IpNet>,
    /// The prefix lengths of Pod CIDRs, for IPv4 and IPv6.
    pub node_masks: (u8, u8),
    /// A Node without a heartbeat for this long is not ready.
    pub node_grace: Duration,
    /// The kubeconfig without a user that joining machines read from `cluster-info`.
    pub cluster_info: Option<String>,
    /// The CA of the API server (PEM), for Pods.
    pub root_ca: Option<String>,
    /// Admission plugins for objects that controllers create.
    pub plugins: Plugins,
    /// Admission policies and webhooks for objects that controllers create.
    pub dynamic: Option<Dynamic>,
    /// Whether every namespace gets the CA as a ConfigMap.
    pub publish_root_ca: bool,
    /// Signs service account tokens in Secrets.
    pub token_signer: Option<TokenSigner>,
    /// Signs certificates, if this server has the CA keys.
    pub signer: Option<Signer>,
    /// Names and addresses of the API server; no agent gets a certificate for them.
    pub server_names: ServerNames,
    /// The longest lifetime of issued certificates.
    pub certificate_lifetime: Duration,
    /// Load balancers.
    pub load_balancer: LoadBalancing,
    /// Whether the GatewayClass `waypost` is created.
    pub gateway_class: bool,
    /// Whether HTTPS listeners of Gateways and Ingresses are served over QUIC, too: by a UDP port beside each of their ports.
    pub gateway_http3: bool,
    /// Whether the IngressClass `waypost` is created.
    pub ingress_class: ClassCreation,
    /// Settings of all Ingresses.
    pub ingress: routing::ingress::Options,
    /// Checks of certificates that Gateways and Ingresses refer to.
    pub certificate_checks: CertificateChecks,
    /// The ACME server from which certificates are ordered, if there is one.
    pub acme: Option<Acme>,
}

/// Whether an IngressClass is created. One that exists is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClassCreation {
    /// It is not.
    #[default]
    Off,
    /// It is created.
    On,
    /// It is created as the default class, unless there is one.
    Default,
}

/// Names and addresses of the API server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerNames {
    /// DNS names of its certificate; `*.` matches one label.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// The cluster domain.
    pub domain: String,
}

/// Settings of load balancers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadBalancing {
    /// Whether Services of type LoadBalancer get addresses from this cluster.
    pub enabled: bool,
    /// Addresses of `--load-balancer-pool`, the contents of the IPPool `command-line`.
    pub ranges: Vec<Range>,
    /// Which ports of this machine are in use.
    pub ports_in_use: PortsInUse,
}

/// Whether a port (protocol and number) is in use.
type PortCheck = dyn Fn(&str, u16) -> bool + Send + Sync;

/// Checks whether a port of this machine is in use.
#[derive(Clone, Default)]
pub struct PortsInUse(pub Option<Arc<PortCheck>>);

impl PortsInUse {
    /// Uses this check.
    #[must_use]
    pub fn checked_by(in_use: impl Fn(&str, u16) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(in_use)))
    }

    /// Whether a port is in use, as far as known.
    #[must_use]
    pub fn has(&self, protocol: &str, port: u16) -> bool {
        self.0.as_ref().is_some_and(|in_use| in_use(protocol, port))
    }
}

impl fmt::Debug for PortsInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Taken(known)" } else { "Taken(unknown)" })
    }
}

impl PartialEq for PortsInUse {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }
}

impl Eq for PortsInUse {}

/// Judges certificates: the code that serves them decides which ones can be served.
pub trait CheckCertificates: Send + Sync {
    /// Whether a Secret has a certificate chain and its private key.
    ///
    /// # Errors
    /// With the problem as a message.
    fn certificate(&self, secret: &Secret) -> Result<(), String>;

    /// Whether a PEM text has CA certificates, and nothing that cannot be read.
    ///
    /// # Errors
    /// With the problem as a message.
    fn authorities(&self, pem: &str) -> Result<(), String>;
}

/// The checks of certificates, if there are any; otherwise everything is valid.
#[derive(Clone, Default)]
pub struct CertificateChecks(pub Option<Arc<dyn CheckCertificates>>);

impl CertificateChecks {
    /// What a Secret can be used for.
    #[must_use]
    pub fn secret(&self, secret: &Secret) -> SecretState {
        match self.0.as_ref().map_or(Ok(()), |checks| checks.certificate(secret)) {
            Ok(()) => SecretState::Certificate,
            Err(_) if secret.has_passwords() => SecretState::Passwords,
            Err(why) => SecretState::Invalid(why),
        }
    }
}

impl fmt::Debug for CertificateChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "CertificateChecks(some)" } else { "CertificateChecks(none)" })
    }
}

impl PartialEq for CertificateChecks {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }
}

impl Eq for CertificateChecks {}

impl Settings {
    /// The defaults of a server without further features.
    #[must_use]
    pub fn plain(ranges: Ranges) -> Self {
        Self {
            ranges,
            max_endpoints_per_slice: 100,
            service_conditions: false,
            cluster_cidrs: Vec::new(),
            node_masks: (24, 64),
            node_grace: Duration::from_secs(50),
            cluster_info: None,
            root_ca: None,
            publish_root_ca: true,
            plugins: Plugins::none(),
            dynamic: None,
            token_signer: None,
            signer: None,
            server_names: ServerNames { dns: Vec::new(), ips: Vec::new(), domain: String::new() },
            certificate_lifetime: Duration::from_secs(365 * 86_400),
            load_balancer: LoadBalancing { enabled: false, ranges: Vec::new(), ports_in_use: PortsInUse(None) },
            gateway_class: false,
            gateway_http3: false,
            ingress_class: ClassCreation::Off,
            ingress: routing::ingress::Options::default(),
            certificate_checks: CertificateChecks(None),
            acme: None,
        }
    }
}
