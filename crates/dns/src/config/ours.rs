//! What of a configuration is about our own names.
//!
//! In: the block with the cluster's zones. Out: how the book of names is to be kept.

use std::net::IpAddr;

use super::{Block, Config, Fallthrough};
use crate::zone::{self, Quirks, Ttl};

impl Config {
    /// The block that has the cluster's own zones.
    #[must_use]
    pub fn cluster(&self) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kubernetes.is_some())
    }
}

impl Block {
    /// How our names are answered; nothing when the block has none. `own` is where this server is known.
    #[must_use]
    pub fn ours(&self, own: Vec<IpAddr>, quirks: Quirks) -> Option<zone::Config> {
        let ours = self.kubernetes.as_ref()?;
        Some(zone::Config {
            zones: ours.zones.iter().map(ToString::to_string).collect(),
            fallthrough: match &ours.fallthrough {
                Fallthrough::Never => zone::Fallthrough::Never,
                Fallthrough::Always => zone::Fallthrough::Always,
                Fallthrough::Zones(zones) => zone::Fallthrough::Below(zones.iter().map(ToString::to_string).collect()),
            },
            // Whose search path is walked follows from the Pod that asks.
            clients: self.autopath.as_ref().is_some_and(|autopath| autopath.file.is_none()),
            pods: ours.pods,
            endpoint_pod_names: ours.endpoint_pod_names,
            endpoints: !ours.noendpoints,
            ignore_empty_service: ours.ignore_empty_service,
            namespaces: ours.namespaces.clone(),
            namespace_labels: ours.namespace_labels.clone().unwrap_or_default(),
            labels: ours.labels.clone().unwrap_or_default(),
            ttl: Ttl::all(ours.ttl),
            quirks,
            own,
            others: Vec::new(),
            recursion: !self.forwards.is_empty(),
            largest: self.bufsize.unwrap_or(u16::MAX),
        })
    }
}
