//! What a Service may claim: addresses of the Service range and node ports.
//!
//! The rules of Service state what they need through [`Claims`]; the caller collects the results in the same
//! transaction as the object, or throws them away. So a failed request leaves nothing behind.

use std::net::IpAddr;

use crate::ip::Family;
use crate::node_port_range::NodePortRange;

/// Claims being gathered for one request.
pub trait Claims {
    /// The configured families, primary first.
    fn families(&self) -> &[Family];

    /// Claims this address, or any free one, of a family for the Service `namespace/name`.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn claim_address(
        &mut self,
        family: Family,
        wanted: Option<IpAddr>,
        namespace: &str,
        name: &str,
    ) -> Result<IpAddr, ClaimError>;

    /// Gives an address back.
    fn release_address(&mut self, address: IpAddr);

    /// Claims this node port, or any free one.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn claim_port(&mut self, wanted: Option<u16>) -> Result<u16, ClaimError>;

    /// Gives a node port back.
    fn release_port(&mut self, port: u16);

    /// Reserves a range of node ports for the Services of a namespace, in place of the one it has; none ends the reservation.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn reserve_ports(&mut self, namespace: &str, range: Option<NodePortRange>) -> Result<(), ClaimError>;
}

/// Why a claim fails, with the message that clients see.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClaimError {
    /// The range is exhausted.
    #[error("range is full")]
    Full,
    /// The address is in use.
    #[error("provided IP is already allocated")]
    AddressTaken,
    /// No Service range holds the address.
    #[error("the provided network does not match the current range")]
    NoSuchRange,
    /// The address is outside the range (the message of a dry run).
    #[error("the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}")]
    AddressOutOfRange {
        /// The requested value.
        address: IpAddr,
        /// What there is.
        range: String,
    },
    /// The port is in use.
    #[error("provided port is already allocated")]
    PortTaken,
    /// The port is outside the range.
    #[error("provided port is not in the valid range. The range of valid ports is {0}")]
    PortOutOfRange(String),
    /// The namespace of the Service has node ports of its own, and this is none of them.
    #[error("provided port is not in the range of the namespace. Its range of node ports is {0}")]
    PortNotOfNamespace(NodePortRange),
    /// The port is reserved for another namespace.
    #[error("provided port is reserved: another namespace has the node ports {0}")]
    PortReserved(NodePortRange),
    /// A range overlaps that of another namespace, which had it first.
    #[error("overlaps the node ports {0}, which another namespace reserved first")]
    RangeReserved(NodePortRange),
    /// Namespaces would reserve more than half of all node ports.
    #[error("leaves too few: namespaces may reserve half of all node ports together")]
    TooManyReserved,
    /// The map of allocations is missing; the repair controller will make it.
    #[error("cannot allocate resources of type {0} at this time")]
    NoMap(&'static str),
    /// The owner has no name that an allocation can refer to.
    #[error("IPAddress.networking.k8s.io \"{address}\" is invalid: spec.parentRef.name: {why}")]
    OwnerRefused {
        /// What would have been allocated.
        address: IpAddr,
        /// What is wrong with the name.
        why: String,
    },
}
