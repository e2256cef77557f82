//! What the command line says to controllers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::admission::Plugins;
use api::pool::Range;
use ipnet::IpNet;
use store::admission::Dynamic;
use store::allocation::Ranges;

use crate::certificates::{ServerNames, Signer};
use crate::service_accounts::TokenSigner;

/// Settings of the controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Addresses and ports for Services.
    pub ranges: Ranges,
    /// How many endpoints a slice holds at most.
    pub max_endpoints_per_slice: usize,
    /// Whether Services say in their status what they have and what they lack.
    pub service_conditions: bool,
    /// Addresses for Pods, cut into a piece for each Node; none leaves Nodes alone.
    pub cluster_cidrs: Vec<IpNet>,
    /// How long the prefix of a Node's piece is, for IPv4 and IPv6.
    pub node_masks: (u8, u8),
    /// How long a Node may be silent before it counts as lost.
    pub node_grace: Duration,
    /// What machines that join must know of the cluster: a kubeconfig without a user.
    pub cluster_info: Option<String>,
    /// The CA of the API server (PEM), for Pods.
    pub root_ca: Option<String>,
    /// The admission plugins that new objects of controllers pass.
    pub plugins: Plugins,
    /// The policies and webhooks that new objects of controllers pass.
    pub dynamic: Option<Dynamic>,
    /// Whether every namespace gets that CA as a ConfigMap.
    pub publish_root_ca: bool,
    /// Who signs the tokens that Secrets keep.
    pub token_signer: Option<TokenSigner>,
    /// Who signs certificates for nodes, if somebody does.
    pub signer: Option<Signer>,
    /// Under which names and addresses clients reach the API server; no agent gets a certificate for them.
    pub server_names: ServerNames,
    /// How long such certificates are good, unless a shorter time is asked for.
    pub certificate_lifetime: Duration,
    /// Load balancers.
    pub load_balancer: Balancing,
}

/// What is said of load balancers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Balancing {
    /// Whether Services of type LoadBalancer get addresses from us.
    pub on: bool,
    /// Addresses of the command line: what the IPPool `command-line` says.
    pub ranges: Vec<Range>,
    /// Which ports of this machine programs have.
    pub taken: Taken,
}

/// Whether a program has a port: protocol and number.
type AskPort = dyn Fn(&str, u16) -> bool + Send + Sync;

/// Asks whether a program of this machine has a port.
#[derive(Clone, Default)]
pub struct Taken(pub Option<Arc<AskPort>>);

impl Taken {
    /// Asks so.
    #[must_use]
    pub fn by(asks: impl Fn(&str, u16) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asks)))
    }

    /// Whether a program of this machine has a port, as far as is known.
    #[must_use]
    pub fn has(&self, protocol: &str, port: u16) -> bool {
        self.0.as_ref().is_some_and(|asks| asks(protocol, port))
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Taken(known)" } else { "Taken(unknown)" })
    }
}

impl PartialEq for Taken {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }
}

impl Eq for Taken {}

impl Settings {
    /// What a bare server does: no more than Kubernetes would.
    #[must_use]
    pub const fn plain(ranges: Ranges) -> Self {
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
            load_balancer: Balancing { on: false, ranges: Vec::new(), taken: Taken(None) },
        }
    }
}
