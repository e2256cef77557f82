//! The objects related to a Service, as a diagnosis reads them.
//!
//! Controllers implement it over indexes, so that the cost does not depend on the size of the cluster; see
//! [`Snapshot`](crate::Snapshot) for lists.

use std::net::IpAddr;

use api::view::Protocol;

use crate::labels::Selector;
use crate::model::{Service, Slice};
use crate::pod_state::Detail;

/// A Pod.
pub trait Pod {
    /// Its name.
    fn name(&self) -> &str;
    /// Its labels, sorted by key.
    fn labels(&self) -> &Selector;
    /// What decides whether it can be an endpoint.
    fn standing(&self) -> Standing<'_>;
    /// Whether a container has a port of this name and protocol.
    fn has_port(&self, name: &str, protocol: Option<Protocol>) -> bool;
    /// All other fields. Parsed on demand, for the few Pods that a message names.
    fn detail(&self) -> Detail;
}

/// What decides whether a Pod can be an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing<'a> {
    /// The node it is bound to, or nothing.
    pub node: &'a str,
    /// Its addresses.
    pub addresses: &'a [IpAddr],
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Whether it has terminated.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The objects related to a Service.
pub trait Cluster {
    /// The representation of Pods.
    type Pod: Pod;

    /// How many Pods a namespace has.
    fn count(&self, namespace: &str) -> usize;
    /// The Pods of a namespace that a selector matches, by name.
    fn matching(&self, namespace: &str, selector: &Selector) -> Vec<&Self::Pod>;
    /// Any Pod of a namespace that a selector matches.
    fn any(&self, namespace: &str, selector: &Selector) -> Option<&Self::Pod>;
    /// The values a label has in a namespace, each with the number of its Pods.
    fn values(&self, namespace: &str, key: &str) -> Vec<(&str, usize)>;
    /// The keys of the labels that Pods of a namespace have.
    fn keys(&self, namespace: &str) -> Vec<&str>;
    /// The namespaces that have Pods.
    fn namespaces(&self) -> Vec<&str>;
    /// Whether there is a Node of this name; true where Nodes are not known.
    fn has_node(&self, name: &str) -> bool;
    /// The Service that has a cluster IP, as `namespace/name`.
    fn service_at(&self, address: IpAddr) -> Option<&str>;
    /// Whether an address is in a range of Service addresses.
    fn is_service_address(&self, address: IpAddr) -> bool;
    /// The domain of the cluster, for commands.
    fn domain(&self) -> &str {
        "cluster.local"
    }
    /// The EndpointSlices of a Service, read one by one, as far as needed.
    fn slices<'a>(&'a self, service: &'a Service) -> Box<dyn Iterator<Item = Slice> + 'a>;
}
