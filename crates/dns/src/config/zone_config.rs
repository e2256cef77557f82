//! Zone configuration of the block with the `kubernetes` directive.

use std::net::IpAddr;

use super::{Block, Config, Fallthrough};
use crate::zone::{self, Quirks, Ttl};

impl Config {
    /// Server block with the `kubernetes` directive.
    #[must_use]
    pub fn cluster(&self) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kubernetes.is_some())
    }
}

impl Block {
    /// Zone configuration of the block, if it has `kubernetes`. `own` are the addresses of this server.
    #[must_use]
    pub fn zone_config(&self, own: Vec<IpAddr>, quirks: Quirks) -> Option<zone::Config> {
        let kubernetes = self.kubernetes.as_ref()?;
        Some(zone::Config {
            zones: kubernetes.zones.iter().map(ToString::to_string).collect(),
            fallthrough: match &kubernetes.fallthrough {
                Fallthrough::Never => zone::Fallthrough::Never,
                Fallthrough::Always => zone::Fallthrough::Always,
                Fallthrough::Zones(zones) => zone::Fallthrough::Below(zones.iter().map(ToString::to_string).collect()),
            },
            // The search path is derived from the namespace of the client's Pod.
            clients: self.autopath.as_ref().is_some_and(|autopath| autopath.file.is_none()),
            pods: kubernetes.pods,
            endpoint_pod_names: kubernetes.endpoint_pod_names,
            endpoints: !kubernetes.noendpoints,
            ignore_empty_service: kubernetes.ignore_empty_service,
            namespaces: kubernetes.namespaces.clone(),
            namespace_labels: kubernetes.namespace_labels.clone().unwrap_or_default(),
            labels: kubernetes.labels.clone().unwrap_or_default(),
            ttl: Ttl::all(kubernetes.ttl),
            quirks,
            server_addresses: own,
            wildcard_addresses: Vec::new(),
            recursion: !self.forwards.is_empty(),
            max_udp_size: self.bufsize.unwrap_or(u16::MAX),
        })
    }
}
