//! An EndpointSlice with its stored form.

use std::sync::Arc;

use api::view::ObjectMeta;
use api::view::endpoint_slice::{Endpoint, EndpointPort, EndpointSlice};
use store::Entry;

/// An EndpointSlice.
#[derive(Clone, PartialEq, Debug)]
pub struct Slice {
    /// The stored form: key, labels and revision.
    pub entry: Arc<Entry>,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Box<str>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its ports.
    pub ports: Vec<EndpointPort>,
}

impl Slice {
    /// Reads a stored slice.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let EndpointSlice { metadata, address_type, endpoints, ports } = super::read(&entry.value);
        Self { entry: Arc::clone(entry), metadata, address_type, endpoints, ports }
    }
}
