//! `autopath`: server-side search path expansion.
//!
//! In: a query whose name ends with the first domain of the client's search path. Out: the first answer along that path
//! that is not NXDOMAIN, with a CNAME from the query name to the name found. A Pod then needs one query instead of five
//! for an external name. Without a `resolv.conf`, only clients whose Pod is known have a search path.

use std::net::IpAddr;
use std::sync::Arc;

use super::answer::Unpacked;
use super::message::{Outgoing, Query, rcode};
use super::server_block::ServerBlock;
use super::{Record, Resolver};
use crate::config::Name;
use crate::forward::ClientAddr;

const CNAME: u16 = 5;
/// Query types that are expanded, as in CoreDNS.
const ADDRESSES: [u16; 2] = [1, 28];

/// Labels before the first search domain, and the search path.
pub(super) struct SearchPath {
    labels: Vec<u8>,
    path: Vec<Name>,
}

impl Resolver {
    /// Search path expansion of a query, if it applies.
    pub(super) fn search_path(
        &self,
        server_block: &ServerBlock,
        lower: &[u8],
        qtype: u16,
        client: IpAddr,
    ) -> Option<SearchPath> {
        let autopath = server_block.block.autopath.as_ref()?;
        if !ADDRESSES.contains(&qtype) {
            return None;
        }
        let zones = if autopath.zones.is_empty() { &server_block.zones } else { &autopath.zones };
        if !zones.iter().any(|zone| zone.covers(lower)) {
            return None;
        }
        let path = match &autopath.file {
            Some(file) => self.config.searches.get(file)?.clone(),
            None => self.config.local.as_ref()?.search_path(client)?,
        };
        let name = Name::from_wire(lower)?;
        let labels = name.strip_suffix(path.first()?)?.to_vec();
        (!labels.is_empty()).then_some(SearchPath { labels, path })
    }

    /// Queries the names of the search path; the answer has a CNAME from the query name to the name found.
    pub(super) async fn resolve_search_path(
        self: &Arc<Self>,
        search_path: &SearchPath,
        query: &Query<'_>,
        from: ClientAddr,
    ) -> Option<Unpacked> {
        let mut first = None;
        let root = Name::root();
        for domain in search_path.path.iter().chain([&root]) {
            let Ok(name) = Name::join(&search_path.labels, domain) else { continue };
            let answer = self.resolve_name(&Outgoing::of(query, &name), from, 0).await;
            if answer.rcode == rcode::NXDOMAIN {
                first.get_or_insert(answer);
                continue;
            }
            return Some(aliased(query.name.as_wire(), &name, answer));
        }
        first
    }
}

fn aliased(query_name: &[u8], found: &Name, mut answer: Unpacked) -> Unpacked {
    if query_name != found.as_wire() {
        let ttl = answer.sections.iter().flatten().map(|record| record.ttl).next().unwrap_or(0);
        let data = found.as_wire().to_vec();
        answer.sections[0].insert(0, Record { owner: query_name.to_vec(), rtype: CNAME, class: 1, ttl, data });
    }
    answer
}
